package azurestorage

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
)

// A lock is the right of one session of this process to run an instance. The inbox passes the
// instance's messages to the holder of the lock.
type lock struct {
	inbox      *inbox
	slot       *slot
	instanceID string
	partition  *partition

	// Owned by the goroutine of the session.
	loaded  *instances.Instance
	current []*inflight.Delivery // delivered, and neither committed nor abandoned
	failed  bool                 // loaded may differ from the stored instance

	mu        sync.Mutex // protects the following
	execution string
}

// executionID returns the ID of the execution that the session runs.
func (l *lock) executionID() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.execution
}

func (l *lock) setExecution(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.execution = id
}

// await waits for more messages, for at most idle, and appends them to current. It returns none if
// the session must end or if idle has passed. While steps of the instance run, messages for another
// execution do not end the session.
func (l *lock) await(ctx context.Context, idle time.Duration, stepsRun bool) ([]*inflight.Delivery, error) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		deliveries, wanted, changed := l.incoming(stepsRun)
		if wanted {
			return nil, nil
		}
		if len(deliveries) > 0 {
			disposals := l.inbox.disposer.divide(l.instanceID, l.loaded, l.current, deliveries)
			disposals.apply(context.WithoutCancel(ctx))
			if l.current = append(l.current, disposals.deliver...); len(disposals.deliver) > 0 {
				return disposals.deliver, nil
			}
			continue
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// incoming removes and returns the messages that arrived for the session. wanted means that the
// session must end: the worker stops, the partition is being drained, or the instance has messages
// for another execution and no running steps.
func (l *lock) incoming(stepsRun bool) (deliveries []*inflight.Delivery, wanted bool, changed <-chan struct{}) {
	b, s := l.inbox, l.slot
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || len(s.batches) > 0 && !stepsRun || s.partition.currentReading() == nil {
		return nil, true, nil
	}
	deliveries, s.incoming = s.incoming, nil
	return deliveries, false, b.changed
}

// requeue unlocks the instance and makes its messages a new batch. The stored instance decides their
// dispositions.
func (l *lock) requeue() {
	l.inbox.mu.Lock()
	l.slot.incoming = append(l.current, l.slot.incoming...)
	l.inbox.mu.Unlock()
	l.current, l.failed = nil, true
	l.unlock(context.Background())
}

// unlock ends the session. Messages that arrived for it become a batch. The instance that is stored
// now decides their dispositions.
func (l *lock) unlock(ctx context.Context) {
	b, s := l.inbox, l.slot
	b.mu.Lock()
	incoming := s.incoming
	s.incoming, s.lock = nil, nil
	if r := s.partition.currentReading(); r != nil && !b.closed {
		l.remember()
		if len(incoming) > 0 {
			s.batches = slices.Insert(s.batches, 0, &messageBatch{deliveries: incoming})
			incoming = nil
		}
		for _, batch := range s.batches { // the loaded instances may be outdated
			batch.loaded, batch.executionID = nil, executionOf(batch.deliveries)
		}
		b.advance(r, s)
	} else if len(s.batches) == 0 {
		delete(b.slots, s.id)
	}
	b.mu.Unlock()
	s.partition.endSession()
	inflight.ReleaseAll(ctx, incoming)
}

// remember caches the instance's history for the next session, unless it may be outdated or the
// instance has ended.
func (l *lock) remember() {
	loaded := l.loaded
	if l.failed || loaded.ETag == "" || !loaded.Known.Started || loaded.Known.Ended != nil {
		l.inbox.instances.CachedHistories.Take(l.instanceID)
		return
	}
	l.inbox.instances.CachedHistories.Put(l.instanceID, loaded.History)
}
