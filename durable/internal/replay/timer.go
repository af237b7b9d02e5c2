package replay

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Long timers are split, since a message cannot be delayed for longer than a
// week. The limits are those of the Functions extension
// (AzureStorageDurabilityProvider.cs, MaximumDelayTime and
// LongRunningTimerIntervalLength).
const (
	longestTimer = 6 * 24 * time.Hour
	timerLeg     = 3 * 24 * time.Hour
)

// timers are an execution's timers that are due later than one timer can be.
type timers struct {
	x    *Execution
	long map[*Future]longTimer
}

// A longTimer is a timer in several legs. One leg is open.
type longTimer struct {
	began, due time.Time // of the whole timer
	isLast     bool      // the open leg ends the timer
}

// CreateTimer decides to be woken at the given time, and makes f complete
// then. A time that has passed completes it at once, in an episode of its own.
func (t *timers) CreateTimer(f *Future, at time.Time) {
	t.x.check("Timer")
	t.x.checkLimit()
	t.createTimer(f, history.Ticks(at))
}

// createTimer creates a timer that is due at the given time, or the next leg
// of one (the extension's DurableOrchestrationContext.cs, CreateTimer).
func (t *timers) createTimer(f *Future, due time.Time) {
	a := &CreateTimer{FireAt: due}
	isLong := due.Sub(t.x.now) > longestTimer
	if isLong {
		a.FireAt = history.Ticks(t.x.now.Add(timerLeg))
	}
	whole, hasBegun := t.long[f]
	if isLong || hasBegun {
		if !hasBegun {
			whole = longTimer{began: t.x.now, due: due}
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

// fire completes a timer, or begins its next leg.
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

// LongTimer returns the times when the whole timer of f began and when it fires. The result ok
// is false if the timer has no legs.
func (t *timers) LongTimer(f *Future) (began, due time.Time, ok bool) {
	whole, ok := t.long[f]
	return whole.began, whole.due, ok
}
