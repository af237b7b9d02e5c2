package azurestorage

import (
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// verdict is what becomes of a message when it is held against what is stored
// of its instance.
type verdict struct {
	fate   fate
	event  string // what to log it as, by DurableTask's names
	reason string
}

type fate int

const (
	fateDeliver   fate = iota // hand it out
	fateHoldBack              // its time has not come; let it come again later
	fateDiscard               // nobody wants it; delete it
	fateTerminate             // the instance has not started: mark it terminated, then delete it
	fateRepair                // the instance has ended: see that its row says so, then delete it
)

// How often a message is received before it is believed that what it waits for
// will not come.
const (
	// A completion for which nothing was scheduled
	// (DurableTask.AzureStorage/Messaging/OrchestrationSession.cs,
	// IsOutOfOrderMessage).
	maxOutOfOrderDeliveries = 5
	// A start message without its instance row
	// (DurableTask.AzureStorage/OrchestrationSessionManager.cs,
	// DedupeExecutionStartedMessagesAsync).
	maxStartDeliveries = 10
	// A message to an instance of which nothing is known. It may have overtaken
	// the start message of a child, which has no row until its first checkpoint,
	// and which is hidden for a while if the worker that sent it has died.
	maxUnknownInstanceDeliveries = 1
)

var (
	deliver         = verdict{}
	unknownInstance = verdict{fateDiscard, "DiscardingWorkItem", "No such instance"}
	ended           = verdict{fateRepair, "DiscardingWorkItem", "Instance is Completed"}
	foreign         = verdict{fateDiscard, "DiscardingWorkItem", "Invalid history (may have been overwritten by a newer instance)"}
	otherAction     = verdict{fateDiscard, "DiscardingWorkItem", "What it completes was scheduled by an episode that does not count"}
	continued       = verdict{fateDiscard, duplicateMessage, "the execution has started already, and continued as new"}
	terminated      = verdict{fateTerminate, "DiscardingWorkItem", "Instance is Terminated"}
	outOfOrder      = verdict{fateHoldBack, "ReceivedOutOfOrderMessage", "what it completes is not in the history yet"}
	notYetStarted   = verdict{fateHoldBack, "ReceivedOutOfOrderMessage", "the instance has not started yet"}
	rewinding       = verdict{fateHoldBack, "ReceivedOutOfOrderMessage", "the instance has ended, unless what was read of it was from before it was rewound"}
	otherStarts     = verdict{fateHoldBack, abandoning, "another instance with the child's ID is about to start"}
)

// duplicateMessage is what a message is logged as that was taken before.
const duplicateMessage = "DuplicateMessageDetected"

func duplicate(reason string) verdict { return verdict{fateDiscard, duplicateMessage, reason} }

// arrived is a message as judging sees it.
type arrived struct {
	event        history.Event
	executionID  string // that it is for, empty for any
	dequeueCount int
	receivedAt   time.Time
	age          time.Duration // since it was put into the queue, when it was received
	lock         time.Duration // for how long a worker hides a message at a time
	scheduled    time.Time     // when what it completes was, zero if it does not say so
}

// mayHaveBeenTaken reports whether another worker may have had the message
// before: it was received, or it was hidden from the start, which a worker that
// died then did not get to renew.
func (m arrived) mayHaveBeenTaken() bool { return m.dequeueCount > 1 || m.age >= m.lock/2 }

// isOld reports whether all that was sent before the message can be seen by now,
// even if it was hidden by a worker that died then.
func (m arrived) isOld() bool { return m.age > (slowLocks+1)*m.lock }

// judgeMessages decides what becomes of messages for one execution, given what
// is stored of the instance. It is a function of its arguments.
//
// A start message is first if there is one. If it is not accepted, the messages
// with it are judged as if it had not come.
func judgeMessages(instanceID string, stored *instances.Instance, messages []arrived) []verdict {
	verdicts := make([]verdict, len(messages))
	starting := false
	var accepted acceptedEvents
	for i, m := range messages {
		start, isStart := m.event.(*history.ExecutionStarted)
		switch {
		case isStart:
			verdicts[i] = judgeStart(start, stored, m)
			starting = starting || verdicts[i].fate == fateDeliver && !stored.Known.Started
		case starting && (m.executionID == "" || m.executionID == stored.ExecutionID):
			verdicts[i] = deliver
			if _, isCompletion := history.Completes(m.event); isCompletion {
				verdicts[i] = foreignOr(outOfOrder, m)
			}
		case !stored.Known.Started:
			verdicts[i] = judgeUnstarted(instanceID, stored, m)
		case stored.Known.Ended != nil:
			verdicts[i] = judgeEnded(stored, m)
		default:
			verdicts[i] = judgeRunning(stored, m)
		}
		if verdicts[i].fate == fateDeliver && accepted.repeats(m.event) {
			verdicts[i] = duplicate("the same completion came twice")
		}
	}
	return verdicts
}

// acceptedEvents finds completions of one action that come together.
type acceptedEvents struct{ answered instances.IDSet }

func (a *acceptedEvents) repeats(ev history.Event) bool {
	id, isCompletion := history.Completes(ev)
	return isCompletion && !a.answered.Add(id)
}

// judgeStart decides about a start message
// (OrchestrationSessionManager.cs, DedupeExecutionStartedMessagesAsync). Unlike
// .NET it does not start an execution that was terminated before, nor one that
// runs already, in whichever generation.
func judgeStart(start *history.ExecutionStarted, stored *instances.Instance, m arrived) verdict {
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
		return verdict{fateDiscard, "DiscardingWorkItem", "Instance is " + row.State.Status.String()}
	case start.Parent != nil:
		return judgeChildStart(start, stored, m)
	case sameExecution, row != nil && row.State.Instance.ExecutionID == "":
		return deliver
	case row != nil && sameGeneration(row.Generation, start.Generation) && scheduledAfter(row, start, m):
		return duplicate("the instance was created by another start message")
	case m.dequeueCount >= maxStartDeliveries:
		return duplicate("no row of the instance tells of this execution")
	}
	return verdict{fateHoldBack, abandoning, "no row of the instance tells of this execution yet"}
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
func scheduledAfter(row *wire.InstanceRow, start *history.ExecutionStarted, m arrived) bool {
	created := row.State.CreatedAt
	return created.Before(start.Timestamp) && row.State.Status == history.Pending ||
		m.dequeueCount > 1 && m.receivedAt.After(created)
}

// judgeUnstarted decides about a message for an instance without history. .NET
// deletes what comes before the start, and retries a terminate of nobody for
// ever (AzureStorageOrchestrationService.cs, LockNextTaskOrchestrationWorkItemAsync,
// and UpdateStatusForTerminationAsync).
func judgeUnstarted(instanceID string, stored *instances.Instance, m arrived) verdict {
	if history.IsEntity(instanceID) {
		return deliver
	}
	row := stored.Row
	_, isCompletion := history.Completes(m.event)
	_, isTerminate := m.event.(*history.ExecutionTerminated)
	elsewhere := row != nil && m.executionID != "" && m.executionID != row.State.Instance.ExecutionID
	switch {
	case row == nil && isCompletion, elsewhere:
		return foreignOr(outOfOrder, m)
	case row == nil:
		if m.dequeueCount > maxUnknownInstanceDeliveries && m.isOld() {
			return unknownInstance
		}
		return notYetStarted
	case row.State.Status.IsTerminal():
		return ended
	case isTerminate && row.State.Status == history.Pending:
		return terminated
	case isCompletion:
		return foreignOr(outOfOrder, m)
	case row.State.Status == history.Pending:
		return notYetStarted
	}
	return foreignOr(notYetStarted, m)
}

// judgeEnded decides about a message for an instance whose execution has ended.
func judgeEnded(stored *instances.Instance, m arrived) verdict {
	if stored.AwaitsStart() && m.executionID != stored.ExecutionID {
		return notYetStarted
	}
	if m.event.Type() == history.TypeGenericEvent && m.dequeueCount <= 1 {
		return rewinding
	}
	return ended
}

// judgeRunning decides about a message for an execution that goes on. A
// completion has to wait until the history has what it completes: it may be
// faster than the checkpoint that scheduled it. When the history has gone past
// that, it never will.
func judgeRunning(stored *instances.Instance, m arrived) verdict {
	known := stored.Known
	if m.executionID != "" && m.executionID != stored.ExecutionID {
		return foreignOr(outOfOrder, m)
	}
	if id, isCompletion := history.Completes(m.event); isCompletion {
		switch {
		case known.Answered.Has(id):
			return duplicate("the history has this completion already")
		case known.Actions.Has(id) && known.IsOfOtherAction(m.event, id, m.scheduled):
			return otherAction
		case known.Actions.Has(id):
			return deliver
		case id < known.MaxAction:
			return foreignOr(outOfOrder, m)
		}
		return outOfOrder
	}
	if m.mayHaveBeenTaken() && known.HasRaised(m.event) {
		return duplicate("the history has this event already")
	}
	return deliver
}

// foreignOr returns wait until m was received more than maxOutOfOrderDeliveries times
// and is old, and then foreign: what m is about may be decided anew when a message
// comes that a dead worker still hides.
func foreignOr(wait verdict, m arrived) verdict {
	if m.dequeueCount > maxOutOfOrderDeliveries && m.isOld() {
		return foreign
	}
	return wait
}
