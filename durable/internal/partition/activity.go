package partition

import (
	"context"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// activity is a pending activity. work.mu protects the fields that change.
type activity struct {
	number uint64 // its key
	body   []byte // its record if at most maxInMemory bytes; nil if larger, and after Open

	// earlier counts the deliveries before this process opened the hub, and may be too high.
	// deliveries counts the deliveries since.
	earlier    int
	deliveries int

	since time.Time // when it last became ready
	lock  *activityLock
	pause *alarm // set while an abandoned activity waits for its retry
	// result is in its orchestration's inbox or in flight. It may be unstored.
	result *message
	// done means that the result is durable, or that the activity is being moved to another
	// partition.
	done bool
}

// isReady reports whether the activity can be dispatched. work.mu is locked.
func (a *activity) isReady() bool {
	return !a.done && a.result == nil && a.lock == nil && a.pause == nil
}

// activityLock is the lock on an activity.
type activityLock struct {
	p       *Partition
	a       *activity
	attempt int
	waiting history.OrchestrationInstance // receives the result
}

var _ provider.ActivityLock = (*activityLock)(nil)

// item reads the activity and returns its work item.
func (l *activityLock) item() (*provider.ActivityWorkItem, error) {
	record := l.a.body
	if record == nil {
		err := l.p.read("read activity", func(t tables) error {
			b, err := t.Must(activitiesTable, logstore.NumberKey(l.a.number))
			record = append([]byte(nil), b...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	_, b, err := decodeActivityHead(record)
	if err != nil {
		return nil, err
	}
	m, err := decodeMessage(b)
	if err != nil {
		return nil, err
	}
	task, ok := m.Event.(*history.TaskScheduled)
	if !ok {
		return nil, fmt.Errorf("activity is a %T; want a *history.TaskScheduled", m.Event)
	}
	l.waiting = m.Target
	return &provider.ActivityWorkItem{Instance: m.Target, Task: task, Attempt: l.attempt, Lock: l}, nil
}

// Complete implements [provider.ActivityLock].
//
// Complete delivers the result to the orchestration immediately. Usually the orchestration's
// checkpoint consumes the result before the writer has stored it. Complete then waits for that
// checkpoint, and the result never gets a record of its own.
func (l *activityLock) Complete(ctx context.Context, result history.Event) error {
	switch result.(type) {
	case *history.TaskCompleted, *history.TaskFailed:
	default:
		return fmt.Errorf("complete activity: its result is a %T; want a *history.TaskCompleted or *history.TaskFailed", result)
	}
	msg := provider.TaskMessage{Event: result, Target: l.waiting}
	record, err := encodeMessage(msg)
	if err != nil {
		return fmt.Errorf("complete activity: %w", err)
	}
	if !l.p.cfg.Owns(l.waiting.InstanceID) {
		return l.post(ctx, record, msg)
	}
	o := l.deliver(record, result.Type())
	if o == nil {
		return nil
	}
	if err := l.p.writer.SubmitLazy(o); err != nil {
		return fmt.Errorf("complete activity: %w", err)
	}
	if err := l.p.writer.Await(ctx, o); err != nil {
		return fmt.Errorf("complete activity: %w", err)
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.release()
	return nil
}

// post stores the result as a message for an instance of another partition.
func (l *activityLock) post(ctx context.Context, record []byte, msg provider.TaskMessage) error {
	p, a := l.p, l.a
	err := p.writer.Do(ctx, func(t *txn) error {
		p.mu.Lock()
		done := a.done
		p.mu.Unlock()
		if done {
			return nil
		}
		t.Remove(activitiesTable, logstore.NumberKey(a.number))
		t.post(record, msg)
		t.AfterCommit(func() { p.finish(a) })
		return nil
	})
	if err != nil {
		return fmt.Errorf("complete activity: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l.release()
	return nil
}

// deliver delivers the result to the orchestration. It returns the operation that stores the
// result, or nil if the activity is done.
func (l *activityLock) deliver(record []byte, kind history.EventType) *logstore.Op[*txn] {
	p, a := l.p, l.a
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.done {
		l.release()
		return nil
	}
	m := a.result
	if m == nil {
		m = &message{
			number:   p.numbers.Add(1),
			size:     len(record),
			route:    route{kind: kind, target: l.waiting},
			body:     record,
			unstored: true,
			activity: a,
		}
		a.result = m
		p.deliver(m)
	}
	o := logstore.NewOp(func(t *txn) error {
		t.store(m)
		return nil
	})
	m.answer = func() { p.writer.Complete(o, nil) }
	return o
}

// Abandon implements [provider.ActivityLock].
func (l *activityLock) Abandon(_ context.Context, cause error) error {
	l.p.cfg.Logger.Debug("activity was abandoned", "instanceId", l.waiting.InstanceID, "executionId", l.waiting.ExecutionID, "error", cause)
	l.abandon(cause)
	return nil
}

func (l *activityLock) abandon(cause error) {
	p, a := l.p, l.a
	p.mu.Lock()
	defer p.mu.Unlock()
	held := a.lock == l
	l.release()
	if !held || a.done {
		return
	}
	if m := a.result; m != nil {
		if m.inFlight {
			return // an episode consumes the result; do not run the activity again
		}
		a.result = nil
		p.remove(m)
	}
	a.pause = p.setAlarm(p.retryAt(a.deliveries, cause), func() {
		a.pause = nil
		p.makeReady(a)
	})
}

// release releases the lock. mu is locked.
func (l *activityLock) release() {
	if l.a.lock == l {
		l.a.lock = nil
	}
	delete(l.p.locks, l)
	l.p.checkDrained()
}

// revoke takes the lock away from the caller, who may still complete the activity. mu is locked.
func (l *activityLock) revoke() {
	l.release()
	if !l.a.done && l.a.result == nil {
		l.p.makeReady(l.a)
	}
}
