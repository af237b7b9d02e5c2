package logstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Writer makes operations durable. One goroutine commits all pending operations as one group.
// Operations that arrive during a write join the next group. T is the transaction that
// operations are applied to: a [Txn] with additional state that the operations of a group
// share.
type Writer[T any] struct {
	store *Store
	cfg   WriterConfig[T]
	wake  chan struct{} // holds one token
	due   *time.Timer   // wakes the goroutine when a lazy operation is due; may wake it early
	done  chan struct{} // closed when the goroutine has returned
	// Used by the goroutine, and kept between groups to save allocations. staged holds the
	// changes of the group. size is the size of the previous group's changes in bytes, at most
	// maxInitialRoom.
	staged *Layer
	size   int

	mu     sync.Mutex // protects the fields below
	queue  []*Op[T]
	lazy   []*Op[T] // in the order of submission
	closed bool
}

// WriterConfig configures a [Writer].
type WriterConfig[T any] struct {
	// Begin returns the transaction of a new group.
	Begin func(*Txn) T
	// Effects is locked while the effects of a group run.
	Effects sync.Locker
	// Failed converts the error of a failed group, or of a failed operation that is not refused,
	// for the callers.
	Failed func(err error) error
	// Gather makes a group wait for the callers that the previous group served, because they
	// are likely to submit another operation. The wait is at most 1/8 of the previous group's
	// duration. With a slow log, a group then contains an operation of every caller. Without
	// it, the callers split into two halves that alternate.
	Gather bool
}

// gatherShare is the divisor of a group's duration that limits the wait of the next group.
const gatherShare = 8

// Op is an operation. It becomes durable completely or not at all.
type Op[T any] struct {
	apply  func(T) error
	result chan error // holds one result

	lazySince time.Time // when a lazy operation was submitted
	// mu of the Writer protects the fields below.
	answered bool
	started  bool
}

// NewOp returns an operation that calls apply. If another operation fails and the transaction
// is discarded, apply is called again with a new transaction. An error that [Refuse] returned
// goes only to the operation's caller; apply must not have changed anything. Any other error
// discards the transaction and fails this operation only.
func NewOp[T any](apply func(T) error) *Op[T] {
	return &Op[T]{apply: apply, result: make(chan error, 1)}
}

// lazyDelay is the maximum time that a lazy operation waits for other operations to join it, or
// to make it unnecessary.
const lazyDelay = 3 * time.Millisecond

// maxGroup is the size of a group's changes, in bytes, at which the group is complete. A group
// is in memory several times until the log has it.
const maxGroup = 8 << 20

// maxInitialRoom is the maximum initial capacity for a group's changes, in bytes.
const maxInitialRoom = 64 << 10

// Txn is the transaction of a group.
type Txn struct {
	// View contains the durable records and the changes of the transaction.
	View *View

	changed *Layer
	group   group // the same changes, encoded for the log
	effects []func()
}

// Put stores a record, replacing one with the same key.
func (t *Txn) Put(table Table, key, value []byte) { t.change(table, key, value) }

// Remove deletes a record, if it exists.
func (t *Txn) Remove(table Table, key []byte) { t.change(table, key, nil) }

func (t *Txn) change(table Table, key, value []byte) {
	t.group.add(table, key, value)
	t.changed.Set(table, string(key), value)
}

// AfterCommit runs effect after the group is durable. Effects run in the order of the calls of
// AfterCommit.
func (t *Txn) AfterCommit(effect func()) { t.effects = append(t.effects, effect) }

// NewWriter returns the writer of a store and starts its goroutine. [Writer.Close] stops it. A
// store has one writer.
func NewWriter[T any](store *Store, cfg WriterConfig[T]) *Writer[T] {
	w := &Writer[T]{store: store, cfg: cfg, wake: make(chan struct{}, 1), done: make(chan struct{}), staged: NewLayer(store.tables, 0)}
	// The timer runs only while there are lazy operations.
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

// Do makes an operation durable. The end of ctx cancels the operation only before it has
// started, so that its outcome is always known.
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

// Waiting returns the number of queued operations without the lazy ones.
func (w *Writer[T]) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue)
}

// SubmitLazy queues an operation that waits up to 3 ms (lazyDelay). It joins the operations that
// arrive in this time; one of them may make it unnecessary and answer it.
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

// Await waits for an operation's outcome. If ctx ends before the operation has started, Await
// cancels it.
func (w *Writer[T]) Await(ctx context.Context, o *Op[T]) error {
	select {
	case err := <-o.result:
		return err
	case <-ctx.Done():
	}
	w.mu.Lock()
	if !o.started && !o.answered {
		o.answered = true // the goroutine skips it
		w.mu.Unlock()
		return ctx.Err()
	}
	w.mu.Unlock()
	return <-o.result
}

// Complete completes an operation, which is skipped if it has not started. Later answers have no
// effect.
func (w *Writer[T]) Complete(o *Op[T], err error) {
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

// Close commits the pending operations, and then last in a group of its own.
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

// next waits for operations to commit. It returns false when the Writer is closed and none is
// left.
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

// gather waits until the queue has grown by more operations, at most for the given time.
func (w *Writer[T]) gather(more int, atMost time.Duration) {
	want := w.Waiting() + more
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	for !w.hasQueued(want) {
		select {
		case <-w.wake:
		case <-timer.C:
			return
		}
	}
}

// hasQueued reports whether the queue has want operations or will not grow because the Writer is
// closed.
func (w *Writer[T]) hasQueued(want int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed || len(w.queue) >= want
}

// collect returns the operations to commit now, lazy ones last. If lazy ones remain, it sets
// the timer for the first.
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

// take appends the operations without an answer to batch. mu is locked.
func (w *Writer[T]) take(batch, ops []*Op[T]) []*Op[T] {
	for _, o := range ops {
		if !o.answered {
			o.started = true
			batch = append(batch, o)
		}
	}
	return batch
}

// commit makes a batch durable and answers its operations. A failed operation is removed and
// does not fail the others. A batch with large changes becomes several groups. If a group is too large for
// the log, each of its operations becomes a group.
func (w *Writer[T]) commit(batch []*Op[T]) {
	for len(batch) > 0 {
		outcomes := make([]error, len(batch))
		t, done, failed, err := w.try(batch, outcomes)
		if done > 1 && errors.Is(err, ErrTooLarge) {
			for _, o := range batch[:done] { // only the large one fails
				w.commit([]*Op[T]{o})
			}
			batch = batch[done:]
			continue
		}
		if err != nil {
			err = w.cfg.Failed(err)
		}
		if failed >= 0 {
			w.Complete(batch[failed], err)
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
				w.Complete(o, err)
			} else {
				w.Complete(o, outcomes[i])
			}
		}
		batch = batch[done:]
	}
}

// try applies the first operations of a batch to one transaction, until maxGroup is reached,
// and commits it. If an operation fails, nothing is committed and failed is its index.
// Otherwise failed is -1, done is the number of operations, and err is the error of the
// transaction.
func (w *Writer[T]) try(batch []*Op[T], outcomes []error) (t *Txn, done, failed int, err error) {
	defer func() { *w.staged = Layer{tables: w.store.tables} }() // its readers have returned
	t = &Txn{changed: w.staged, group: group{rest: Coder{Buf: make([]byte, 0, w.size)}}}
	done, failed = len(batch), -1 // also if the base cannot be read
	err = w.store.view(t.changed, func(now *View) error {
		t.View = now
		shared := w.cfg.Begin(t)
		for i, o := range batch {
			if t.group.size() >= maxGroup {
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
	if err != nil || t.group.size() == 0 {
		return t, done, failed, err
	}
	w.size = min(t.group.size(), maxInitialRoom)
	return t, done, -1, w.store.commit(t.changed, t.group.encoded())
}
