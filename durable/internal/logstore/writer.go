package logstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Writer makes operations durable. One goroutine commits all that are pending as
// one group, so that operations that come while the log writes share the next
// write. T is what operations apply themselves to: a [Txn] with what the
// operations of one group share.
type Writer[T any] struct {
	store *Store
	cfg   WriterConfig[T]
	wake  chan struct{} // has room for one
	due   *time.Timer   // wakes the goroutine when a lazy operation is due, and may do so for nothing
	done  chan struct{} // closed when the goroutine has ended
	// Of the goroutine, so that a group takes no new memory for them: what the group
	// changes, and how many bytes the changes of the last one took.
	staged *Layer
	size   int

	mu     sync.Mutex // protects the following
	queue  []*Op[T]
	lazy   []*Op[T] // in the order in which they were submitted
	closed bool
}

// WriterConfig configures a [Writer].
type WriterConfig[T any] struct {
	// Begin returns what the operations of a group are applied to.
	Begin func(*Txn) T
	// Effects is locked while the effects of a group run.
	Effects sync.Locker
	// Failed returns the error that operations of a group get when the group
	// fails with err.
	Failed func(err error) error
	// Gather has a group wait for the operations that are likely to follow those that
	// the group before it made durable, for at most an eighth of the time that it took.
	// Where writing to the log takes long, groups are then as large as there are
	// callers. Otherwise the callers split in two halves that take turns.
	Gather bool
}

// gatherShare is the share of the time that a group took which the next one may wait.
const gatherShare = 8

// Op is an operation, which is durable as a whole or not at all.
type Op[T any] struct {
	apply  func(T) error
	result chan error // has room for one

	lazySince time.Time // when a lazy operation was submitted
	// The Writer's mu protects these.
	answered bool
	started  bool
}

// NewOp returns an operation that apply makes. apply may be called again, for
// another transaction, if the first one was undone. An error that [Refuse]
// returned goes to the operation's caller only, and must mean that nothing was
// changed. Any other error undoes the transaction; the others of the group are
// applied to a new one.
func NewOp[T any](apply func(T) error) *Op[T] {
	return &Op[T]{apply: apply, result: make(chan error, 1)}
}

// lazyDelay is how long a lazy operation may wait for others that would be
// committed anyway, or that make it superfluous.
const lazyDelay = 3 * time.Millisecond

// maxGroup is the size of a group's changes, in bytes, from which the group takes no more
// operations. A group is in memory several times until the log has it.
const maxGroup = 8 << 20

// maxRoom is for how many bytes of changes a group has room from the beginning, at most.
const maxRoom = 64 << 10

// Txn is the changes of a group.
type Txn struct {
	// View has the changes, on top of what is durable.
	View *View

	changed *Layer
	group   Coder // has the same for the log
	effects []func()
}

// Put stores a record in the place of one with the same key.
func (t *Txn) Put(table Table, key, value []byte) { t.change(table, key, value) }

// Remove deletes a record if it is there.
func (t *Txn) Remove(table Table, key []byte) { t.change(table, key, nil) }

func (t *Txn) change(table Table, key, value []byte) {
	t.group.change(&table, &key, &value)
	t.changed.Set(table, string(key), value)
}

// Then has effect run once the group is durable, after the effects before it.
func (t *Txn) Then(effect func()) { t.effects = append(t.effects, effect) }

// NewWriter returns a store's writer and starts its goroutine, which [Writer.Close]
// ends. A store has one writer.
func NewWriter[T any](store *Store, cfg WriterConfig[T]) *Writer[T] {
	w := &Writer[T]{store: store, cfg: cfg, wake: make(chan struct{}, 1), done: make(chan struct{}), staged: NewLayer(store.tables, 0)}
	// It runs only while there are lazy operations.
	w.due = time.AfterFunc(lazyDelay, func() { signal(w.wake) })
	w.due.Stop()
	go func() { // Close waits for it
		defer close(w.done)
		defer w.due.Stop()
		for {
			batch, ok := w.next()
			if !ok {
				return
			}
			began := time.Now()
			w.commit(batch)
			if cfg.Gather {
				w.gather(len(batch), time.Since(began)/gatherShare)
			}
		}
	}()
	return w
}

// Do makes an operation durable. An operation that has begun is not interrupted
// by the end of ctx, so that its outcome is known.
func (w *Writer[T]) Do(ctx context.Context, apply func(T) error) error {
	o := NewOp(apply)
	if err := w.Submit(o); err != nil {
		return err
	}
	return w.Await(ctx, o)
}

// Submit queues an operation.
func (w *Writer[T]) Submit(o *Op[T]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	w.queue = append(w.queue, o)
	signal(w.wake)
	return nil
}

// Waiting returns how many operations are queued that cannot wait.
func (w *Writer[T]) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue)
}

// SubmitLazy queues an operation that can wait: it is committed with others that
// come within 3 ms, or after that.
func (w *Writer[T]) SubmitLazy(o *Op[T]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	o.lazySince = time.Now()
	w.lazy = append(w.lazy, o)
	if len(w.lazy) == 1 {
		w.due.Reset(lazyDelay)
	}
	return nil
}

// Await waits for an operation's outcome. It cancels the operation if ctx ends
// before that has begun.
func (w *Writer[T]) Await(ctx context.Context, o *Op[T]) error {
	select {
	case err := <-o.result:
		return err
	case <-ctx.Done():
	}
	w.mu.Lock()
	if !o.started && !o.answered {
		o.answered = true // skipped by the goroutine
		w.mu.Unlock()
		return ctx.Err()
	}
	w.mu.Unlock()
	return <-o.result
}

// Answer ends an operation. The first answer counts.
func (w *Writer[T]) Answer(o *Op[T], err error) {
	w.mu.Lock()
	answered := o.answered
	o.answered = true
	w.mu.Unlock()
	if answered {
		return
	}
	var r *refusal
	if errors.As(err, &r) {
		err = r.error
	}
	o.result <- err
}

// Close commits what is pending, and then last in a group of its own.
func (w *Writer[T]) Close(last func(T) error) error {
	w.mu.Lock()
	w.closed = true
	signal(w.wake)
	w.mu.Unlock()
	<-w.done
	o := NewOp(last)
	w.commit([]*Op[T]{o})
	return <-o.result
}

// next waits until there is something to commit. It returns false when the
// Writer is closed and nothing is left.
func (w *Writer[T]) next() ([]*Op[T], bool) {
	for {
		batch, closed := w.collect()
		switch {
		case len(batch) > 0:
			return batch, true
		case closed:
			return nil, false
		}
		<-w.wake
	}
}

// gather waits until so many operations were added to those that are queued, at most
// for the given time.
func (w *Writer[T]) gather(more int, atMost time.Duration) {
	want := w.Waiting() + more
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	for !w.has(want) {
		select {
		case <-w.wake:
		case <-timer.C:
			return
		}
	}
}

// has reports whether so many operations are queued, or no more come.
func (w *Writer[T]) has(want int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed || len(w.queue) >= want
}

// collect takes the operations to commit now, the lazy ones last. If lazy ones are left,
// the goroutine is woken when the first is due.
func (w *Writer[T]) collect() (batch []*Op[T], closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	batch = w.take(batch, w.queue)
	clear(w.queue)
	w.queue = w.queue[:0]

	due := len(w.lazy)
	if !w.closed {
		now := time.Now()
		for due = 0; due < len(w.lazy); due++ {
			o := w.lazy[due]
			if o.answered {
				continue
			}
			if age := now.Sub(o.lazySince); age < lazyDelay {
				w.due.Reset(lazyDelay - age)
				break
			}
		}
	}
	batch = w.take(batch, w.lazy[:due])
	rest := copy(w.lazy, w.lazy[due:])
	clear(w.lazy[rest:])
	w.lazy = w.lazy[:rest]
	return batch, w.closed
}

// take appends those of ops that have no answer yet to batch. mu is locked.
func (w *Writer[T]) take(batch, ops []*Op[T]) []*Op[T] {
	for _, o := range ops {
		if !o.answered {
			o.started = true
			batch = append(batch, o)
		}
	}
	return batch
}

// commit makes a batch durable and answers its operations. One that fails by
// itself is taken out and does not fail the others. The batch is one group, or several if
// their changes are large.
func (w *Writer[T]) commit(batch []*Op[T]) {
	for len(batch) > 0 {
		outcomes := make([]error, len(batch))
		t, done, failed, err := w.try(batch, outcomes)
		if err != nil {
			err = w.cfg.Failed(err)
		}
		if failed >= 0 {
			w.Answer(batch[failed], err)
			batch = slices.Delete(batch, failed, failed+1)
			continue
		}
		if err == nil {
			w.cfg.Effects.Lock()
			for _, effect := range t.effects {
				effect()
			}
			w.cfg.Effects.Unlock()
		}
		for i, o := range batch[:done] {
			if err != nil {
				w.Answer(o, err)
			} else {
				w.Answer(o, outcomes[i])
			}
		}
		batch = batch[done:]
	}
}

// try applies the first operations of a batch to one transaction, as many as a group takes,
// and commits that. If an operation fails, nothing has happened, and failed is its index;
// else failed is -1, done is the number of operations, and err is the error of the transaction.
func (w *Writer[T]) try(batch []*Op[T], outcomes []error) (t *Txn, done, failed int, err error) {
	defer func() { *w.staged = Layer{tables: w.store.tables} }() // nobody reads it any more
	t = &Txn{changed: w.staged, group: Coder{Buf: make([]byte, 0, w.size)}}
	done, failed = len(batch), -1 // if the base cannot be read
	err = w.store.view(t.changed, func(now *View) error {
		t.View = now
		shared := w.cfg.Begin(t)
		for i, o := range batch {
			if len(t.group.Buf) >= maxGroup {
				break
			}
			done, failed = i+1, i
			var refused *refusal
			if err := o.apply(shared); errors.As(err, &refused) {
				outcomes[i] = err
			} else if err != nil {
				return err
			}
		}
		failed = -1
		return nil
	})
	if err != nil || len(t.group.Buf) == 0 {
		return t, done, failed, err
	}
	w.size = min(len(t.group.Buf), maxRoom)
	return t, done, -1, w.store.commit(t.changed, t.group.Buf)
}
