package embedded

import (
	"context"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// activity is an activity that is not done. work.mu protects the fields that
// change.
type activity struct {
	number uint64 // its key
	body   []byte // its record if that is small, else nil

	// earlier counts the deliveries that may have come before this process opened
	// the hub, and deliveries those since.
	earlier    int
	deliveries int

	lock  *activityLock
	pause *alarm // set after the activity was abandoned
	// result is on its way to the orchestration. It may be unstored.
	result *message
	// done means that the result is stored or was taken.
	done bool
}

// activityLock is the lock on an activity.
type activityLock struct {
	h       *Hub
	a       *activity
	attempt int
	waiting history.OrchestrationInstance // for the result
}

var _ provider.ActivityLock = (*activityLock)(nil)

// item reads the activity and makes a work item of it.
func (l *activityLock) item() (*provider.ActivityWorkItem, error) {
	record := l.a.body
	if record == nil {
		err := l.h.read("read activity", func(t tables) error {
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
// The orchestration gets the result at once. Most often its checkpoint takes the
// result before the writer has stored it. Then Complete waits for that checkpoint,
// and the result never has a record of its own.
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
	o := l.deliver(record, result.Type())
	if o == nil {
		return nil
	}
	if err := l.h.writer.SubmitLazy(o); err != nil {
		return fmt.Errorf("complete activity: %w", err)
	}
	if err := l.h.writer.Await(ctx, o); err != nil {
		return fmt.Errorf("complete activity: %w", err)
	}
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	l.release()
	return nil
}

// deliver gives the result to the orchestration, and returns the operation that
// stores it, none if the activity is done.
func (l *activityLock) deliver(record []byte, kind history.EventType) *logstore.Op[*txn] {
	h, a := l.h, l.a
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.done {
		l.release()
		return nil
	}
	m := a.result
	if m == nil {
		m = &message{
			number:   h.numbers.Add(1),
			route:    route{kind: kind, target: l.waiting},
			body:     record,
			unstored: true,
			activity: a,
		}
		a.result = m
		h.deliver(m)
	}
	o := logstore.NewOp(func(t *txn) error {
		t.store(m)
		return nil
	})
	m.answer = func() { h.writer.Answer(o, nil) }
	return o
}

// Abandon implements [provider.ActivityLock].
func (l *activityLock) Abandon(_ context.Context, cause error) error {
	l.h.log.Debug("activity was abandoned", "instanceId", l.waiting.InstanceID, "executionId", l.waiting.ExecutionID, "error", cause)
	l.abandon(cause)
	return nil
}

func (l *activityLock) abandon(cause error) {
	h, a := l.h, l.a
	h.mu.Lock()
	defer h.mu.Unlock()
	held := a.lock == l
	l.release()
	if !held || a.done {
		return
	}
	if m := a.result; m != nil {
		if m.inFlight {
			return // an episode has the result: the activity need not run again
		}
		a.result = nil
		h.remove(m)
	}
	a.pause = h.setAlarm(h.retryAt(a.deliveries, cause), func() {
		a.pause = nil
		h.makeReady(a)
	})
}

// release releases the lock. mu is locked.
func (l *activityLock) release() {
	if l.a.lock == l {
		l.a.lock = nil
	}
	delete(l.h.locks, l)
	l.h.checkDrained()
}

// revoke takes the lock from the caller, who may still complete the activity. mu is
// locked.
func (l *activityLock) revoke() {
	l.release()
	if !l.a.done && l.a.result == nil {
		l.h.makeReady(l.a)
	}
}
