package replay

import (
	"runtime"
	"slices"
)

// actions are what was decided and is not recorded yet.
type actions struct {
	x       *Execution
	next    int      // the number of the next one
	pending []Action // in order of their numbers, from head on; nil where one was matched
	head    int
	stacks  map[int][]uintptr // of the code that decided on pending actions, if the execution is traced
}

// add numbers a, whose ID is at id, and keeps it.
func (s *actions) add(a Action, id *int) {
	*id = s.next
	if s.x.traced {
		if s.stacks == nil {
			s.stacks = make(map[int][]uintptr)
		}
		stack := make([]uintptr, 64)
		s.stacks[s.next] = stack[:runtime.Callers(2, stack)]
	}
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
	delete(s.stacks, s.pending[i].ActionID())
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

func (s *actions) clear() {
	s.pending, s.head = nil, 0
	clear(s.stacks)
}

// take returns all pending actions, which are pending no longer.
func (s *actions) take() []Action {
	taken := slices.DeleteFunc(s.pending[s.head:], func(a Action) bool { return a == nil })
	s.clear()
	if len(taken) == 0 {
		return nil
	}
	return taken
}

// ScheduleTask decides to run an activity, and makes f its result. The activity
// gets the version of the instance.
func (s *actions) ScheduleTask(f *Future, name string, input *string) {
	s.x.check("CallActivity")
	s.scheduleTask(f, &ScheduleTask{Name: name, Version: s.x.version(), Input: input})
}

// ScheduleTaskAs is ScheduleTask with all that can be said of an activity. It
// gives a its ID.
func (s *actions) ScheduleTaskAs(f *Future, a *ScheduleTask) {
	s.x.check("CallActivity")
	s.scheduleTask(f, a)
}

func (s *actions) scheduleTask(f *Future, a *ScheduleTask) {
	s.x.checkLimit()
	s.add(a, &a.ID)
	s.x.track(f, a.ID, taskKind, a.Name)
}

// CreateSubOrchestration decides to start a child, and makes f its result. If
// instanceID is empty, the child's follows from the parent's execution ID.
func (s *actions) CreateSubOrchestration(f *Future, name, instanceID string, input *string) {
	s.CreateSubOrchestrationAs(f, &CreateSubOrchestration{Name: name, InstanceID: instanceID, Input: input})
}

// CreateSubOrchestrationAs is CreateSubOrchestration with all that can be said
// of a child. It gives a its ID.
func (s *actions) CreateSubOrchestrationAs(f *Future, a *CreateSubOrchestration) {
	s.x.check("CallSubOrchestrator")
	s.x.checkChild()
	s.x.checkLimit()
	s.add(a, &a.ID)
	s.x.track(f, a.ID, childKind, a.Name)
}

// StartOrchestration decides to start a child without waiting for it.
func (s *actions) StartOrchestration(a *CreateSubOrchestration) {
	s.x.check("CallSubOrchestrator")
	s.x.checkChild()
	s.x.checkLimit()
	s.add(a, &a.ID)
}

// SendEvent decides to raise an event on another instance.
func (s *actions) SendEvent(instanceID, name string, input *string) {
	s.x.check("RaiseFrom")
	s.x.checkLimit()
	a := &SendEvent{InstanceID: instanceID, Name: name, Input: input}
	s.add(a, &a.ID)
}
