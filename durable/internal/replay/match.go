package replay

import (
	"fmt"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// kind is the kind of an action, or of a future.
type kind int

const (
	taskKind kind = iota
	timerKind
	childKind
	eventKind
	endKind
	callKind   // an event sent to an entity that answers
	lockKind   // a lock request sent to an entity
	raisedKind // not an action: a wait for an external event
	branchKind // not an action: a coroutine
)

// String returns the wording of DurableTask's messages
// (DurableTask.Core/TaskOrchestrationContext.cs).
func (k kind) String() string {
	return [...]string{
		"activity task", "timer task", "sub-orchestration task", "send event task", "completion", "entity call", "entity lock", "event", "branch",
	}[k]
}

// article returns k's words with the indefinite article.
func (k kind) article() string {
	if k == taskKind {
		return "an " + k.String()
	}
	return "a " + k.String()
}

// A NonDeterminismError reports that the code of an orchestrator does not match its history.
// The history cannot be replayed.
type NonDeterminismError struct {
	// ActionID is the number of the first action that differs, counted from 0 over the whole
	// execution.
	ActionID int
	// Recorded describes the action in the history, for example "an activity task named
	// 'Charge'". It is empty if the history has none.
	Recorded string
	// Produced describes the action of the code in the same way. It is empty if the code has none.
	Produced string

	text string
}

// Error returns DurableTask's message.
func (e *NonDeterminismError) Error() string { return e.text }

const (
	nonDeterministic = "Non-Deterministic workflow detected: "
	wasChanged       = " Was a change made to the orchestrator code after this instance had already started running?"
)

// fakeTimer is the number of the timer that DurableTask adds where it splits a large episode
// (DurableTask.Core/FrameworkConstants.cs, FakeTimerIdToSplitDecision).
const fakeTimer = -100

// recorded compares the decisions of the code with those in the history.
type recorded struct {
	x       *Execution
	closed  bool         // the last event ended an episode
	open    bool         // the last episode in the history left steps unrecorded
	split   bool         // the history splits the episode; more of its decisions follow
	nextID  int          // highest action number in the history, plus 1
	rewound map[int]bool // actions whose record was removed by a rewind

	divergence *NonDeterminismError // the first difference so far; may be nil
	divergedAt [][]uintptr          // the stacks of the code at the difference; only if the execution is traced
}

// rewind records that a rewind removed the event of an action.
func (r *recorded) rewind(id int) {
	if id < 0 {
		return
	}
	if r.rewound == nil {
		r.rewound = make(map[int]bool)
	}
	r.rewound[id] = true
}

// match compares an event that records a decision with the decision of the code. Like
// DurableTask, it compares names without regard to case, and ignores versions and inputs
// (DurableTask.Core/TaskOrchestrationContext.cs, HandleTaskScheduledEvent and its siblings).
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
	r.nextID = max(r.nextID, id+1)
	if r.x.diverged {
		// The first difference counts. The end needs a free number.
		r.x.actions.next = max(r.x.actions.next, r.nextID)
		if r.x.complete != nil {
			r.x.complete.ID = max(r.x.complete.ID, r.nextID)
		}
		return
	}
	i, a := r.x.actions.find(id), r.x.unrecordedStep(id)
	if i >= 0 {
		a = r.x.actions.pending[i]
	}
	if a == nil {
		r.diverge(&NonDeterminismError{
			ActionID: id, Recorded: named(k, name),
			text: scheduled(id, k, name, version) + "but the current replay execution hasn't (yet?) scheduled this task." + wasChanged,
		})
		return
	}
	gotKind, gotName := describeAction(a)
	if gotKind == k && strings.EqualFold(gotName, name) {
		if i >= 0 {
			r.x.actions.remove(i)
		}
		delete(r.x.actions.steps, id)
		if e, ok := e.(*history.EventSent); ok {
			r.x.matchRecorded(e)
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

// endOfEpisode checks, before the next episode starts, that the history has all decisions of
// the previous episode. DurableTask has no such check: it takes the missing actions now. The
// check skips the following cases:
//
//  1. After a crash between the batches of a checkpoint, a history can end in the middle of an
//     episode. The missing decisions are then made again.
//  2. An OrchestratorCompleted followed by more events of its episode does not end it. DurableTask
//     writes two after a continue-as-new.
//  3. While an instance is suspended, its actions wait.
//  4. A rewind removes the records of failed tasks, so that they run again.
//  5. If steps are unrecorded at the end of an episode, its OrchestratorCompleted is marked as played.
//     The check follows the next one that is not marked.
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

// endOfPast ends the replay of the history.
func (r *recorded) endOfPast() {
	r.endOfEpisode()
	r.closed = false
}

// diverge fails the execution and discards its other decisions.
func (r *recorded) diverge(err *NonDeterminismError) {
	r.x.diverged = true
	r.divergence = err
	r.divergedAt = r.stacksOf(err)
	r.x.actions.clear()
	r.x.actions.next = max(r.x.actions.next, r.nextID)
	r.x.finish(history.Failed, FailureOf(err))
	r.x.group.Close()
}

// Divergence returns the first difference between the history and the code, or nil.
func (r *recorded) Divergence() *NonDeterminismError { return r.divergence }

// stacksOf returns the stack of the code that made the differing decision. If the code made
// none, it returns the stacks of the coroutines that wait.
func (r *recorded) stacksOf(err *NonDeterminismError) [][]uintptr {
	switch {
	case !r.x.traced:
		return nil
	case err.Produced != "":
		return [][]uintptr{r.x.actions.stacks[err.ActionID]}
	}
	return r.x.ParkedStacks()
}

// DivergenceStacks returns the stacks of the code that differs from the history, in the format of
// [runtime.Callers]. It requires [Execution.TraceWaits].
func (r *recorded) DivergenceStacks() [][]uintptr { return r.divergedAt }

// scheduled returns the first half of a message about a recorded action.
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
	case *RunStep: // a recorded step is an activity
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
