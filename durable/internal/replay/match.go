package replay

import (
	"fmt"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// kind is what an action begins.
type kind int

const (
	taskKind kind = iota
	timerKind
	childKind
	eventKind
	endKind
	callKind   // an event sent to an entity, whose answer is waited for
	lockKind   // the same, to lock entities
	raisedKind // not an action: an external event that is waited for
	branchKind // not an action: a coroutine
)

// String returns the words of DurableTask's messages
// (DurableTask.Core/TaskOrchestrationContext.cs).
func (k kind) String() string {
	return [...]string{
		"activity task", "timer task", "sub-orchestration task", "send event task", "completion", "entity call", "entity lock", "event", "branch",
	}[k]
}

// article returns k's words with an article.
func (k kind) article() string {
	if k == taskKind {
		return "an " + k.String()
	}
	return "a " + k.String()
}

// A NonDeterminismError says that an orchestrator's code does not do what it
// did before, so that its history cannot be replayed.
type NonDeterminismError struct {
	// ActionID is the number of the first action that differs, counted over all
	// actions of the execution from 0.
	ActionID int
	// Recorded is what the history has there, such as "an activity task named
	// 'Charge'"; empty if it has nothing.
	Recorded string
	// Produced is what the code did, in the same words; empty if nothing.
	Produced string

	text string
}

// Error returns DurableTask's message for the case.
func (e *NonDeterminismError) Error() string { return e.text }

const (
	nonDeterministic = "Non-Deterministic workflow detected: "
	wasChanged       = " Was a change made to the orchestrator code after this instance had already started running?"
)

// fakeTimer is the number of the timer that DurableTask puts where it splits an
// episode that is too large
// (DurableTask.Core/FrameworkConstants.cs, FakeTimerIdToSplitDecision).
const fakeTimer = -100

// recorded is what is known of how far the history has recorded decisions.
type recorded struct {
	x       *Execution
	closed  bool         // the last event seen ended an episode
	split   bool         // the episode was cut off before all was recorded
	last    int          // one more than the highest action number seen
	rewound map[int]bool // actions whose record a rewind took away

	divergence *NonDeterminismError // nil while there is none
	divergedAt [][]uintptr          // the stacks of the code that differs, if the execution is traced
}

// rewind notes that a rewind took the record of an action away.
func (r *recorded) rewind(id int) {
	if id < 0 {
		return
	}
	if r.rewound == nil {
		r.rewound = make(map[int]bool)
	}
	r.rewound[id] = true
}

// match compares an event that records a decision with what was decided. As in
// DurableTask, names are compared without regard to case, versions and inputs
// not at all (DurableTask.Core/TaskOrchestrationContext.cs,
// HandleTaskScheduledEvent and its siblings).
func (r *recorded) match(e history.Event) {
	id := e.Head().EventID
	k, name, version := describeEvent(e)
	if k == timerKind && id == fakeTimer {
		r.split = true
		return
	}
	if r.x.over {
		return
	}
	if e, ok := e.(*history.EventSent); ok {
		r.x.trackLocks(e)
	}
	r.last = max(r.last, id+1)
	if r.x.diverged {
		// The first difference counts. The end gets a number that is free.
		r.x.actions.next = max(r.x.actions.next, r.last)
		if r.x.complete != nil {
			r.x.complete.ID = max(r.x.complete.ID, r.last)
		}
		return
	}
	i := r.x.actions.find(id)
	if i < 0 {
		r.diverge(&NonDeterminismError{
			ActionID: id, Recorded: named(k, name),
			text: scheduled(id, k, name, version) + "but the current replay execution hasn't (yet?) scheduled this task." + wasChanged,
		})
		return
	}
	gotKind, gotName := describeAction(r.x.actions.pending[i])
	if gotKind == k && strings.EqualFold(gotName, name) {
		r.x.actions.remove(i)
		if e, ok := e.(*history.EventSent); ok {
			r.x.sent(e)
		}
		return
	}
	verb := "scheduled "
	if gotKind != k {
		verb = "produced "
	}
	err := &NonDeterminismError{ActionID: id, Recorded: named(k, name), Produced: named(gotKind, gotName)}
	err.text = scheduled(id, k, name, version) + "but the current orchestration replay instead " + verb + err.Produced +
		" with this sequence number." + wasChanged
	r.diverge(err)
}

// endOfEpisode is called when an episode begins: whatever the one before
// decided must have been recorded, if the one before was recorded to its end.
//
//  1. A history can end in the middle of an episode, after a crash between the
//     batches of its checkpoint. What is missing then is decided anew.
//  2. An OrchestratorCompleted that is followed by more of its episode closes
//     nothing: DurableTask writes two after a continue-as-new.
//  3. While an instance is suspended, its actions wait.
//  4. A rewind takes records of failed tasks away, so that they run again.
//
// DurableTask itself does not look, and does now what should have been done
// then.
func (r *recorded) endOfEpisode() {
	if !r.x.replaying || !r.closed {
		return
	}
	split := r.split
	r.split = false
	if split || r.x.suspended || r.x.deferredEnd || r.x.over || r.x.diverged {
		return
	}
	a := r.x.actions.first(func(id int) bool { return r.rewound[id] })
	if a == nil {
		return
	}
	k, name := describeAction(a)
	err := &NonDeterminismError{ActionID: a.ActionID(), Produced: named(k, name)}
	err.text = nonDeterministic + fmt.Sprintf(
		"The current orchestration replay produced %s with sequence ID %d, which no previous execution of this orchestration did.",
		err.Produced, err.ActionID) + wasChanged
	r.diverge(err)
}

// endOfPast is called when the whole history was shown.
func (r *recorded) endOfPast() {
	r.endOfEpisode()
	r.closed = false
}

// diverge fails the execution: nothing else that it decided counts.
func (r *recorded) diverge(err *NonDeterminismError) {
	r.x.diverged = true
	r.divergence = err
	r.divergedAt = r.stacksOf(err)
	r.x.actions.clear()
	r.x.actions.next = max(r.x.actions.next, r.last)
	r.x.finish(history.Failed, FailureOf(err))
	r.x.group.Close()
}

// Divergence returns the first difference between the history and what the
// orchestrator did, nil if there is none.
func (r *recorded) Divergence() *NonDeterminismError { return r.divergence }

// stacksOf returns the stack of the code that made the decision which differs. If the code made
// no decision, it returns the stacks of the code that waits.
func (r *recorded) stacksOf(err *NonDeterminismError) [][]uintptr {
	switch {
	case !r.x.traced:
		return nil
	case err.Produced != "":
		return [][]uintptr{r.x.actions.stacks[err.ActionID]}
	}
	return r.x.Parked()
}

// DivergedAt returns the stacks of the code that differs from the history, as
// [runtime.Callers] does, if [Execution.TraceWaits] was called.
func (r *recorded) DivergedAt() [][]uintptr { return r.divergedAt }

// scheduled returns the first half of the message about a record.
func scheduled(id int, k kind, name, version string) string {
	s := nonDeterministic + "A previous execution of this orchestration scheduled " + k.article() + fmt.Sprintf(" with sequence ID %d", id)
	if k != timerKind {
		s += fmt.Sprintf(" and name '%s'", name)
	}
	if k == taskKind || k == childKind {
		s += fmt.Sprintf(" (version '%s')", version)
	}
	return s + ", "
}

func named(k kind, name string) string {
	switch k {
	case timerKind:
		return k.article()
	case endKind:
		return "the orchestration's " + k.String()
	default:
		return k.article() + " named '" + name + "'"
	}
}

func describeEvent(e history.Event) (k kind, name, version string) {
	switch e := e.(type) {
	case *history.TaskScheduled:
		return taskKind, e.Name, e.Version
	case *history.SubOrchestrationInstanceCreated:
		return childKind, e.Name, e.Version
	case *history.EventSent:
		return eventKind, e.Name, ""
	default:
		return timerKind, "", ""
	}
}

func describeAction(a Action) (k kind, name string) {
	switch a := a.(type) {
	case *ScheduleTask:
		return taskKind, a.Name
	case *CreateSubOrchestration:
		return childKind, a.Name
	case *SendEvent:
		return eventKind, a.Name
	case *CreateTimer:
		return timerKind, ""
	default:
		return endKind, ""
	}
}
