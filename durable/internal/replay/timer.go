package replay

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Timers that are due in more than longestTimer are split into legs of timerLeg. A queue
// message can be delayed by at most a week. The Functions extension has the same values
// (AzureStorageDurabilityProvider.cs, MaximumDelayTime and LongRunningTimerIntervalLength).
const (
	longestTimer = 6 * 24 * time.Hour
	timerLeg     = 3 * 24 * time.Hour
)

// timers creates timers, and splits those that are due later than a single timer allows.
type timers struct {
	x    *Execution
	long map[*Future]longTimer
}

// A longTimer is a timer with several legs. One leg is open.
type longTimer struct {
	created, due time.Time // of the timer as a whole
	isLast       bool      // the open leg is the last
}

// CreateTimer creates a timer that is due at the given time, and ties f to it. If the time has
// passed, the timer fires at once, in an episode of its own.
func (t *timers) CreateTimer(f *Future, at time.Time) {
	t.x.check("Timer")
	t.x.checkLimit()
	t.createTimer(f, history.TruncateToTicks(at))
}

// createTimer creates a timer or its next leg (the extension's DurableOrchestrationContext.cs,
// CreateTimer).
func (t *timers) createTimer(f *Future, due time.Time) {
	a := &CreateTimer{FireAt: due}
	isLong := due.Sub(t.x.now) > longestTimer
	if isLong {
		a.FireAt = history.TruncateToTicks(t.x.now.Add(timerLeg))
	}
	whole, started := t.long[f]
	if isLong || started {
		if !started {
			whole = longTimer{created: t.x.now, due: due}
		}
		if t.long == nil {
			t.long = make(map[*Future]longTimer)
		}
		whole.isLast = !isLong
		t.long[f] = whole
	}
	t.x.actions.add(a, &a.ID)
	t.x.track(f, a.ID, timerKind, "")
}

// fire completes a timer or starts its next leg.
func (t *timers) fire(e *history.TimerFired) {
	f := t.x.open.remove(e.TimerID, timerKind)
	if f == nil {
		return
	}
	if whole, ok := t.long[f]; ok && !whole.isLast && t.x.now.Before(whole.due) {
		t.createTimer(f, whole.due)
		return
	}
	delete(t.long, f)
	f.complete(e)
}

// LongTimer returns when the timer of f was created and when it is due, over all legs. It
// returns ok == false if the timer has no legs.
func (t *timers) LongTimer(f *Future) (created, due time.Time, ok bool) {
	whole, ok := t.long[f]
	return whole.created, whole.due, ok
}
