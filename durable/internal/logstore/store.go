package logstore

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/reclaim"
)

// Log makes groups of changes durable, in order. Only one goroutine calls it at a time.
type Log interface {
	// Append makes a group durable. number is the previous number plus one. After an error, the
	// group has not been appended and its number is used again, except after an
	// *[UncertainError].
	Append(number uint64, changes Parts) error
	// Size returns the number of bytes appended since the last rotation.
	Size() int64
	// Rotate ends the current part of the log and starts a new one. The base has all groups of
	// the parts before the one that ends.
	Rotate()
	// Reserve makes sure that there is space for a group of the given size.
	Reserve(bytes int64) error
	// Close closes the log. applied means that the base has all groups, so that the log can be
	// deleted.
	Close(applied bool) error
}

// Base stores the records of the groups that were written to it.
type Base interface {
	// View calls f with the records at one time: the start of the view or, for a [LateReader],
	// its first read. It returns [ErrClosed] after Close.
	View(f func(Reader) error) error
	// Write atomically stores a layer's changes and the number of its last group. closing means
	// that the base then has all groups, so that the log is not needed. After an
	// *[UncertainError], the base must not be written again. Write returns [ErrClosed] if the
	// base is about to be closed; the layer then stays in the log.
	Write(l *Layer, closing bool) error
	// Close closes the base.
	Close() error
}

// Reader reads a base. Returned values are valid until the view ends.
type Reader interface {
	// Get returns a record, or nil if it does not exist.
	Get(table Table, key []byte) ([]byte, error)
	// Scan calls f with the keys from the given one, in order, until f returns true or an
	// error. value reads the record.
	Scan(table Table, from []byte, f func(key []byte, value func() ([]byte, error)) (stop bool, err error)) error
	// Group calls f with the keys of a group of a grouped table, in order, until f returns an
	// error. value reads the record.
	Group(table Table, group uint64, f func(key []byte, value func() ([]byte, error)) error) error
	// Last returns the last key of a group of a grouped table, or nil if the group is empty.
	Last(table Table, group uint64) ([]byte, error)
}

// LateReader is a Reader whose view of the base starts with its first read or with Begin. Most
// reads find everything in memory and never start it. A layer that is written to the base
// before that changes nothing for a caller that also holds the layer.
type LateReader interface {
	Reader
	Begin() error
}

// Limits bounds the memory of a store.
type Limits struct {
	// FlushSize is the size of the log, in bytes, at which the active layer is written to the
	// base. Default 8 MiB.
	FlushSize int64
	// WaitSize is the size of the active layer, in bytes, at which writes wait until the
	// previous layer is in the base. Default 64 MiB.
	WaitSize int
	// RetryInterval is the time between attempts to write a layer to the base. Default 1 s.
	RetryInterval time.Duration
}

// Store stores records in a log, layers in memory, and a base.
type Store struct {
	// Limits may be changed before Start and by operations of the Writer.
	Limits Limits

	tables Tables
	log    *slog.Logger
	base   Base
	groups Log    // used by the writer
	last   uint64 // the number of the last group; used by the writer
	broken error  // why the store cannot write anymore; used by the writer

	unwritten      atomic.Int64  // the size of the largest group that failed, until one as large succeeds
	flushRequested chan struct{} // holds one token: a layer must be flushed
	flushed        chan struct{} // holds one token: a flush succeeded or failed
	closing        chan struct{}
	flusher        sync.WaitGroup
	pacer          reclaim.Pacer

	mu        sync.RWMutex // protects the fields below
	active    *Layer       // receives changes
	flushing  *Layer       // is being written to the base; nil if no layer is
	failure   error        // of the last flush
	uncertain bool         // the last flush was uncertain; do not repeat it
}

// New returns a store. recovered holds the changes that the log has and the base lacks; its
// last group is the last one of the log.
func New(base Base, groups Log, recovered *Layer, logger *slog.Logger) *Store {
	return &Store{
		Limits: Limits{FlushSize: 8 << 20, WaitSize: 64 << 20, RetryInterval: time.Second},
		tables: recovered.tables, log: logger, base: base, groups: groups, last: recovered.Last, active: recovered,
		flushRequested: make(chan struct{}, 1), flushed: make(chan struct{}, 1), closing: make(chan struct{}),
	}
}

// Start starts the goroutine that writes layers to the base. Close stops it.
func (s *Store) Start() {
	s.flusher.Go(func() {
		for {
			select {
			case <-s.flushRequested:
			case <-s.closing:
				return
			}
			s.flush()
		}
	})
}

// View calls f with the current records. Writes wait until f returns. It locks mu before it
// opens the base. Otherwise it could miss a layer that is flushed between the two.
func (s *Store) View(f func(*View) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.viewWith(s.viewOf(nil), f)
}

// Snapshot calls f with the current records and does not block writes; f does not see them. It
// is for long reads. Writes during a snapshot cost more, because they copy parts of the active
// layer.
func (s *Store) Snapshot(f func(*View) error) error {
	s.mu.Lock()
	unlock := sync.OnceFunc(s.mu.Unlock)
	defer unlock()
	v := &View{tables: s.tables, layers: []*Layer{s.active.copy()}}
	if s.flushing != nil {
		v.layers = append(v.layers, s.flushing)
	}
	return s.base.View(func(r Reader) error {
		if late, ok := r.(LateReader); ok { // later, the base could contain layers that v lacks
			if err := late.Begin(); err != nil {
				return err
			}
		}
		unlock()
		v.base = r
		return f(v)
	})
}

// view calls f with the current records and the staged changes. Only the writer calls it. No
// other goroutine changes the contents of layers, so view needs no lock while it reads the base.
func (s *Store) view(staged *Layer, f func(*View) error) error {
	s.mu.RLock()
	v := s.viewOf(staged)
	s.mu.RUnlock()
	return s.viewWith(v, f)
}

// viewOf returns a view of the layers. mu is locked.
func (s *Store) viewOf(staged *Layer) *View {
	v := &View{tables: s.tables}
	v.layers = v.room[:0]
	for _, l := range []*Layer{staged, s.active, s.flushing} {
		if l != nil {
			v.layers = append(v.layers, l)
		}
	}
	return v
}

// viewWith calls f with v above the base.
func (s *Store) viewWith(v *View, f func(*View) error) error {
	return s.base.View(func(r Reader) error {
		v.base = r
		return f(v)
	})
}

// commit makes changes durable as the next group, and then visible.
func (s *Store) commit(staged *Layer, changes Parts) error {
	s.pacer.Step(staged.largest)
	err := s.append(changes)
	n, missing := int64(changes.Size()), s.unwritten.Load()
	switch {
	case errors.Is(err, ErrTooLarge):
	case err != nil:
		s.unwritten.Store(max(n, missing))
	case n >= missing:
		s.unwritten.Store(0)
	}
	if err != nil {
		return err
	}
	s.last++
	staged.Last = s.last
	s.mu.Lock()
	s.active.add(staged)
	s.mu.Unlock()
	s.flushIfGrown()
	s.pacer.Step(staged.largest)
	return nil
}

func (s *Store) append(changes Parts) error {
	if s.broken != nil {
		return s.broken
	}
	if err := s.makeRoom(changes.Size()); err != nil {
		return err
	}
	err := s.groups.Append(s.last+1, changes)
	if errors.As(err, new(*UncertainError)) {
		s.broken = fmt.Errorf("an earlier write failed; the task hub must be reopened: %w", err)
		s.log.Error("task hub rejects all writes until it is reopened", "error", err)
	}
	return err
}

// Last returns the number of the last group. Only operations of the Writer may call it.
func (s *Store) Last() uint64 { return s.last }

// Newest returns the number of the last visible group.
func (s *Store) Newest() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.active.Last
}

// Unwritten returns the size, in bytes, of the largest group whose write failed. It is 0 after
// a group of at least this size was written.
func (s *Store) Unwritten() int64 { return s.unwritten.Load() }

// Reserve makes sure that the log has space for a group of Unwritten bytes. Only operations of
// the Writer may call it.
func (s *Store) Reserve() error { return s.groups.Reserve(s.unwritten.Load()) }

// ResetUnwritten resets Unwritten to 0.
func (s *Store) ResetUnwritten() { s.unwritten.Store(0) }

// makeRoom waits for the flush if a group of the given size would make the active layer exceed
// Limits.WaitSize. It returns the error of a failed flush instead of waiting for its retry.
func (s *Store) makeRoom(size int) error {
	for {
		s.mu.RLock()
		wait := s.active.size+size >= s.Limits.WaitSize && s.flushing != nil
		failure, uncertain := s.failure, s.uncertain
		s.mu.RUnlock()
		switch {
		case uncertain:
			return failure
		case !wait:
			s.flushIfGrown() // a running flush may have prevented it before
			return nil
		case failure != nil:
			return failure
		}
		<-s.flushed
	}
}

// flushIfGrown starts to flush the active layer if the log has grown to Limits.FlushSize and the
// previous layer is in the base.
func (s *Store) flushIfGrown() {
	if s.broken != nil || s.groups.Size() < s.Limits.FlushSize {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flushing != nil {
		return
	}
	s.flushing, s.active = s.active, NewLayer(s.tables, s.last)
	s.groups.Rotate()
	signal(s.flushRequested)
}

// flush writes the flushing layer to the base. It retries until the write succeeds, is
// uncertain, or the store is closed.
func (s *Store) flush() {
	for failures := 0; ; failures++ {
		largest := s.flushing.largest
		s.pacer.Step(largest)
		err := s.base.Write(s.flushing, false) // only this goroutine clears it
		uncertain := errors.As(err, new(*UncertainError))
		s.mu.Lock()
		s.failure, s.uncertain = err, uncertain
		if err == nil {
			s.flushing = nil
		}
		s.mu.Unlock()
		signal(s.flushed)
		if errors.Is(err, ErrClosed) {
			return // the layer stays in the log
		}
		if uncertain {
			s.log.Error("task hub rejects all writes until it is reopened", "error", err)
			return
		}
		if err == nil {
			if failures > 0 {
				s.log.Info("writes to the database succeed again")
			}
			s.pacer.Step(largest)
			return
		}
		if failures == 0 {
			s.log.Error("cannot write to the database; new data stays in the journal, and the write is retried", "error", err)
		}
		timer := time.NewTimer(s.Limits.RetryInterval)
		select {
		case <-timer.C:
		case <-s.closing:
			timer.Stop()
			return
		}
	}
}

// Replay applies a group that another process has appended to the log. The store must be used
// for reads only.
func (s *Store) Replay(number uint64, changes []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active.Replay(number, changes)
}

// Replace replaces all layers, after the base has changed. The store must be used for reads
// only.
func (s *Store) Replace(l *Layer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = l
}

// Flushing reports whether a layer is being written to the base, and the error of the last
// attempt.
func (s *Store) Flushing() (bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.flushing != nil, s.failure
}

// Stop stops the goroutine that writes layers to the base. Nothing may be written afterwards.
func (s *Store) Stop() {
	close(s.closing)
	s.flusher.Wait()
}

// Close writes all layers to the base and closes the log and the base. After an error, the log
// keeps the groups that the base lacks.
func (s *Store) Close() error {
	s.Stop()
	err := s.writeAll()
	return errors.Join(err, s.groups.Close(err == nil), s.base.Close())
}

func (s *Store) writeAll() error {
	switch {
	case s.broken != nil:
		return s.broken
	case s.uncertain:
		return s.failure
	}
	if s.flushing != nil {
		if err := s.base.Write(s.flushing, false); err != nil {
			return err
		}
		s.flushing = nil
	}
	return s.base.Write(s.active, true)
}

// signal leaves a token in a channel, unless it holds one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
