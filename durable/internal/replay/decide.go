package replay

import (
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// ScheduleTask decides to run an activity, and makes f its result. The activity
// gets the version of the instance.
func (x *Execution) ScheduleTask(f *Future, name string, input *string) {
	x.check("CallActivity")
	x.scheduleTask(f, &ScheduleTask{Name: name, Version: x.version(), Input: input})
}

// ScheduleTaskAs is ScheduleTask with all that can be said of an activity. It
// gives a its ID.
func (x *Execution) ScheduleTaskAs(f *Future, a *ScheduleTask) {
	x.check("CallActivity")
	x.scheduleTask(f, a)
}

func (x *Execution) scheduleTask(f *Future, a *ScheduleTask) {
	x.checkLimit()
	x.actions.add(a, &a.ID)
	x.track(f, a.ID, taskKind, a.Name)
}

// CreateSubOrchestration decides to start a child, and makes f its result. If
// instanceID is empty, the child's follows from the parent's execution ID.
func (x *Execution) CreateSubOrchestration(f *Future, name, instanceID string, input *string) {
	x.CreateSubOrchestrationAs(f, &CreateSubOrchestration{Name: name, InstanceID: instanceID, Input: input})
}

// CreateSubOrchestrationAs is CreateSubOrchestration with all that can be said
// of a child. It gives a its ID.
func (x *Execution) CreateSubOrchestrationAs(f *Future, a *CreateSubOrchestration) {
	x.check("CallSubOrchestrator")
	x.checkChild()
	x.checkLimit()
	x.actions.add(a, &a.ID)
	x.track(f, a.ID, childKind, a.Name)
}

// StartOrchestration decides to start a child that nobody waits for.
func (x *Execution) StartOrchestration(a *CreateSubOrchestration) {
	x.check("CallSubOrchestrator")
	x.checkChild()
	x.checkLimit()
	x.actions.add(a, &a.ID)
}

// SendEvent decides to raise an event on another instance.
func (x *Execution) SendEvent(instanceID, name string, input *string) {
	x.check("Send")
	x.checkLimit()
	a := &SendEvent{InstanceID: instanceID, Name: name, Input: input}
	x.actions.add(a, &a.ID)
}

// Long timers are split, since a message cannot be delayed for longer than a
// week. The limits are those of the Functions extension
// (AzureStorageDurabilityProvider.cs, MaximumDelayTime and
// LongRunningTimerIntervalLength).
const (
	longestTimer = 6 * 24 * time.Hour
	timerLeg     = 3 * 24 * time.Hour
)

// CreateTimer decides to be woken at the given time, and makes f complete
// then. A time that has passed completes it at once, in an episode of its own.
func (x *Execution) CreateTimer(f *Future, at time.Time) {
	x.check("Timer")
	x.checkLimit()
	x.createTimer(f, history.Ticks(at))
}

// createTimer creates a timer that is due at the given time, or the next leg
// of one (the extension's DurableOrchestrationContext.cs, CreateTimer).
func (x *Execution) createTimer(f *Future, due time.Time) {
	a := &CreateTimer{FireAt: due}
	if due.Sub(x.now) > longestTimer {
		a.FireAt = history.Ticks(x.now.Add(timerLeg))
		if x.legs == nil {
			x.legs = make(map[*Future]time.Time)
		}
		x.legs[f] = due
	} else {
		delete(x.legs, f)
	}
	x.actions.add(a, &a.ID)
	x.track(f, a.ID, timerKind, "")
}

// fire completes a timer, or begins its next leg.
func (x *Execution) fire(e *history.TimerFired) {
	f := x.open.remove(e.TimerID, timerKind)
	if f == nil {
		return
	}
	if due, ok := x.legs[f]; ok && x.now.Before(due) {
		x.createTimer(f, due)
		return
	}
	delete(x.legs, f)
	f.complete(e)
}

func (x *Execution) track(f *Future, id int, k kind, name string) {
	f.x, f.id, f.kind, f.name = x, id, k, name
	x.open.add(id, f)
}

// actions are what was decided and is not recorded yet.
type actions struct {
	next    int      // the number of the next one
	pending []Action // in order of their numbers, from head on; nil where one was matched
	head    int
}

// add numbers a, whose ID is at id, and keeps it.
func (s *actions) add(a Action, id *int) {
	*id = s.next
	s.next++
	s.pending = append(s.pending, a)
}

// find returns the place of the pending action with the given number, or -1.
func (s *actions) find(id int) int {
	// Numbers are given without gaps, and pending keeps the place of those that
	// were matched out of order.
	i := len(s.pending) - (s.next - id)
	if i < s.head || i >= len(s.pending) || s.pending[i] == nil || s.pending[i].ActionID() != id {
		return -1
	}
	return i
}

// remove takes out the pending action at place i.
func (s *actions) remove(i int) {
	s.pending[i] = nil
	for s.head < len(s.pending) && s.pending[s.head] == nil {
		s.head++
	}
	if s.head == len(s.pending) {
		s.pending, s.head = s.pending[:0], 0
	}
}

// drop takes a out, if it is pending.
func (s *actions) drop(a Action) {
	if i := s.find(a.ActionID()); i >= 0 && s.pending[i] == a {
		s.remove(i)
	}
}

// first returns the first pending action for which no is false, or nil.
func (s *actions) first(no func(id int) bool) Action {
	for _, a := range s.pending[s.head:] {
		if a != nil && !no(a.ActionID()) {
			return a
		}
	}
	return nil
}

func (s *actions) clear() { s.pending, s.head = nil, 0 }

// take returns all pending actions, which are pending no longer.
func (s *actions) take() []Action {
	taken := slices.DeleteFunc(s.pending[s.head:], func(a Action) bool { return a == nil })
	s.clear()
	if len(taken) == 0 {
		return nil
	}
	return taken
}
