package replay

import (
	"runtime"
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// actions numbers the decisions of the orchestrator and holds those that no event records yet.
type actions struct {
	x       *Execution
	next    int      // the number of the next action
	pending []Action // from head on, in order of their numbers; nil where an action was removed
	head    int
	stacks  map[int][]uintptr // of the code that made each pending decision; only if the execution is traced
	// steps holds the steps that were passed to the caller, by number. No event records them yet.
	steps map[int]*RunStep
	// started holds the numbers of the steps whose start is recorded and whose end is not.
	started map[int]bool
}

// add assigns the next number to a, stores it in *id, and makes a pending.
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

// find returns the index in pending of the action with the given number, or -1.
func (s *actions) find(id int) int {
	// Numbers have no gaps, and removed actions leave a nil in pending.
	i := len(s.pending) - (s.next - id)
	if i < s.head || i >= len(s.pending) || s.pending[i] == nil || s.pending[i].ActionID() != id {
		return -1
	}
	return i
}

// remove removes the pending action at index i.
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

// drop removes a if it is pending.
func (s *actions) drop(a Action) {
	if i := s.find(a.ActionID()); i >= 0 && s.pending[i] == a {
		s.remove(i)
	}
}

// first returns the first pending action for which skip is false, or nil.
func (s *actions) first(skip func(id int) bool) Action {
	for _, a := range s.pending[s.head:] {
		if a != nil && !skip(a.ActionID()) {
			return a
		}
	}
	return nil
}

func (s *actions) clear() {
	s.pending, s.head = nil, 0
	clear(s.stacks)
}

// keepReleases removes all pending actions except the releases of locks.
func (s *actions) keepReleases() {
	for i, a := range s.pending {
		e, isEvent := a.(*SendEvent)
		if isRelease := isEvent && entity.IsRelease(e.Name) && history.IsEntity(e.InstanceID); a != nil && !isRelease {
			s.remove(i)
		}
	}
}

// take returns all pending actions and clears the list. Actions to record and steps to run are
// separate lists. The steps stay unrecorded.
func (s *actions) take() (record []Action, run []*RunStep) {
	for _, a := range s.pending[s.head:] {
		step, isStep := a.(*RunStep)
		if isStep {
			run = append(run, step)
		}
		switch {
		case a == nil:
		case !isStep:
			record = append(record, a)
		default:
			if s.steps == nil {
				s.steps = make(map[int]*RunStep)
			}
			s.steps[step.ID] = step
		}
	}
	s.clear()
	return record, run
}

// recordStart records the start of a step, if e does. After a rewind, which removes the record of the
// step, the start does not count.
func (s *actions) recordStart(e *history.GenericEvent) {
	if id, ok := history.StepStartOf(e); ok && s.UnrecordedStep(id) == nil {
		if s.started == nil {
			s.started = make(map[int]bool)
		}
		s.started[id] = true
	}
}

// recordEnd records the end of a step, if e does.
func (s *actions) recordEnd(e history.Event) {
	if id, ok := history.Completes(e); ok {
		delete(s.started, id)
	}
}

// unrecordedStep returns the unrecorded step with the given number, or nil.
func (s *actions) unrecordedStep(id int) Action {
	if step := s.steps[id]; step != nil {
		return step
	}
	return nil
}

// UnrecordedStep returns the step with the given number that the code has decided and that no event
// records, or nil. It finds a step whose start waits for the end of a suspension, too.
func (s *actions) UnrecordedStep(id int) *RunStep {
	a := s.unrecordedStep(id)
	if i := s.find(id); i >= 0 {
		a = s.pending[i]
	}
	step, _ := a.(*RunStep)
	return step
}

// HasUnrecordedSteps reports whether the code has decided steps that no event records. If the code is
// missing or does not match the history, the last recorded episode tells.
func (s *actions) HasUnrecordedSteps() bool {
	if s.x.diverged {
		return s.x.recorded.open
	}
	return len(s.steps) > 0 || slices.ContainsFunc(s.pending[s.head:], func(a Action) bool {
		_, isStep := a.(*RunStep)
		return isStep
	})
}

// HasOpenSteps reports whether the code has decided steps whose end no event records. No message
// announces their results.
func (s *actions) HasOpenSteps() bool { return len(s.started) > 0 || s.HasUnrecordedSteps() }

// OpenSteps returns the number of these steps. The code must match the history.
func (s *actions) OpenSteps() int {
	n := len(s.started) + len(s.steps)
	for _, a := range s.pending[s.head:] {
		if _, isStep := a.(*RunStep); isStep {
			n++
		}
	}
	return n
}

// RunStep decides a step with the version of the instance, and ties f to its result. It sets
// a.ID, a.Version, a.DecidedAt and, for a first attempt, a.First.
func (s *actions) RunStep(f *Future, a *RunStep) {
	if a.Poll != nil {
		s.x.check("Poll")
	} else {
		s.x.check("Step")
	}
	s.x.checkLimit()
	a.Version, a.DecidedAt = s.x.version(), s.x.now
	s.add(a, &a.ID)
	if a.Attempt == 1 {
		a.First = a.ID
	}
	s.x.track(f, a.ID, taskKind, a.Name)
	f.isStep = true
}

// ScheduleTask schedules an activity with the version of the instance, and ties f to its
// result.
func (s *actions) ScheduleTask(f *Future, name string, input *string) {
	s.x.check("CallActivity")
	s.scheduleTask(f, &ScheduleTask{Name: name, Version: s.x.version(), Input: input})
}

// ScheduleTaskWith is [actions.ScheduleTask] with all fields of an activity. It sets a.ID.
func (s *actions) ScheduleTaskWith(f *Future, a *ScheduleTask) {
	s.x.check("CallActivity")
	s.scheduleTask(f, a)
}

func (s *actions) scheduleTask(f *Future, a *ScheduleTask) {
	s.x.checkLimit()
	s.add(a, &a.ID)
	s.x.track(f, a.ID, taskKind, a.Name)
}

// CreateSubOrchestration starts a child, and ties f to its result. If instanceID is empty, the
// child's ID is derived from the parent's execution ID.
func (s *actions) CreateSubOrchestration(f *Future, name, instanceID string, input *string) {
	s.CreateSubOrchestrationWith(f, &CreateSubOrchestration{Name: name, InstanceID: instanceID, Input: input})
}

// CreateSubOrchestrationWith is [actions.CreateSubOrchestration] with all fields of a child.
// It sets a.ID.
func (s *actions) CreateSubOrchestrationWith(f *Future, a *CreateSubOrchestration) {
	s.x.check("CallSubOrchestrator")
	s.x.checkChild()
	s.x.checkLimit()
	s.add(a, &a.ID)
	s.x.track(f, a.ID, childKind, a.Name)
}

// StartOrchestration starts a child without waiting for its result.
func (s *actions) StartOrchestration(a *CreateSubOrchestration) {
	s.x.check("CallSubOrchestrator")
	s.x.checkChild()
	s.x.checkLimit()
	s.add(a, &a.ID)
}

// SendEvent raises an event on another instance.
func (s *actions) SendEvent(instanceID, name string, input *string) {
	s.x.check("RaiseFrom")
	s.x.checkLimit()
	a := &SendEvent{InstanceID: instanceID, Name: name, Input: input}
	s.add(a, &a.ID)
}
