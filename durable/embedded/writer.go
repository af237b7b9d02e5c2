package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A writer makes operations durable. One goroutine commits everything that is
// pending as one group, so that a sync of the disk serves all who came while
// the one before was under way.
type writer struct {
	h    *Hub
	wake chan struct{} // has room for one
	done chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex // protects the following
	queue  []*op
	lazy   []*op // in the order in which they were submitted
	closed bool
}

// An op is one operation, which is durable as a whole or not at all.
type op struct {
	// apply makes the changes in a transaction. It may be called again in
	// another one if the first was taken back. An error that is a *refusal goes
	// to the caller only, and must mean that nothing was changed; any other
	// takes the transaction back.
	apply func(*txn) error
	// lazy is when a lazy operation was submitted.
	lazySince time.Time

	// answered says that the operation is over; protected by writer.mu.
	answered bool
	started  bool
	result   chan error // has room for one
}

// A refusal is an error by which an operation changes nothing on purpose.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// lazyDelay is how long a lazy operation may wait for others that would be
// committed anyway, or that make it superfluous.
const lazyDelay = 3 * time.Millisecond

// A txn is a transaction of the writer: a group of changes.
type txn struct {
	*tables
	h       *Hub
	changed *layer // by the transaction
	journal *coder // has the same for the journal
	// effects are what the transaction changes in memory, run in order once it
	// is durable, with Hub.mu locked.
	effects []func()
	// consumed are the messages that the transaction deletes.
	consumed map[*message]struct{}
	// stored are the results to which the transaction gives records of their own.
	stored map[*message]struct{}
	// staged are those that it adds, by the instance they are for.
	staged map[string][]*message
}

// put stores a record in the place of one with the same key.
func (t *txn) put(id tableID, key, value []byte) { t.change(id, key, value) }

// remove deletes a record if it is there.
func (t *txn) remove(id tableID, key []byte) { t.change(id, key, nil) }

func (t *txn) change(id tableID, key, value []byte) {
	t.journal.change(&id, &key, &value)
	t.changed.set(id, string(key), value)
}

func (t *txn) afterwards(effect func()) { t.effects = append(t.effects, effect) }

func newWriter(h *Hub) *writer {
	w := &writer{h: h, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go func() { // close waits for it
		defer close(w.done)
		w.run()
	}()
	return w
}

// do has an operation made durable and waits for it. An operation that has
// begun is not interrupted by the end of ctx, so that its outcome is known.
func (w *writer) do(ctx context.Context, apply func(*txn) error) error {
	o := &op{apply: apply, result: make(chan error, 1)}
	if err := w.submit(o); err != nil {
		return err
	}
	return w.await(ctx, o)
}

// submit queues an operation.
func (w *writer) submit(o *op) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	w.queue = append(w.queue, o)
	w.signal()
	return nil
}

// submitLazy queues an operation that nobody needs at once: it is committed
// with others that come within lazyDelay, or after that.
func (w *writer) submitLazy(o *op) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	o.lazySince = time.Now()
	w.lazy = append(w.lazy, o)
	if len(w.lazy) == 1 {
		w.signal() // to set the timer
	}
	return nil
}

func (w *writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// await waits for an operation's outcome. If ctx ends before it has begun, it
// is called off.
func (w *writer) await(ctx context.Context, o *op) error {
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

// answer ends an operation. The first answer counts.
func (w *writer) answer(o *op, err error) {
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

// close lets the goroutine commit what is pending, waits for its end, and then
// has a last operation made durable, in a group of its own.
func (w *writer) close(last func(*txn) error) error {
	w.mu.Lock()
	w.closed = true
	w.signal()
	w.mu.Unlock()
	<-w.done
	o := &op{apply: last, result: make(chan error, 1)}
	w.commit([]*op{o})
	return <-o.result
}

func (w *writer) run() {
	for {
		batch, ok := w.next()
		if !ok {
			return
		}
		w.commit(batch)
	}
}

// next waits until there is something to commit. It returns false when the
// writer is closed and nothing is left.
func (w *writer) next() ([]*op, bool) {
	for {
		batch, wait, closed := w.collect()
		switch {
		case len(batch) > 0:
			return batch, true
		case closed:
			return nil, false
		case wait == 0:
			<-w.wake
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-w.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// collect takes what is to be committed now, the lazy operations last. If that
// is nothing, wait says when there will be something, 0 if that is not known.
func (w *writer) collect() (batch []*op, wait time.Duration, closed bool) {
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
				wait = lazyDelay - age
				break
			}
		}
	}
	batch = w.take(batch, w.lazy[:due])
	rest := copy(w.lazy, w.lazy[due:])
	clear(w.lazy[rest:])
	w.lazy = w.lazy[:rest]
	return batch, wait, w.closed
}

// take appends those of ops that are still wanted to batch. mu is locked.
func (w *writer) take(batch, ops []*op) []*op {
	for _, o := range ops {
		if !o.answered {
			o.started = true
			batch = append(batch, o)
		}
	}
	return batch
}

// commit makes a batch durable, and tells those who wait. An operation that
// fails by itself is taken out and does not fail the others.
func (w *writer) commit(batch []*op) {
	for len(batch) > 0 {
		outcomes := make([]error, len(batch))
		t, failed, err := w.try(batch, outcomes)
		if err != nil {
			err = fmt.Errorf("write to task hub %s: %w", w.h.path, w.h.damage(err))
		}
		if failed >= 0 {
			w.answer(batch[failed], err)
			batch = slices.Delete(batch, failed, failed+1)
			continue
		}
		if err == nil {
			w.h.mu.Lock()
			for _, effect := range t.effects {
				effect()
			}
			w.h.mu.Unlock()
		}
		for i, o := range batch {
			if err != nil {
				w.answer(o, err)
			} else {
				w.answer(o, outcomes[i])
			}
		}
		return
	}
}

// try runs a batch in one transaction. If an operation fails, nothing has
// happened, and failed is which; else it is -1, and err is that of the
// transaction.
func (w *writer) try(batch []*op, outcomes []error) (t *txn, failed int, err error) {
	t = &txn{h: w.h, changed: &layer{}, journal: writing(nil)}
	failed = -1
	err = w.h.store.view(t.changed, func(now *tables) error {
		t.tables = now
		for i, o := range batch {
			failed = i
			var refused *refusal
			if err := o.apply(t); errors.As(err, &refused) {
				outcomes[i] = err
			} else if err != nil {
				return err
			}
		}
		failed = -1
		return nil
	})
	if err != nil || len(t.journal.b) == 0 {
		return t, failed, err
	}
	err = w.h.store.commit(t.changed, t.journal.b)
	w.note(len(t.journal.b), err)
	return t, -1, err
}

// note notes whether so many bytes reached the disk, for Check.
func (w *writer) note(bytes int, err error) {
	n, missing := int64(bytes), w.h.unwritten.Load()
	switch {
	case n >= maxGroup: // which no disk has room for
	case err != nil:
		w.h.unwritten.Store(max(n, missing))
	case n >= missing:
		w.h.unwritten.Store(0)
	}
}
