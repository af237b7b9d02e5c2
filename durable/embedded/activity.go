package embedded

import (
	"context"
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An activity is one that has not been completed. What is not immutable is
// protected by Hub.mu.
type activity struct {
	number uint64 // its key
	body   []byte // its record if that is small, else nil

	// earlier counts the deliveries that may have come before this process
	// opened the hub, and deliveries those since.
	earlier    int
	deliveries int

	lock  *activityLock // of who runs it
	pause *alarm        // set after it was abandoned
	// result is on its way to the orchestration. It may be that it could not be
	// stored.
	result *message
	// done says that the activity is not needed any more.
	done bool
}

// addActivity stores an activity that is to be run.
func (t *txn) addActivity(message []byte) {
	record := encodeActivity(activityHead{crashes: t.h.file.Crashes}, message)
	a := &activity{number: t.h.numbers.Add(1), body: keep(record)}
	t.Put(activitiesTable, logstore.NumberKey(a.number), record)
	t.Then(func() { t.h.offer(a) })
}

// offer lets an activity be handed out. mu is locked.
func (h *Hub) offer(a *activity) {
	h.readyActivities.push(a)
	post(h.activityReady)
}

// NextActivity implements [provider.Worker].
func (h *Hub) NextActivity(ctx context.Context) (*provider.ActivityWorkItem, error) {
	for {
		l, err := h.takeActivity(ctx)
		if err != nil {
			return nil, err
		}
		item, err := l.item()
		if err != nil {
			h.log.Error("activity cannot be read; it is held back", "activity", l.a.number, "error", err)
			l.abandon(nil)
			if errors.Is(err, ErrClosed) {
				return nil, err
			}
			continue
		}
		return item, nil
	}
}

// takeActivity waits for an activity that is ready, and locks it.
func (h *Hub) takeActivity(ctx context.Context) (*activityLock, error) {
	for {
		if err := ctx.Err(); err != nil {
			post(h.activityReady) // it may have taken the token of another who waits
			return nil, err
		}
		h.mu.Lock()
		if h.closed {
			h.mu.Unlock()
			return nil, ErrClosed
		}
		for h.serves() && h.readyActivities.len() > 0 {
			a := h.readyActivities.pop()
			if a.done || a.result != nil || a.lock != nil {
				continue
			}
			a.deliveries++
			l := &activityLock{h: h, a: a, attempt: a.earlier + a.deliveries}
			a.lock = l
			h.locks[l] = struct{}{}
			h.delivered[a] = struct{}{}
			if h.readyActivities.len() > 0 {
				post(h.activityReady) // for the next who waits
			}
			h.mu.Unlock()
			return l, nil
		}
		h.mu.Unlock()
		select {
		case <-h.activityReady:
		case <-h.closing:
		case <-ctx.Done():
		}
	}
}

// An activityLock is an activity in a caller's hands.
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
		return nil, fmt.Errorf("activity is a %T", m.Event)
	}
	l.waiting = m.Target
	return &provider.ActivityWorkItem{Instance: m.Target, Task: task, Attempt: l.attempt, Lock: l}, nil
}

// Complete implements [provider.ActivityLock].
//
// The result is at once visible to the orchestration. Mostly it takes it
// before the hub has come to store it; then the checkpoint that took it is what
// Complete waits for, and the result is never stored by itself.
func (l *activityLock) Complete(ctx context.Context, result history.Event) error {
	switch result.(type) {
	case *history.TaskCompleted, *history.TaskFailed:
	default:
		return fmt.Errorf("complete activity: its result is a %T", result)
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
	l.settled()
	return nil
}

// deliver gives the result to the orchestration, and returns the operation
// that stores it; none if the activity is done.
func (l *activityLock) deliver(record []byte, kind history.EventType) *logstore.Op[*txn] {
	h, a := l.h, l.a
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.done {
		l.settle()
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
	m.persist = o
	return o
}

// store gives a result a record of its own, in the place of its activity's.
func (t *txn) store(m *message) {
	t.h.mu.Lock()
	done := m.gone || !m.unstored
	t.h.mu.Unlock()
	if _, consumed := t.consumed[m]; done || consumed {
		return
	}
	t.Remove(m.place())
	t.Put(messagesTable, logstore.NumberKey(m.number), m.body)
	if t.stored == nil {
		t.stored = make(map[*message]struct{})
	}
	t.stored[m] = struct{}{}
	t.Then(func() {
		m.unstored = false
		if !m.taken { // else it is just being read
			m.body = keep(m.body)
		}
		t.h.activityDone(m.activity)
	})
}

// activityDone forgets an activity whose result is stored or was taken. mu is
// locked.
func (h *Hub) activityDone(a *activity) {
	a.done = true
	h.stopAlarm(a.pause)
	delete(h.delivered, a)
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
	l.settle()
	if !held || a.done {
		return
	}
	if m := a.result; m != nil {
		if m.taken {
			return // an episode has the result: the activity need not run again
		}
		a.result = nil
		h.withdraw(m)
	}
	a.pause = h.setAlarm(h.againAt(a.deliveries, cause), func() {
		a.pause = nil
		h.offer(a)
	})
}

// settled notes that the caller is through with the activity.
func (l *activityLock) settled() {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	l.settle()
}

// settle is settled with mu locked.
func (l *activityLock) settle() {
	if l.a.lock == l {
		l.a.lock = nil
	}
	delete(l.h.locks, l)
	l.h.checkDrained()
}

// lose takes the activity away from its caller, to be handed out again. The
// caller may still complete it. mu is locked.
func (l *activityLock) lose() {
	l.settle()
	if !l.a.done && l.a.result == nil {
		l.h.offer(l.a)
	}
}
