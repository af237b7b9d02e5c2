// Package disposition decides what a worker does with messages to an instance: deliver, hold back or
// discard them. Its functions are pure. They depend only on the messages and on the stored state of
// the instance.
package disposition

import (
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Disposition is the decision about a message.
type Disposition struct {
	Action Action
	Repair Repair // to do before the message is discarded
	Event  string // event of the log entry, a name of DurableTask
	Reason string
}

// Action is an action on a message.
type Action int

// The actions.
const (
	Deliver   Action = iota // dispatch it
	HoldBack                // hide it for a while and decide again
	Discard                 // delete it
	Terminate               // mark the pending instance as terminated, and delete the message
	Refuse                  // delete the start message of a nonexistent instance, and the message's blob
)

// Repair names the records to write before a message is discarded. The worker that processed the
// message earlier may have crashed before it wrote the instance row or the tracking records.
type Repair int

// The repairs.
const (
	RepairNothing  Repair = iota
	RepairTracking        // only the tracking records
	RepairRow             // the tracking records and the row
)

// Numbers of deliveries after which a message that waits for something lost is discarded.
const (
	// A completion whose action is not in the history is held back for at least this many deliveries
	// (DurableTask.AzureStorage/Messaging/OrchestrationSession.cs, IsOutOfOrderMessage).
	maxOutOfOrderDeliveries = 5
	// A start message without its instance row is discarded at this delivery or later
	// (DurableTask.AzureStorage/OrchestrationSessionManager.cs, DedupeExecutionStartedMessagesAsync).
	// The start of a child that waits for another instance with its ID is delivered after this many.
	maxStartDeliveries = 10
	// StartAge is the minimum age at which a start message without its row is discarded. Ten
	// deliveries with the usual delays take longer. The delays are shorter on a worker of a slow
	// queue.
	StartAge = 15 * time.Minute
	// A message to an instance without stored records is held back for at least this many deliveries. It
	// may have overtaken the start message of a child. A child has no row until its first checkpoint, and
	// its start is hidden for a while if the worker that sent it has crashed.
	maxUnknownInstanceDeliveries = 1
)

var (
	deliver         = Disposition{}
	unknownInstance = Disposition{Discard, RepairTracking, "DiscardingWorkItem", "No such instance"}
	ended           = Disposition{Discard, RepairRow, "DiscardingWorkItem", "Instance is Completed"}
	foreign         = Disposition{Discard, RepairRow, "DiscardingWorkItem", "Invalid history (may have been overwritten by a newer instance)"}
	otherAction     = Disposition{Discard, RepairTracking, "DiscardingWorkItem", "The completed action belongs to an episode that was not committed"}
	continued       = Disposition{Discard, RepairRow, Duplicate, "the execution has started already, and continued as new"}
	terminated      = Disposition{Terminate, RepairNothing, "DiscardingWorkItem", "Instance is Terminated"}
	outOfOrder      = Disposition{HoldBack, RepairNothing, "ReceivedOutOfOrderMessage", "the history does not contain the completed action yet"}
	rewinding       = Disposition{HoldBack, RepairNothing, "ReceivedOutOfOrderMessage", "the instance has ended, or was rewound after it was read"}
	otherIsStarting = Disposition{HoldBack, RepairNothing, Abandoning, "another instance with the child's ID is about to start"}
)

// NotYetStarted is the disposition of a message that arrives before its instance has started.
var NotYetStarted = Disposition{HoldBack, RepairNothing, "ReceivedOutOfOrderMessage", "the instance has not started yet"}

// Duplicate is the log event of a message that was processed before.
const Duplicate = "DuplicateMessageDetected"

func duplicate(reason string) Disposition {
	return Disposition{Discard, RepairRow, Duplicate, reason}
}

// refused is the disposition of a start message whose instance has no row.
func refused(reason string) Disposition {
	return Disposition{Refuse, RepairRow, Duplicate, reason}
}

// Message is a message to decide about.
type Message struct {
	Event             history.Event
	ExecutionID       string // the target execution; empty means any
	DequeueCount      int
	ReceivedAt        time.Time
	Age               time.Duration // time between the enqueue and the receipt
	VisibilityTimeout time.Duration // visibility timeout of one receipt
	Scheduled         time.Time     // when the completed action was scheduled; zero if the message does not contain it
	// Superseded reports that this process knows the execution as an earlier generation.
	Superseded bool
}

// mayBeRedelivered reports whether another worker may have processed the message: it was received
// before, or it was enqueued hidden by a worker that crashed before it renewed the visibility timeout.
func (m Message) mayBeRedelivered() bool { return m.DequeueCount > 1 || m.Age >= m.VisibilityTimeout/2 }

// isOld reports whether every message that was sent earlier is visible by now, even if a crashed
// worker had hidden it.
func (m Message) isOld() bool { return m.Age > (MaxTimeoutFactor+1)*m.VisibilityTimeout }

// Decide returns the dispositions of messages to one execution of an instance. stored is the stored state
// of the instance. A start message must be the first message. If it is held back or discarded, the other
// messages are decided as if it were absent.
func Decide(instanceID string, stored *instances.Instance, messages []Message) []Disposition {
	all := make([]Disposition, len(messages))
	starting := false
	var accepted acceptedEvents
	for i, m := range messages {
		start, isStart := m.Event.(*history.ExecutionStarted)
		switch {
		case isStart:
			all[i] = decideStart(start, stored, m)
			starting = starting || all[i].Action == Deliver && !stored.Known.Started
		case starting && (m.ExecutionID == "" || m.ExecutionID == stored.ExecutionID):
			all[i] = decideRunning(instanceID, stored, m)
		case !stored.Known.Started:
			all[i] = decideUnstarted(instanceID, stored, m)
		case stored.Known.Ended != nil:
			all[i] = decideEnded(stored, m)
		default:
			all[i] = decideRunning(instanceID, stored, m)
		}
		if all[i].Action == Deliver && accepted.repeats(m.Event) {
			all[i] = duplicate("the batch contains the completion twice")
		}
	}
	return all
}

// acceptedEvents detects several completions of one action in a batch.
type acceptedEvents struct{ answered instances.IDSet }

func (a *acceptedEvents) repeats(ev history.Event) bool {
	id, isCompletion := history.Completes(ev)
	return isCompletion && !a.answered.Add(id)
}

// decideStart decides about a start message (OrchestrationSessionManager.cs,
// DedupeExecutionStartedMessagesAsync). Unlike .NET, it does not start an execution that was
// terminated before its start, nor one that is running in any generation. The start of a running
// execution is delivered if it has steps to run: it wakes the execution after a crash.
func decideStart(start *history.ExecutionStarted, stored *instances.Instance, m Message) Disposition {
	switch {
	case stored.HasContinued(start.Instance.ExecutionID):
		return continued
	case stored.Known.Ended != nil:
		return ended
	case stored.Known.Started && stored.Known.HasOpenSteps() && strings.EqualFold(start.Instance.ExecutionID, stored.ExecutionID):
		return deliver
	case stored.Known.Started && (start.Parent == nil || strings.EqualFold(start.Instance.ExecutionID, stored.ExecutionID)):
		return duplicate("the execution has started already")
	}
	row := stored.Row
	sameExecution := row != nil && strings.EqualFold(row.State.Instance.ExecutionID, start.Instance.ExecutionID)
	switch {
	case sameExecution && row.State.Status.IsTerminal():
		return Disposition{Discard, RepairTracking, "DiscardingWorkItem", "Instance is " + row.State.Status.String()}
	case start.Parent != nil:
		return decideChildStart(start, stored, m)
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

// scheduledAfter reports whether the row existed before the start message was created or last
// received. In this case the message's client cannot still be about to write its own row.
func scheduledAfter(row *wire.InstanceRow, start *history.ExecutionStarted, m Message) bool {
	created := row.State.CreatedAt
	return created.Before(start.Timestamp) && row.State.Status == history.Pending ||
		m.DequeueCount > 1 && m.ReceivedAt.After(created)
}

// decideUnstarted decides about a message to an instance without a history. .NET deletes messages that
// arrive before the start, and retries the termination of an unknown instance forever
// (AzureStorageOrchestrationService.cs, LockNextTaskOrchestrationWorkItemAsync and
// UpdateStatusForTerminationAsync).
func decideUnstarted(instanceID string, stored *instances.Instance, m Message) Disposition {
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

// decideEnded decides about a message to an instance whose execution has ended.
func decideEnded(stored *instances.Instance, m Message) Disposition {
	if stored.AwaitsStart() && m.ExecutionID != stored.ExecutionID {
		return NotYetStarted
	}
	if m.Event.Type() == history.TypeGenericEvent && m.DequeueCount <= 1 {
		return rewinding
	}
	return ended
}

// decideRunning decides about a message to a running execution, or to one that starts with an earlier
// message of the batch. It follows [provider.Progress]. A completion may arrive before the checkpoint
// that scheduled its action, and is held back until the history contains the action. If the history
// already contains a later action, it never will. The completion is then discarded by foreignOr.
func decideRunning(instanceID string, stored *instances.Instance, m Message) Disposition {
	known := stored.Known
	p := provider.Progress{
		Known: true, Execution: stored.ExecutionID, Status: history.Running,
		HasHistory: known.Started, Starting: !known.Started, Scheduled: known.Actions.Has,
	}
	target := history.OrchestrationInstance{InstanceID: instanceID, ExecutionID: m.ExecutionID}
	d, _ := p.Disposition(provider.TaskMessage{Target: target, Event: m.Event}, false) // it does not use the history
	id, completes := history.Completes(m.Event)
	switch {
	case d == provider.OtherExecution:
		return foreignOr(outOfOrder, stored, m)
	case completes && known.CompletedActions.Has(id):
		return duplicate("the history has this completion already")
	case completes && d == provider.Deliver && known.IsOfOtherAction(m.Event, id, m.Scheduled):
		return otherAction
	case d == provider.HoldBack && (!known.Started || id < known.MaxAction):
		return foreignOr(outOfOrder, stored, m)
	case d == provider.HoldBack:
		return outOfOrder
	case m.mayBeRedelivered() && known.HasRaised(m.Event):
		return duplicate("the history has this event already")
	}
	return deliver
}

// foreignOr returns foreign if m is for an earlier generation, or if m is old and was received more
// than maxOutOfOrderDeliveries times. Otherwise it returns wait: the target execution may be the next
// one, whose history is not stored yet, or whose start a crashed worker has hidden.
func foreignOr(wait Disposition, stored *instances.Instance, m Message) Disposition {
	if isForEarlierGeneration(stored, m) || m.DequeueCount > maxOutOfOrderDeliveries && m.isOld() {
		return foreign
	}
	return wait
}

// maxClockDifference is the largest expected difference between the clocks of two workers.
const maxClockDifference = 5 * time.Minute

// isForEarlierGeneration reports whether m is certainly for an earlier generation of the stored
// execution. This process or the sentinel identifies it as such, or the target execution scheduled an
// activity before the execution in the row was created.
func isForEarlierGeneration(stored *instances.Instance, m Message) bool {
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

// decideChildStart decides about the start of a child if another execution with its ID is stored. .NET
// replaces that execution even if it is running
// (DurableTask.AzureStorage/OrchestrationSessionManager.cs, DedupeExecutionStartedMessagesAsync). Here
// the decision depends on the other execution:
//
//  1. If it is running, it receives the start, and the engine refuses the start.
//  2. If it is about to start, the child's start is held back.
//  3. If it has ended, the child replaces it.
func decideChildStart(start *history.ExecutionStarted, stored *instances.Instance, m Message) Disposition {
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
	return otherIsStarting
}

// Abandoning is the log event of an abandoned message.
const Abandoning = "AbandoningMessage"

// MaxTimeoutFactor is the maximum extension of a visibility timeout on slow storage, as a factor.
const MaxTimeoutFactor = 4
