// Package disposition decides what becomes of the messages for an instance: pure functions
// of the messages and of what is stored of the instance.
package disposition

import (
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Disposition is what becomes of a message, given what is stored of its instance.
type Disposition struct {
	Action Action
	Repair Repair // before it is discarded
	Event  string // what to log it as, by DurableTask's names
	Reason string
}

// Action is what is done with a message.
type Action int

// The actions.
const (
	Deliver   Action = iota // dispatch it
	HoldBack                // hide it for a while: its time has not come
	Discard                 // delete it
	Terminate               // mark the instance terminated, which has not started, and delete it
	Refuse                  // delete a start message whose instance does not exist, and its blob
)

// Repair is what is written before a message is discarded: the worker that took it may
// have died before it wrote the row of the instance, or its tracking records.
type Repair int

// The repairs.
const (
	RepairNothing  Repair = iota
	RepairTracking        // the tracking records only
	RepairRow             // and the row
)

// How often a message is received until what it waits for is taken to be lost.
const (
	// A completion for which nothing was scheduled
	// (DurableTask.AzureStorage/Messaging/OrchestrationSession.cs,
	// IsOutOfOrderMessage).
	maxOutOfOrderDeliveries = 5
	// A start message without its instance row
	// (DurableTask.AzureStorage/OrchestrationSessionManager.cs,
	// DedupeExecutionStartedMessagesAsync).
	maxStartDeliveries = 10
	// StartAge is the least age at which such a message is discarded. Ten deliveries with the
	// usual delays take longer. Workers of a slow queue release messages after shorter times.
	StartAge = 15 * time.Minute
	// A message to an instance without stored records. It may have overtaken
	// the start message of a child, which has no row until its first checkpoint,
	// and which is hidden for a while if the worker that sent it has died.
	maxUnknownInstanceDeliveries = 1
)

var (
	deliver         = Disposition{}
	unknownInstance = Disposition{Discard, RepairTracking, "DiscardingWorkItem", "No such instance"}
	ended           = Disposition{Discard, RepairRow, "DiscardingWorkItem", "Instance is Completed"}
	foreign         = Disposition{Discard, RepairRow, "DiscardingWorkItem", "Invalid history (may have been overwritten by a newer instance)"}
	otherAction     = Disposition{Discard, RepairTracking, "DiscardingWorkItem", "What it completes was scheduled by an episode that does not count"}
	continued       = Disposition{Discard, RepairRow, Duplicate, "the execution has started already, and continued as new"}
	terminated      = Disposition{Terminate, RepairNothing, "DiscardingWorkItem", "Instance is Terminated"}
	outOfOrder      = Disposition{HoldBack, RepairNothing, "ReceivedOutOfOrderMessage", "what it completes is not in the history yet"}
	rewinding       = Disposition{HoldBack, RepairNothing, "ReceivedOutOfOrderMessage", "the instance has ended, unless what was read of it was from before it was rewound"}
	otherStarts     = Disposition{HoldBack, RepairNothing, Abandoning, "another instance with the child's ID is about to start"}
)

// NotYetStarted is that of a message that comes before its instance starts.
var NotYetStarted = Disposition{HoldBack, RepairNothing, "ReceivedOutOfOrderMessage", "the instance has not started yet"}

// Duplicate is the log event of a message that was taken before.
const Duplicate = "DuplicateMessageDetected"

func duplicate(reason string) Disposition {
	return Disposition{Discard, RepairRow, Duplicate, reason}
}

// refused is the disposition of the message of a start that has no row.
func refused(reason string) Disposition {
	return Disposition{Refuse, RepairRow, Duplicate, reason}
}

// Message is what decides about a message.
type Message struct {
	Event        history.Event
	ExecutionID  string // that it is for, empty for any
	DequeueCount int
	ReceivedAt   time.Time
	Age          time.Duration // since it was put into the queue, when it was received
	Lock         time.Duration // for how long a worker hides a message at a time
	Scheduled    time.Time     // when what it completes was, zero if it does not say so
	// Superseded means that this process knows the execution as an earlier generation.
	Superseded bool
}

// mayHaveBeenTaken reports whether another worker may have had the message
// before: it was received, or it was hidden from the start, which a worker that
// died then did not get to renew.
func (m Message) mayHaveBeenTaken() bool { return m.DequeueCount > 1 || m.Age >= m.Lock/2 }

// isOld reports whether all that was sent before the message can be seen by now,
// even if it was hidden by a worker that died then.
func (m Message) isOld() bool { return m.Age > (SlowLocks+1)*m.Lock }

// Decide decides what becomes of messages for one execution, given what
// is stored of the instance. It is a function of its arguments.
//
// A start message is first if there is one. If it is not accepted, the messages
// with it are decided as if it had not come.
func Decide(instanceID string, stored *instances.Instance, messages []Message) []Disposition {
	all := make([]Disposition, len(messages))
	starting := false
	var accepted acceptedEvents
	for i, m := range messages {
		start, isStart := m.Event.(*history.ExecutionStarted)
		switch {
		case isStart:
			all[i] = ofStart(start, stored, m)
			starting = starting || all[i].Action == Deliver && !stored.Known.Started
		case starting && (m.ExecutionID == "" || m.ExecutionID == stored.ExecutionID):
			all[i] = ofRunning(instanceID, stored, m)
		case !stored.Known.Started:
			all[i] = ofUnstarted(instanceID, stored, m)
		case stored.Known.Ended != nil:
			all[i] = ofEnded(stored, m)
		default:
			all[i] = ofRunning(instanceID, stored, m)
		}
		if all[i].Action == Deliver && accepted.repeats(m.Event) {
			all[i] = duplicate("the same completion came twice")
		}
	}
	return all
}

// acceptedEvents finds completions of one action that come together.
type acceptedEvents struct{ answered instances.IDSet }

func (a *acceptedEvents) repeats(ev history.Event) bool {
	id, isCompletion := history.Completes(ev)
	return isCompletion && !a.answered.Add(id)
}

// ofStart decides about a start message
// (OrchestrationSessionManager.cs, DedupeExecutionStartedMessagesAsync). Unlike
// .NET it does not start an execution that was terminated before, nor one that
// runs already, in whichever generation.
func ofStart(start *history.ExecutionStarted, stored *instances.Instance, m Message) Disposition {
	switch {
	case stored.HasContinued(start.Instance.ExecutionID):
		return continued
	case stored.Known.Ended != nil:
		return ended
	case stored.Known.Started && (start.Parent == nil || strings.EqualFold(start.Instance.ExecutionID, stored.ExecutionID)):
		return duplicate("the execution has started already")
	}
	row := stored.Row
	sameExecution := row != nil && strings.EqualFold(row.State.Instance.ExecutionID, start.Instance.ExecutionID)
	switch {
	case sameExecution && row.State.Status.IsTerminal():
		return Disposition{Discard, RepairTracking, "DiscardingWorkItem", "Instance is " + row.State.Status.String()}
	case start.Parent != nil:
		return ofChildStart(start, stored, m)
	case sameExecution, row != nil && row.State.Instance.ExecutionID == "":
		return deliver
	case row != nil && sameGeneration(row.Generation, start.Generation) && scheduledAfter(row, start, m):
		return refused("the instance was created by another start message")
	case m.DequeueCount >= maxStartDeliveries && m.Age >= StartAge:
		return refused("the instance has no row with this execution")
	}
	return Disposition{HoldBack, RepairNothing, Abandoning, "the instance has no row with this execution yet"}
}

func sameGeneration(a, b *int) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// scheduledAfter reports whether the row was there before the start message, or
// before it was last received: then the row is not that of the message's own
// client to be written yet.
func scheduledAfter(row *wire.InstanceRow, start *history.ExecutionStarted, m Message) bool {
	created := row.State.CreatedAt
	return created.Before(start.Timestamp) && row.State.Status == history.Pending ||
		m.DequeueCount > 1 && m.ReceivedAt.After(created)
}

// ofUnstarted decides about a message for an instance without history. .NET
// deletes what comes before the start, and retries a terminate of an unknown instance
// for ever (AzureStorageOrchestrationService.cs, LockNextTaskOrchestrationWorkItemAsync,
// and UpdateStatusForTerminationAsync).
func ofUnstarted(instanceID string, stored *instances.Instance, m Message) Disposition {
	if history.IsEntity(instanceID) {
		return deliver
	}
	row := stored.Row
	_, isCompletion := history.Completes(m.Event)
	_, isTerminate := m.Event.(*history.ExecutionTerminated)
	elsewhere := row != nil && m.ExecutionID != "" && m.ExecutionID != row.State.Instance.ExecutionID
	switch {
	case row == nil && isCompletion, elsewhere:
		return foreignOr(outOfOrder, stored, m)
	case row == nil:
		if m.DequeueCount > maxUnknownInstanceDeliveries && m.isOld() {
			return unknownInstance
		}
		return NotYetStarted
	case row.State.Status.IsTerminal():
		return ended
	case isTerminate && row.State.Status == history.Pending:
		return terminated
	case isCompletion:
		return foreignOr(outOfOrder, stored, m)
	case row.State.Status == history.Pending:
		return NotYetStarted
	}
	return foreignOr(NotYetStarted, stored, m)
}

// ofEnded decides about a message for an instance whose execution has ended.
func ofEnded(stored *instances.Instance, m Message) Disposition {
	if stored.AwaitsStart() && m.ExecutionID != stored.ExecutionID {
		return NotYetStarted
	}
	if m.Event.Type() == history.TypeGenericEvent && m.DequeueCount <= 1 {
		return rewinding
	}
	return ended
}

// ofRunning decides about a message for an execution that goes on, or that starts
// with a message before it, by [provider.Progress]. A completion waits until the
// history has what it completes: it may be faster than the checkpoint that scheduled
// it. When the history has gone past that, it never will.
func ofRunning(instanceID string, stored *instances.Instance, m Message) Disposition {
	known := stored.Known
	p := provider.Progress{
		Known: true, Execution: stored.ExecutionID, Status: history.Running,
		Begun: known.Started, Starting: !known.Started, Scheduled: known.Actions.Has,
	}
	target := history.OrchestrationInstance{InstanceID: instanceID, ExecutionID: m.ExecutionID}
	d, _ := p.Disposition(provider.TaskMessage{Target: target, Event: m.Event}, false) // it reads no history
	id, completes := history.Completes(m.Event)
	switch {
	case d == provider.Foreign:
		return foreignOr(outOfOrder, stored, m)
	case completes && known.Answered.Has(id):
		return duplicate("the history has this completion already")
	case completes && d == provider.Deliver && known.IsOfOtherAction(m.Event, id, m.Scheduled):
		return otherAction
	case d == provider.Wait && (!known.Started || id < known.MaxAction):
		return foreignOr(outOfOrder, stored, m)
	case d == provider.Wait:
		return outOfOrder
	case m.mayHaveBeenTaken() && known.HasRaised(m.Event):
		return duplicate("the history has this event already")
	}
	return deliver
}

// foreignOr returns foreign if m is for an earlier generation, or if m was received more
// than maxOutOfOrderDeliveries times and is old. Until then it returns wait: the execution may
// be the next one, whose history is not stored yet, or a dead worker may hide its start.
func foreignOr(wait Disposition, stored *instances.Instance, m Message) Disposition {
	if isForEarlier(stored, m) || m.DequeueCount > maxOutOfOrderDeliveries && m.isOld() {
		return foreign
	}
	return wait
}

// maxClockDifference is the largest expected difference between the clocks of two workers.
const maxClockDifference = 5 * time.Minute

// isForEarlier reports whether the execution of m is proved to be an earlier generation of the
// stored one: this process or the sentinel knows it as one, or it scheduled an activity before
// the execution in the row began.
func isForEarlier(stored *instances.Instance, m Message) bool {
	row := stored.Row
	switch {
	case m.ExecutionID == "" || m.ExecutionID == stored.Current.ExecutionID:
		return false
	case m.Superseded || stored.HasContinued(m.ExecutionID):
		return true
	case row == nil || m.Scheduled.IsZero() || m.ExecutionID == row.State.Instance.ExecutionID:
		return false
	}
	return m.Scheduled.Add(maxClockDifference).Before(row.State.CreatedAt)
}

// ofChildStart decides about the start of a child when another execution
// with its ID is stored. .NET puts the child in the place of that
// (DurableTask.AzureStorage/OrchestrationSessionManager.cs,
// DedupeExecutionStartedMessagesAsync), although it may go on.
//
//  1. One that goes on is handed the start, and the engine refuses it.
//  2. One that is about to start is waited for.
//  3. One that has ended is replaced.
func ofChildStart(start *history.ExecutionStarted, stored *instances.Instance, m Message) Disposition {
	row := stored.Row
	switch {
	case stored.Known.Started:
		return deliver
	case row == nil, row.State.Instance.ExecutionID == "", row.State.Status.IsTerminal(),
		strings.EqualFold(row.State.Instance.ExecutionID, start.Instance.ExecutionID):
		return deliver
	}
	if m.DequeueCount > maxStartDeliveries {
		return deliver
	}
	return otherStarts
}

// Abandoning is the event by which an abandoned message is logged.
const Abandoning = "AbandoningMessage"

// SlowLocks is how many times as long as usual a message is hidden at most.
const SlowLocks = 4
