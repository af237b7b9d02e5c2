package instances

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/tracking"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// History is the stored history of one execution.
type History struct {
	ExecutionID string
	Events      []history.Event
	Known       *KnownEvents
	ETag        string   // of the sentinel; empty if the history has no sentinel
	Blobs       []string // blobs with columns of the rows
	bytes       int      // approximate size of the rows
	Tracked     tracking.State
	Current     Generation
	Batches     string // committed batches of an entity, see [wire.EntityBatches]
	Run         string // mark of this process's batches of the entity since the load; empty without batches
}

// Generation is the execution that the sentinel of a history names.
type Generation struct {
	ExecutionID string
	First       string // the first execution of its generations; empty if this is the first
}

// First returns the first execution of the stored execution's generations. It is empty if the stored
// execution is itself the first, or has no history.
func (s *History) First() string {
	if s.Current.ExecutionID != s.ExecutionID {
		return ""
	}
	return s.Current.First
}

// HasContinued reports whether executionID is the first execution of the current generations, and has
// continued as new.
func (s *History) HasContinued(executionID string) bool {
	return executionID != "" && executionID == s.Current.First && executionID != s.Current.ExecutionID
}

// Unsent returns the tracking rows that may not have been sent, and marks them as sent.
func (s *History) Unsent(instanceID string) ([]wire.Row, error) {
	return s.Tracked.Unsent(history.OrchestrationInstance{InstanceID: instanceID, ExecutionID: s.ExecutionID}, s.Events)
}

// currentExecution selects the event rows of the wanted execution, or of the current execution if
// wanted is empty. rows are all rows of an instance, ordered by key. Rows of an older and longer
// execution may follow the current ones; they are leftovers and ignored. Without a sentinel all rows are
// leftovers of an interrupted purge, because each transaction of a checkpoint writes the sentinel. .NET
// runs such rows again (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// GetHistoryEventsAsync).
func currentExecution(rows []*wire.HistoryRow, wanted string) ([]*wire.HistoryRow, History) {
	stored := History{ExecutionID: wanted, Known: NewKnownEvents()}
	var sentinel *wire.HistoryRow
	for _, row := range rows {
		if row.IsSentinel() {
			sentinel = row
		}
	}
	if sentinel == nil {
		return nil, stored
	}
	stored.ETag, stored.Current.ExecutionID = sentinel.ETag(), sentinel.ExecutionID
	if sentinel.Columns != nil {
		stored.Tracked.Column, stored.Current.First = sentinel.Columns.Tracking, sentinel.Columns.FirstExecutionID
		stored.Batches = sentinel.Columns.EntityBatches
	}
	if wanted != "" && sentinel.ExecutionID != wanted {
		return nil, stored
	}
	stored.ExecutionID = sentinel.ExecutionID
	var current []*wire.HistoryRow
	for _, row := range rows {
		if row.ExecutionID != stored.ExecutionID {
			break
		}
		if row.IsSentinel() {
			continue
		}
		for _, b := range row.Blobs() {
			stored.Blobs = append(stored.Blobs, b.Blob)
		}
		current = append(current, row)
	}
	return current, stored
}

// KnownEvents summarizes a history for the decision whether a message fits it.
type KnownEvents struct {
	Started  bool
	Ended    *history.ExecutionCompleted // nil while the execution is running
	Status   history.RuntimeStatus       // after the events, if the execution has started
	Episodes int                         // number of OrchestratorStarted events

	Actions          IDSet // EventIDs of all actions
	MaxAction        int
	CompletedActions IDSet // actions that have completed
	open             map[int]openAction
	raised           map[raisedEvent]bool

	isOpen       bool // the last episode left steps unrecorded, or is stored in part
	lastType     history.EventType
	ends         int          // number of OrchestratorCompleted events
	startedSteps map[int]bool // steps whose start is recorded and whose end is not
}

// openAction is an activity, a child or a timer without a completion.
type openAction struct {
	kind history.EventType
	at   time.Time // the schedule time of an activity, or the due time of a timer
}

// raisedEvent identifies a message that completes no action. Two such messages from one sender have
// different times, unless the second is a duplicate.
type raisedEvent struct {
	kind    history.EventType
	name    string
	payload string
	at      time.Time
}

// NewKnownEvents returns the summary of an empty history.
func NewKnownEvents() *KnownEvents {
	return &KnownEvents{MaxAction: -1, raised: map[raisedEvent]bool{}, open: map[int]openAction{}, startedSteps: map[int]bool{}}
}

// IsOfOtherAction reports whether a completion belongs to another action than the open action with the
// same ID. scheduled is the schedule time in the result of an activity, zero if the result has none.
//
// An episode whose commit had no clear result leaves its activities, children and timers running. The
// episode that replaces it may have received its messages in another order, and may have given the ID
// to another action. .NET accepts the completion of the wrong action.
func (k *KnownEvents) IsOfOtherAction(completion history.Event, id int, scheduled time.Time) bool {
	action, isOpen := k.open[id]
	switch e := completion.(type) {
	case *history.TaskCompleted, *history.TaskFailed:
		return !isOpen || action.kind != history.TypeTaskScheduled || !scheduled.IsZero() && !scheduled.Equal(action.at)
	case *history.TimerFired:
		return !isOpen || action.kind != history.TypeTimerCreated || !history.TruncateToTicks(e.FireAt).Equal(action.at)
	}
	return !isOpen || action.kind != history.TypeSubOrchestrationInstanceCreated
}

// Add adds an event of the history.
func (k *KnownEvents) Add(ev history.Event) {
	// Rewind replaces events by GenericEvents. Replay decides on those actions again.
	if id := ev.Head().EventID; id >= 0 && ev.Type() != history.TypeGenericEvent {
		k.Actions.Add(id)
		k.MaxAction = max(k.MaxAction, id)
	}
	if status, changes := history.StatusAfter(ev); changes {
		k.Status = status
	}
	k.isOpen, k.lastType = true, ev.Type()
	switch ev := ev.(type) {
	case *history.TaskScheduled:
		k.open[ev.EventID] = openAction{ev.Type(), history.TruncateToTicks(ev.Timestamp)}
	case *history.TimerCreated:
		k.open[ev.EventID] = openAction{ev.Type(), history.TruncateToTicks(ev.FireAt)}
	case *history.SubOrchestrationInstanceCreated:
		k.open[ev.EventID] = openAction{kind: ev.Type()}
	case *history.ExecutionStarted:
		k.Started = true
	case *history.ExecutionCompleted:
		k.Ended = ev
	case *history.ContinueAsNew:
		k.Ended = &history.ExecutionCompleted{Header: ev.Header, Status: ev.Status, Result: ev.Result, Failure: ev.Failure}
	case *history.OrchestratorStarted:
		k.Episodes++
	case *history.OrchestratorCompleted:
		k.isOpen = ev.IsPlayed
		k.ends++
	default:
		if id, ok := history.StepStartOf(ev); ok {
			k.startedSteps[id] = true
		}
		if id, ok := history.Completes(ev); ok {
			k.CompletedActions.Add(id)
			delete(k.open, id)
			delete(k.startedSteps, id)
		} else if key, ok := raisedEventOf(ev); ok {
			k.raised[key] = true
		}
	}
}

// HasOpenSteps reports whether the history may have open steps: the last episode left steps
// unrecorded, a crash interrupted its checkpoint between two transactions, or the history has the
// start of a step and not its end.
func (k *KnownEvents) HasOpenSteps() bool { return k.isOpen || len(k.startedSteps) > 0 }

// CertainlyHasOpenSteps reports whether the history certainly has open steps. After a continue-as-new,
// the first OrchestratorCompleted is always played, with or without open steps, so it proves nothing.
// isFirst means that the execution certainly has not continued as new.
func (k *KnownEvents) CertainlyHasOpenSteps(isFirst bool) bool {
	return k.lastType == history.TypeOrchestratorCompleted && (k.isOpen && (isFirst || k.ends > 1) || len(k.startedSteps) > 0)
}

// HasRaised reports whether the history contains ev, an event that completes no action. It returns
// false for all other events.
func (k *KnownEvents) HasRaised(ev history.Event) bool {
	key, ok := raisedEventOf(ev)
	return ok && k.raised[key]
}

// raisedEventOf returns the identity of an event that completes no action. ok is false for all other
// events.
func raisedEventOf(ev history.Event) (key raisedEvent, ok bool) {
	key = raisedEvent{kind: ev.Type(), at: history.TruncateToTicks(ev.Head().Timestamp)}
	switch ev := ev.(type) {
	case *history.EventRaised:
		key.name, key.payload = ev.Name, store.Value(ev.Input)
	case *history.ExecutionSuspended:
		key.payload = store.Value(ev.Reason)
	case *history.ExecutionResumed:
		key.payload = store.Value(ev.Reason)
	case *history.ExecutionTerminated:
		key.payload = store.Value(ev.Reason)
	case *history.GenericEvent:
		key.payload = store.Value(ev.Data)
	default:
		return raisedEvent{}, false
	}
	return key, true
}

// An IDSet is a set of action numbers, which increase from zero with few gaps. The zero value is an
// empty set.
type IDSet struct {
	bits   []uint64
	sparse map[int]bool // IDs of sparseFrom and more, and negative ones, which occur only in damaged rows
	Size   int
}

// sparseFrom is the smallest ID that is stored in a map instead of in the bits.
const sparseFrom = 1 << 24

// Has reports whether id is in the set.
func (s *IDSet) Has(id int) bool {
	if id < 0 || id >= sparseFrom {
		return s.sparse[id]
	}
	return id>>6 < len(s.bits) && s.bits[id>>6]&(1<<(id&63)) != 0
}

// Add adds id to the set and reports whether it was absent.
func (s *IDSet) Add(id int) bool {
	if s.Has(id) {
		return false
	}
	s.Size++
	if id < 0 || id >= sparseFrom {
		if s.sparse == nil {
			s.sparse = make(map[int]bool)
		}
		s.sparse[id] = true
		return true
	}
	if missing := id>>6 + 1 - len(s.bits); missing > 0 {
		s.bits = append(s.bits, make([]uint64, missing)...)
	}
	s.bits[id>>6] |= 1 << (id & 63)
	return true
}
