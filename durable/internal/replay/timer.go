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
	legs map[*Future]time.Time // when they are due
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
	if due.Sub(t.x.now) > longestTimer {
		a.FireAt = history.Ticks(t.x.now.Add(timerLeg))
		if t.legs == nil {
			t.legs = make(map[*Future]time.Time)
		}
		t.legs[f] = due
	} else {
		delete(t.legs, f)
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
	if due, ok := t.legs[f]; ok && t.x.now.Before(due) {
		t.createTimer(f, due)
		return
	}
	delete(t.legs, f)
	f.complete(e)
}
