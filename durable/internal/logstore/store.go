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

// Log makes groups of changes durable, in order. One goroutine calls it at a
// time.
type Log interface {
	// Append makes a group durable. It is the group after the last one. After an
	// error other than an *[UncertainError] the group does not count, and another
	// one takes its number.
	Append(number uint64, changes []byte) error
	// Size returns how many bytes were appended since the last turn.
	Size() int64
	// Turn begins another part of the log. The base has all groups of the parts
	// before the one that ends.
	Turn()
	// Reserve makes sure that there is room for a group of so many bytes.
	Reserve(bytes int64) error
	// Close closes the log. If the base has all that was appended, the log can be
	// deleted.
	Close(applied bool) error
}

// Base keeps the records of the groups that were written to it.
type Base interface {
	// View calls f with the records at one time, which may be that of the first read,
	// see [LateReader]. It returns [ErrClosed] after Close.
	View(f func(Reader) error) error
	// Write stores a layer's changes and the number of its last group, all or
	// nothing. closing notes that the base alone has everything. After an
	// *[UncertainError] the base must not be written again. It returns [ErrClosed] if
	// the base is about to be closed, and the layer stays in the log.
	Write(l *Layer, closing bool) error
	// Close closes the base.
	Close() error
}

// Reader reads a base. What it returns is valid until the view ends.
type Reader interface {
	// Get returns a record, nil if there is none.
	Get(table Table, key []byte) ([]byte, error)
	// Scan calls f with the keys from the given one on, in order, and with what
	// reads the record, until f returns true or an error.
	Scan(table Table, from []byte, f func(key []byte, value func() ([]byte, error)) (stop bool, err error)) error
	// Group calls f with the keys of a group of a grouped table, in order, and with what
	// reads the record, until f returns an error.
	Group(table Table, group uint64, f func(key []byte, value func() ([]byte, error)) error) error
	// Last returns the last key of a group of a grouped table, nil if there is
	// none.
	Last(table Table, group uint64) ([]byte, error)
}

// LateReader is a Reader that sees the base as it is when it is first asked, or when
// Begin is called: most reads find all in memory. What a layer brings into the base before
// that does not matter to who has the layer, too.
type LateReader interface {
	Reader
	Begin() error
}

// Limits bound what a store holds in memory.
type Limits struct {
	// Flush is the size of the log, in bytes, from which on the active layer goes
	// to the base. Default 8 MiB.
	Flush int64
	// Wait is the size of the active layer, in bytes, from which on writes wait
	// for the base. Default 64 MiB.
	Wait int
	// Retry is the time between attempts to write a layer to the base. Default 1 s.
	Retry time.Duration
}

// Store keeps records in a log, in layers in memory and in a base.
type Store struct {
	// Limits may be changed before Start and by operations of the Writer.
	Limits Limits

	tables Tables
	log    *slog.Logger
	base   Base
	groups Log    // of the writer
	last   uint64 // the number of the last group; of the writer
	broken error  // why nothing can be written any more; of the writer

	unwritten atomic.Int64  // bytes of the largest group that failed since one as large succeeded
	full      chan struct{} // has room for one: there is a layer to flush
	flushed   chan struct{} // has room for one: it was flushed, or that failed
	closing   chan struct{}
	flusher   sync.WaitGroup
	pacer     reclaim.Pacer

	mu       sync.RWMutex // protects the following
	active   *Layer       // takes changes
	flushing *Layer       // goes to the base; nil if there is none
	failure  error        // of the last attempt to flush
	doomed   bool         // no other attempt may follow
}

// New returns a store. recovered has the changes of the log that the base does not
// have; its last group is the log's. Without any, it is an empty layer.
func New(base Base, groups Log, recovered *Layer, logger *slog.Logger) *Store {
	return &Store{
		Limits: Limits{Flush: 8 << 20, Wait: 64 << 20, Retry: time.Second},
		tables: recovered.tables, log: logger, base: base, groups: groups, last: recovered.Last, active: recovered,
		full: make(chan struct{}, 1), flushed: make(chan struct{}, 1), closing: make(chan struct{}),
	}
}

// Start starts the goroutine that writes layers to the base. Close ends it.
func (s *Store) Start() {
	s.flusher.Go(func() {
		for {
			select {
			case <-s.full:
			case <-s.closing:
				return
			}
			s.flush()
		}
	})
}

// View calls f with the records as they are now. Writes wait for it. The lock comes first:
// a layer that gets to the base meanwhile must be seen in one of the two.
func (s *Store) View(f func(*View) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.see(s.viewOf(nil), f)
}

// Snapshot is View for what takes long: writes do not wait for it, and it does not
// see them. What is written while it lasts costs more.
func (s *Store) Snapshot(f func(*View) error) error {
	s.mu.Lock()
	unlock := sync.OnceFunc(s.mu.Unlock)
	defer unlock()
	v := &View{tables: s.tables, layers: []*Layer{s.active.copy()}}
	if s.flushing != nil {
		v.layers = append(v.layers, s.flushing)
	}
	return s.base.View(func(r Reader) error {
		if late, ok := r.(LateReader); ok { // later, layers that v does not have may be in the base
			if err := late.Begin(); err != nil {
				return err
			}
		}
		unlock()
		v.base = r
		return f(v)
	})
}

// view is View with the changes of staged on top, for the writer. Nobody else changes
// layers, so it needs no lock while the base is read.
func (s *Store) view(staged *Layer, f func(*View) error) error {
	s.mu.RLock()
	v := s.viewOf(staged)
	s.mu.RUnlock()
	return s.see(v, f)
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

// see calls f with a view on top of the base.
func (s *Store) see(v *View, f func(*View) error) error {
	return s.base.View(func(r Reader) error {
		v.base = r
		return f(v)
	})
}

// commit makes changes durable, as the next group, and then visible.
func (s *Store) commit(staged *Layer, changes []byte) error {
	s.pacer.Step(len(changes))
	err := s.append(changes)
	n, missing := int64(len(changes)), s.unwritten.Load()
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
	s.pacer.Step(len(changes))
	return nil
}

func (s *Store) append(changes []byte) error {
	if s.broken != nil {
		return s.broken
	}
	if err := s.makeRoom(len(changes)); err != nil {
		return err
	}
	err := s.groups.Append(s.last+1, changes)
	if errors.As(err, new(*UncertainError)) {
		s.broken = fmt.Errorf("an earlier write failed, so the task hub has to be opened again: %w", err)
		s.log.Error("task hub takes no more writes until it is opened again", "error", err)
	}
	return err
}

// Last returns the number of the last group. Only operations of the Writer may
// call it.
func (s *Store) Last() uint64 { return s.last }

// Newest returns the number of the last group that can be seen.
func (s *Store) Newest() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.active.Last
}

// Unwritten returns the size in bytes of the largest group that could not be
// written since one as large could, 0 if there is none.
func (s *Store) Unwritten() int64 { return s.unwritten.Load() }

// Reserve makes sure that the log has room for the group that could not be
// written. Only operations of the Writer may call it.
func (s *Store) Reserve() error { return s.groups.Reserve(s.unwritten.Load()) }

// SetWritten notes that groups can be written again.
func (s *Store) SetWritten() { s.unwritten.Store(0) }

// makeRoom waits while the base is behind: the layers would have too many bytes with a group
// of the given size.
func (s *Store) makeRoom(size int) error {
	for {
		s.mu.RLock()
		wait := s.active.size+size >= s.Limits.Wait && s.flushing != nil
		failure, doomed := s.failure, s.doomed
		s.mu.RUnlock()
		switch {
		case doomed:
			return failure
		case !wait:
			s.flushIfGrown() // if it could not be when the layer had grown
			return nil
		case failure != nil:
			return failure
		}
		<-s.flushed
	}
}

// flushIfGrown has the active layer flushed if the log has grown and the layer
// before it is in the base.
func (s *Store) flushIfGrown() {
	if s.broken != nil || s.groups.Size() < s.Limits.Flush {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flushing != nil {
		return
	}
	s.flushing, s.active = s.active, NewLayer(s.tables, s.last)
	s.groups.Turn()
	signal(s.full)
}

// flush writes the flushing layer to the base. It tries until it succeeds, until
// it must not try again or until the store is closed.
func (s *Store) flush() {
	for failures := 0; ; failures++ {
		size := s.flushing.size
		s.pacer.Step(size)
		err := s.base.Write(s.flushing, false) // only this goroutine takes it away
		doomed := errors.As(err, new(*UncertainError))
		s.mu.Lock()
		s.failure, s.doomed = err, doomed
		if err == nil {
			s.flushing = nil
		}
		s.mu.Unlock()
		signal(s.flushed)
		if errors.Is(err, ErrClosed) {
			return // the log has the layer
		}
		if doomed {
			s.log.Error("task hub takes no more writes until it is opened again", "error", err)
			return
		}
		if err == nil {
			if failures > 0 {
				s.log.Info("the database can be written again")
			}
			s.pacer.Step(size)
			return
		}
		if failures == 0 {
			s.log.Error("cannot write to the database; what is new stays in the journal", "error", err)
		}
		timer := time.NewTimer(s.Limits.Retry)
		select {
		case <-timer.C:
		case <-s.closing:
			timer.Stop()
			return
		}
	}
}

// Replay adds a group that another process has appended to the log. The store must only
// be read.
func (s *Store) Replay(number uint64, changes []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active.Replay(number, changes)
}

// Replace puts a layer in the place of all that are on top of the base, after that has
// changed. The store must only be read.
func (s *Store) Replace(l *Layer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = l
}

// Flushing reports whether a layer is on its way to the base, and why the last
// attempt failed.
func (s *Store) Flushing() (bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.flushing != nil, s.failure
}

// Stop ends the goroutine that writes layers to the base. Nothing may be written
// afterwards.
func (s *Store) Stop() {
	close(s.closing)
	s.flusher.Wait()
}

// Close writes everything to the base, so that it alone has it, and closes log
// and base. After an error the log keeps what the base does not have.
func (s *Store) Close() error {
	s.Stop()
	err := s.writeAll()
	return errors.Join(err, s.groups.Close(err == nil), s.base.Close())
}

func (s *Store) writeAll() error {
	switch {
	case s.broken != nil:
		return s.broken
	case s.doomed:
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

// signal leaves a token in a channel that has room for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
