package instances

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/tracking"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// History is the history of one execution.
type History struct {
	ExecutionID string
	Events      []history.Event
	Known       *KnownEvents
	ETag        string   // of the sentinel, empty if there is none
	Blobs       []string // that hold columns of the rows
	bytes       int      // roughly, of the rows
	Tracked     tracking.State
	Current     Generation
	Batches     string // that counted, of an entity: see [wire.EntityBatches]
	Run         string // the mark of this process's batches of an entity since it read this, empty if there was none
}

// Generation identifies the execution of a history, by its sentinel.
type Generation struct {
	ExecutionID string
	First       string // the execution of which it is a later generation, empty if it is the first itself
}

// First returns the execution of which the stored one is a later generation,
// empty if it is the first itself or has no history.
func (s *History) First() string {
	if s.Current.ExecutionID != s.ExecutionID {
		return ""
	}
	return s.Current.First
}

// HasContinued reports whether an execution has had its history and continued as
// new since.
func (s *History) HasContinued(executionID string) bool {
	return executionID != "" && executionID == s.Current.First && executionID != s.Current.ExecutionID
}

// Unsent returns the rows of the tracking records that may not have been sent, and takes
// them for sent.
func (s *History) Unsent(instanceID string) ([]wire.Row, error) {
	return s.Tracked.Unsent(history.OrchestrationInstance{InstanceID: instanceID, ExecutionID: s.ExecutionID}, s.Events)
}

// currentExecution picks the event rows of the wanted execution, or of the
// current one, out of an instance's rows in the order of their keys. Rows of an
// older and longer execution may follow; they are leftovers.
func currentExecution(rows []*wire.HistoryRow, wanted string) ([]*wire.HistoryRow, History) {
	stored := History{ExecutionID: wanted, Known: NewKnownEvents()}
	var sentinel *wire.HistoryRow
	for _, row := range rows {
		if row.IsSentinel() {
			sentinel = row
		}
	}
	if sentinel != nil {
		stored.ETag, stored.Current.ExecutionID = sentinel.ETag(), sentinel.ExecutionID
		if sentinel.Columns != nil {
			stored.Tracked.Column, stored.Current.First = sentinel.Columns.Tracking, sentinel.Columns.FirstExecutionID
			stored.Batches = sentinel.Columns.EntityBatches
		}
	}
	if len(rows) == 0 || wanted != "" && (sentinel == nil || sentinel.ExecutionID != wanted) {
		return nil, stored
	}
	stored.ExecutionID = rows[0].ExecutionID
	if sentinel != nil {
		stored.ExecutionID = sentinel.ExecutionID
	}
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

// KnownEvents remembers of a history what decides whether a message fits it.
type KnownEvents struct {
	Started  bool
	Ended    *history.ExecutionCompleted // nil while the execution goes on
	Status   history.RuntimeStatus       // that they lead to, if it has started
	Episodes int                         // OrchestratorStarted events

	Actions   IDSet // EventIDs of what the orchestrator decided
	MaxAction int
	Answered  IDSet // actions that have their completion
	open      map[int]openAction
	raised    map[raisedEvent]bool
}

// openAction is an activity, a child or a timer that has no completion.
type openAction struct {
	kind history.EventType
	at   time.Time // when an activity was scheduled, or when a timer is due
}

// raisedEvent identifies a message to an instance that names no action. No two
// have the same time from the same sender, but for one that was sent twice.
type raisedEvent struct {
	kind    history.EventType
	name    string
	payload string
	at      time.Time
}

// NewKnownEvents returns those of an empty history.
func NewKnownEvents() *KnownEvents {
	return &KnownEvents{MaxAction: -1, raised: map[raisedEvent]bool{}, open: map[int]openAction{}}
}

// IsOfOtherAction reports whether a completion belongs to another action than the open
// one that has its ID in the history. scheduled is the time at which the activity of a
// result was scheduled, zero if the result does not say so. An episode in doubt leaves its
// activities, children and timers running. If it does not count, the one that does may
// have got its messages in another order, and have given the ID to another action. .NET
// takes the completion of the one for that of the other.
func (k *KnownEvents) IsOfOtherAction(completion history.Event, id int, scheduled time.Time) bool {
	action, isOpen := k.open[id]
	switch e := completion.(type) {
	case *history.TaskCompleted, *history.TaskFailed:
		return !isOpen || action.kind != history.TypeTaskScheduled || !scheduled.IsZero() && !scheduled.Equal(action.at)
	case *history.TimerFired:
		return !isOpen || action.kind != history.TypeTimerCreated || !history.Ticks(e.FireAt).Equal(action.at)
	}
	return !isOpen || action.kind != history.TypeSubOrchestrationInstanceCreated
}

// Add notes that ev is in the history.
func (k *KnownEvents) Add(ev history.Event) {
	// Replay decides again on what a rewind has taken out.
	if id := ev.Head().EventID; id >= 0 && ev.Type() != history.TypeGenericEvent {
		k.Actions.Add(id)
		k.MaxAction = max(k.MaxAction, id)
	}
	if status, changes := history.StatusAfter(ev); changes {
		k.Status = status
	}
	switch ev := ev.(type) {
	case *history.TaskScheduled:
		k.open[ev.EventID] = openAction{ev.Type(), history.Ticks(ev.Timestamp)}
	case *history.TimerCreated:
		k.open[ev.EventID] = openAction{ev.Type(), history.Ticks(ev.FireAt)}
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
	default:
		if id, ok := history.Completes(ev); ok {
			k.Answered.Add(id)
			delete(k.open, id)
		} else if key, ok := raisedEventOf(ev); ok {
			k.raised[key] = true
		}
	}
}

// HasRaised reports whether the history has ev, if that is an event that others send on
// their own account.
func (k *KnownEvents) HasRaised(ev history.Event) bool {
	key, ok := raisedEventOf(ev)
	return ok && k.raised[key]
}

// raisedEventOf returns the identity of an event that others send on their own
// account; ok is false for all other events.
func raisedEventOf(ev history.Event) (key raisedEvent, ok bool) {
	key = raisedEvent{kind: ev.Type(), at: history.Ticks(ev.Head().Timestamp)}
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

// An IDSet is a set of numbers of actions, which go up from zero with few gaps.
// The zero value is empty.
type IDSet struct {
	bits []uint64
	far  map[int]bool // what no orchestrator gets to, but a wrong row may have
	Size int
}

// farID is where numbers begin that are not worth a bit for all below them.
const farID = 1 << 24

// Has reports whether id is in the set.
func (s *IDSet) Has(id int) bool {
	if id < 0 || id >= farID {
		return s.far[id]
	}
	return id>>6 < len(s.bits) && s.bits[id>>6]&(1<<(id&63)) != 0
}

// Add puts id into the set and reports whether it was not in it.
func (s *IDSet) Add(id int) bool {
	if s.Has(id) {
		return false
	}
	s.Size++
	if id < 0 || id >= farID {
		if s.far == nil {
			s.far = make(map[int]bool)
		}
		s.far[id] = true
		return true
	}
	if missing := id>>6 + 1 - len(s.bits); missing > 0 {
		s.bits = append(s.bits, make([]uint64, missing)...)
	}
	s.bits[id>>6] |= 1 << (id & 63)
	return true
}
