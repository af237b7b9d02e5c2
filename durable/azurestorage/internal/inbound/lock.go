package inbound

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
)

// A Lock is the right of one session of this process to run an instance. The inbox passes the
// instance's messages to the holder of the lock.
type Lock struct {
	inbox      *Inbox
	slot       *slot
	InstanceID string
	Partition  *Partition

	// Owned by the goroutine of the session.
	Loaded  *instances.Instance
	Current []*inflight.Delivery // delivered, and neither committed nor abandoned
	Failed  bool                 // Loaded may differ from the stored instance

	mu        sync.Mutex // protects the following
	execution string
}

// ExecutionID returns the ID of the execution that the session runs.
func (l *Lock) ExecutionID() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.execution
}

// SetExecution sets the ID of the execution that the session runs.
func (l *Lock) SetExecution(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.execution = id
}

// Await waits for more messages, for at most idle, and appends them to Current. It returns none if the
// session must end or if idle has passed. While steps of the instance run, messages for another execution do
// not end the session.
func (l *Lock) Await(ctx context.Context, idle time.Duration, stepsRun bool) ([]*inflight.Delivery, error) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		deliveries, wanted, changed := l.incoming(stepsRun)
		if wanted {
			return nil, nil
		}
		if len(deliveries) > 0 {
			disposals := l.inbox.disposer.divide(l.InstanceID, l.Loaded, l.Current, deliveries)
			disposals.apply(context.WithoutCancel(ctx))
			if l.Current = append(l.Current, disposals.deliver...); len(disposals.deliver) > 0 {
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
func (l *Lock) incoming(stepsRun bool) (deliveries []*inflight.Delivery, wanted bool, changed <-chan struct{}) {
	b, s := l.inbox, l.slot
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || len(s.batches) > 0 && !stepsRun || s.partition.CurrentReading() == nil {
		return nil, true, nil
	}
	deliveries, s.incoming = s.incoming, nil
	return deliveries, false, b.changed
}

// requeue unlocks the instance and makes its messages a new batch. The stored instance decides their
// dispositions.
func (l *Lock) requeue() {
	l.inbox.mu.Lock()
	l.slot.incoming = append(l.Current, l.slot.incoming...)
	l.inbox.mu.Unlock()
	l.Current, l.Failed = nil, true
	l.Unlock(context.Background())
}

// Unlock ends the session. Messages that arrived for it become a batch. The instance that is stored
// now decides their dispositions.
func (l *Lock) Unlock(ctx context.Context) {
	b, s := l.inbox, l.slot
	b.mu.Lock()
	incoming := s.incoming
	s.incoming, s.lock = nil, nil
	if r := s.partition.CurrentReading(); r != nil && !b.closed {
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
func (l *Lock) remember() {
	loaded := l.Loaded
	if l.Failed || loaded.ETag == "" || !loaded.Known.Started || loaded.Known.Ended != nil {
		l.inbox.instances.CachedHistories.Take(l.InstanceID)
		return
	}
	l.inbox.instances.CachedHistories.Put(l.InstanceID, loaded.History)
}
