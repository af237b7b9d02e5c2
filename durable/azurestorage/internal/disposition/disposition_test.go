package disposition

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

var judgeTime = time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)

func at(seconds int) history.Header {
	return history.NewHeader(judgeTime.Add(time.Duration(seconds) * time.Second))
}

// stored returns an instance with a history of execution "x".
func stored(row *wire.InstanceRow, events ...history.Event) *instances.Instance {
	l := &instances.Instance{Row: row, History: instances.History{ExecutionID: "x", Events: events, Known: instances.NewKnownEvents()}}
	for _, ev := range events {
		l.Known.Add(ev)
	}
	return l
}

func instanceRowOf(executionID string, status history.RuntimeStatus, created int) *wire.InstanceRow {
	return &wire.InstanceRow{Generation: new(0), State: provider.InstanceState{
		Instance:  history.OrchestrationInstance{InstanceID: "i", ExecutionID: executionID},
		Status:    status,
		CreatedAt: judgeTime.Add(time.Duration(created) * time.Second),
	}}
}

func startOf(executionID string) *history.ExecutionStarted {
	return &history.ExecutionStarted{
		Header: at(0), Instance: history.OrchestrationInstance{InstanceID: "i", ExecutionID: executionID}, Generation: new(0),
	}
}

func childStart(executionID string) *history.ExecutionStarted {
	start := startOf(executionID)
	start.Parent, start.Generation = &history.ParentInstance{}, nil
	return start
}

func taskDone(id int) history.Event {
	return &history.TaskCompleted{Header: at(5), TaskScheduledID: id}
}

func scheduled(id int) history.Event {
	return &history.TaskScheduled{Header: history.Header{EventID: id, Timestamp: judgeTime}}
}

func timer(id, due int) history.Event {
	return &history.TimerCreated{Header: history.Header{EventID: id, Timestamp: judgeTime}, FireAt: at(due).Timestamp}
}

func fired(id, due int) history.Event {
	return &history.TimerFired{Header: at(due), TimerID: id, FireAt: at(due).Timestamp}
}

func child(id int) history.Event {
	return &history.SubOrchestrationInstanceCreated{Header: history.Header{EventID: id, Timestamp: judgeTime}}
}

func childDone(id int) history.Event {
	return &history.SubOrchestrationInstanceCompleted{Header: at(5), TaskScheduledID: id}
}

// old returns m with an age at which no crashed worker can still hide an earlier message.
func old(m Message) Message {
	m.Age = (MaxTimeoutFactor+1)*m.VisibilityTimeout + time.Second
	return m
}

func msg(ev history.Event, executionID string, dequeueCount int) Message {
	return Message{
		Event: ev, ExecutionID: executionID, DequeueCount: dequeueCount, ReceivedAt: judgeTime.Add(10 * time.Second),
		Age: 10 * time.Second, VisibilityTimeout: 30 * time.Second,
	}
}

// continuedFrom returns an instance whose current execution, "y", is a later generation of first. The
// wanted execution, "x", has no history.
func continuedFrom(first string, row *wire.InstanceRow) *instances.Instance {
	l := stored(row)
	l.ETag, l.Current = "e", instances.Generation{ExecutionID: "y", First: first}
	return l
}

// current returns l with a sentinel of its own execution.
func current(l *instances.Instance) *instances.Instance {
	l.ETag, l.Current = "e", instances.Generation{ExecutionID: l.ExecutionID}
	return l
}

// superseded returns m as received by a process that has continued the target execution as new.
func superseded(m Message) Message {
	m.Superseded = true
	return m
}

// after returns m with the given age.
func after(age time.Duration, m Message) Message {
	m.Age = age
	return m
}

// resultOf returns the result of an activity that was scheduled at the given time.
func resultOf(scheduled time.Time, ev history.Event) Message {
	m := msg(ev, "x", 1)
	m.Scheduled = scheduled
	return m
}

func TestDecide(t *testing.T) {
	raised := &history.EventRaised{Header: at(3), Name: "go", Input: new(`1`)}
	terminate := &history.ExecutionTerminated{Header: at(3), Reason: new("enough")}
	done := &history.ExecutionCompleted{Header: at(9), Status: history.Completed}
	running := instanceRowOf("x", history.Running, 0)
	pending := instanceRowOf("x", history.Pending, 0)

	for name, tt := range map[string]struct {
		id       string
		stored   *instances.Instance
		messages []Message
		want     []Disposition
	}{
		// Start messages (OrchestrationSessionManager.cs, DedupeExecutionStartedMessagesAsync).
		"a start with its row is delivered": {
			stored: stored(pending), messages: []Message{msg(startOf("x"), "x", 1)}, want: []Disposition{deliver},
		},
		"execution IDs are compared without regard to case": {
			stored: stored(instanceRowOf("X", history.Pending, 0)), messages: []Message{msg(startOf("x"), "x", 1)}, want: []Disposition{deliver},
		},
		"a row of an old version without an execution ID matches any execution": {
			stored: stored(instanceRowOf("", history.Pending, 0)), messages: []Message{msg(startOf("x"), "x", 1)}, want: []Disposition{deliver},
		},
		"a start without its row is held back": {
			stored: stored(nil), messages: []Message{msg(startOf("x"), "x", 1)},
			want: []Disposition{{HoldBack, RepairNothing, "AbandoningMessage", "the instance has no row with this execution yet"}},
		},
		"a start without its row is discarded after some time": {
			stored: stored(nil), messages: []Message{after(17*time.Minute, msg(startOf("x"), "x", 10))},
			want: []Disposition{refused("the instance has no row with this execution")},
		},
		"a start that workers have often released is held back equally long": {
			stored: stored(nil), messages: []Message{after(5*time.Minute, msg(startOf("x"), "x", 20))},
			want: []Disposition{{HoldBack, RepairNothing, "AbandoningMessage", "the instance has no row with this execution yet"}},
		},
		"a start is refused if another client's row existed before it": {
			stored: stored(instanceRowOf("y", history.Pending, -1)), messages: []Message{msg(startOf("x"), "x", 1)},
			want: []Disposition{refused("the instance was created by another start message")},
		},
		"a start is refused if it is redelivered after another client's row was written": {
			stored: stored(instanceRowOf("y", history.Running, 1)), messages: []Message{msg(startOf("x"), "x", 2)},
			want: []Disposition{refused("the instance was created by another start message")},
		},
		"a start of another generation is held back until it has a row": {
			stored: stored(&wire.InstanceRow{Generation: new(1), State: instanceRowOf("y", history.Completed, -1).State}), messages: []Message{msg(startOf("x"), "x", 1)},
			want: []Disposition{{HoldBack, RepairNothing, "AbandoningMessage", "the instance has no row with this execution yet"}},
		},
		"a start of an execution that was terminated before it ran is discarded": {
			stored: stored(instanceRowOf("x", history.Terminated, 0)), messages: []Message{msg(startOf("x"), "x", 1)},
			want: []Disposition{{Discard, RepairTracking, "DiscardingWorkItem", "Instance is Terminated"}},
		},
		"a start that is redelivered while the execution runs is a duplicate": {
			stored: stored(running, startOf("x"), &history.OrchestratorCompleted{}), messages: []Message{msg(startOf("x"), "x", 2)},
			want: []Disposition{duplicate("the execution has started already")},
		},
		"a start that is redelivered while steps run is delivered": {
			stored:   stored(running, startOf("x"), &history.OrchestratorCompleted{Header: history.Header{IsPlayed: true}}),
			messages: []Message{msg(startOf("x"), "x", 2)}, want: []Disposition{deliver},
		},
		"a start that is redelivered after a crash between the transactions of the first checkpoint is delivered": {
			stored: stored(running, startOf("x"), &history.TimerCreated{Header: history.Header{EventID: 0}}), messages: []Message{msg(startOf("x"), "x", 2)},
			want: []Disposition{deliver},
		},
		"a start that is redelivered while a later generation runs is discarded, even if the row is older": {
			stored: continuedFrom("x", pending), messages: []Message{msg(startOf("x"), "x", 2)}, want: []Disposition{continued},
		},
		"a child's start that is redelivered while a later generation runs is discarded": {
			stored: continuedFrom("x", nil), messages: []Message{msg(childStart("x"), "x", 2)}, want: []Disposition{continued},
		},
		"a start of an ID whose earlier instance has continued as new": {
			stored: continuedFrom("w", pending), messages: []Message{msg(startOf("x"), "x", 1)}, want: []Disposition{deliver},
		},
		"a start that is redelivered after the end is discarded": {
			stored: stored(running, startOf("x"), done), messages: []Message{msg(startOf("x"), "x", 2)}, want: []Disposition{ended},
		},
		"a child needs no row": {
			stored: stored(nil), messages: []Message{msg(childStart("x"), "x", 1)}, want: []Disposition{deliver},
		},
		"a redelivered start of a child is a duplicate": {
			stored: stored(running, childStart("x"), &history.OrchestratorCompleted{}), messages: []Message{msg(childStart("x"), "x", 2)},
			want: []Disposition{duplicate("the execution has started already")},
		},
		"a child whose ID belongs to a running instance is delivered, and the engine refuses it": {
			stored: stored(instanceRowOf("y", history.Running, 0), startOf("x")), messages: []Message{msg(childStart("c"), "c", 1), msg(raised, "", 1)},
			want: []Disposition{deliver, deliver},
		},
		"a child whose ID belongs to an instance that is about to start is held back": {
			stored: stored(instanceRowOf("y", history.Pending, 0)), messages: []Message{msg(childStart("c"), "c", 1), msg(childStart("c"), "c", 11)},
			want: []Disposition{otherIsStarting, deliver},
		},
		"a child whose ID belongs to an ended instance replaces it": {
			stored: stored(instanceRowOf("y", history.Failed, 0)), messages: []Message{msg(childStart("c"), "c", 1)},
			want: []Disposition{deliver},
		},
		"messages that arrive with the start are delivered with it": {
			stored: stored(pending), messages: []Message{msg(startOf("x"), "x", 1), msg(raised, "", 1), msg(raised, "x", 1)},
			want: []Disposition{deliver, deliver, deliver},
		},
		"a completion that arrives with the start is held back": {
			stored: stored(pending), messages: []Message{msg(startOf("x"), "x", 1), msg(taskDone(0), "x", 1)},
			want: []Disposition{deliver, outOfOrder},
		},
		"messages that arrive with a start that is held back are held back": {
			stored: stored(nil), messages: []Message{msg(startOf("x"), "x", 1), msg(raised, "", 1)},
			want: []Disposition{{HoldBack, RepairNothing, "AbandoningMessage", "the instance has no row with this execution yet"}, NotYetStarted},
		},

		// Instances without history.
		"an event before the start is held back while the instance is pending": {
			stored: stored(pending), messages: []Message{msg(raised, "", 40)}, want: []Disposition{NotYetStarted},
		},
		"an event for an unknown instance is held back once, because it may have overtaken a child's start": {
			stored: stored(nil), messages: []Message{after(time.Hour, msg(raised, "", 1))}, want: []Disposition{NotYetStarted},
		},
		"an event for an unknown instance is held back as long as slow storage can hide a start": {
			stored: stored(nil), messages: []Message{after(150*time.Second, msg(raised, "", 3))}, want: []Disposition{NotYetStarted},
		},
		"an old event for an unknown instance is discarded": {
			stored: stored(nil), messages: []Message{after(151*time.Second, msg(raised, "", 2))}, want: []Disposition{unknownInstance},
		},
		"a terminate of an unknown instance is discarded": {
			stored: stored(nil), messages: []Message{after(151*time.Second, msg(terminate, "", 2))}, want: []Disposition{unknownInstance},
		},
		"a terminate before the start terminates": {
			stored: stored(pending), messages: []Message{msg(terminate, "", 1)}, want: []Disposition{terminated},
		},
		"an event after such a terminate is discarded": {
			stored: stored(instanceRowOf("x", history.Terminated, 0)), messages: []Message{msg(raised, "", 1)}, want: []Disposition{ended},
		},
		"a completion before the history exists is held back": {
			stored: stored(pending), messages: []Message{msg(taskDone(0), "x", 5)}, want: []Disposition{outOfOrder},
		},
		"a completion without a history is discarded after five deliveries (IsOutOfOrderMessage)": {
			stored: stored(nil), messages: []Message{old(msg(taskDone(0), "x", 6))}, want: []Disposition{foreign},
		},
		"a completion is held back while a worker may still hide the start of its instance": {
			stored: stored(nil), messages: []Message{msg(taskDone(0), "x", 6)}, want: []Disposition{outOfOrder},
		},
		"messages to entities are delivered, because entities have no start": {
			id: "@counter@a", stored: stored(nil), messages: []Message{msg(raised, "", 9)}, want: []Disposition{deliver},
		},

		// Instances that have ended.
		"messages after the end are discarded and the row is repaired": {
			stored: stored(running, startOf("x"), done), messages: []Message{msg(raised, "", 1), msg(taskDone(0), "x", 1)},
			want: []Disposition{ended, ended},
		},
		"messages that arrive while the ID is started again are held back": {
			stored: stored(instanceRowOf("y", history.Pending, 20), startOf("x"), done), messages: []Message{msg(raised, "", 1), msg(taskDone(0), "x", 1)},
			want: []Disposition{NotYetStarted, ended},
		},

		// Running instances.
		"an event is delivered": {
			stored: stored(running, startOf("x")), messages: []Message{msg(raised, "", 1)}, want: []Disposition{deliver},
		},
		"a redelivered event that the history contains is a duplicate": {
			stored: stored(running, startOf("x"), raised), messages: []Message{msg(&history.EventRaised{Header: at(3), Name: "go", Input: new(`1`)}, "", 2)},
			want: []Disposition{duplicate("the history has this event already")},
		},
		"a new event equal to one in the history is delivered": {
			stored: stored(running, startOf("x"), raised), messages: []Message{msg(&history.EventRaised{Header: at(3), Name: "go", Input: new(`1`)}, "", 1)},
			want: []Disposition{deliver},
		},
		"an event that was enqueued hidden and committed by a crashed worker is a duplicate": {
			stored:   stored(running, startOf("x"), raised),
			messages: []Message{after(30*time.Second, msg(&history.EventRaised{Header: at(3), Name: "go", Input: new(`1`)}, "", 1))},
			want:     []Disposition{duplicate("the history has this event already")},
		},
		"a redelivered event that the history lacks is delivered": {
			stored: stored(running, startOf("x"), raised), messages: []Message{msg(&history.EventRaised{Header: at(4), Name: "go", Input: new(`1`)}, "", 2)},
			want: []Disposition{deliver},
		},
		"a completion of a scheduled action is delivered": {
			stored: stored(running, startOf("x"), scheduled(0)), messages: []Message{msg(taskDone(0), "x", 1)}, want: []Disposition{deliver},
		},
		"a result of the activity that is scheduled is delivered": {
			stored: stored(running, startOf("x"), scheduled(0)), messages: []Message{resultOf(judgeTime, taskDone(0))}, want: []Disposition{deliver},
		},
		"a completion of an action of another kind, from an uncommitted episode, is discarded": {
			stored: stored(running, startOf("x"), scheduled(0), timer(1, 60), child(2), &history.EventSent{Header: history.Header{EventID: 3, Timestamp: judgeTime}}),
			messages: []Message{
				msg(fired(0, 60), "x", 1), msg(taskDone(1), "x", 1), msg(taskDone(2), "x", 1), msg(taskDone(3), "x", 1),
				msg(childDone(1), "x", 1), msg(fired(2, 60), "x", 1), msg(childDone(3), "x", 1), msg(fired(1, 60), "x", 1), msg(childDone(2), "x", 1),
			},
			want: []Disposition{otherAction, otherAction, otherAction, otherAction, otherAction, otherAction, otherAction, deliver, deliver},
		},
		"a timer of an uncommitted episode is discarded": {
			stored: stored(running, startOf("x"), timer(0, 60)), messages: []Message{msg(fired(0, 5), "x", 1), msg(fired(0, 60), "x", 1)},
			want: []Disposition{otherAction, deliver},
		},
		"a result of an activity of an uncommitted episode is discarded": {
			stored:   stored(running, startOf("x"), scheduled(0)),
			messages: []Message{resultOf(judgeTime.Add(-time.Second), taskDone(0)), resultOf(judgeTime, taskDone(0))}, want: []Disposition{otherAction, deliver},
		},
		"a completion that arrives before the checkpoint is held back": {
			stored: stored(running, startOf("x"), scheduled(0)), messages: []Message{msg(taskDone(1), "x", 30)}, want: []Disposition{outOfOrder},
		},
		"a completion of an action that the history skipped is held back for a while": {
			stored: stored(running, startOf("x"), scheduled(3)), messages: []Message{msg(taskDone(1), "x", 1), old(msg(taskDone(2), "x", 6))},
			want: []Disposition{outOfOrder, foreign},
		},
		"a completion that the history contains is a duplicate": {
			stored: stored(running, startOf("x"), scheduled(0), taskDone(0)), messages: []Message{msg(taskDone(0), "x", 1)},
			want: []Disposition{duplicate("the history has this completion already")},
		},
		"the second of two equal completions in a batch is a duplicate": {
			stored: stored(running, startOf("x"), scheduled(0)), messages: []Message{msg(taskDone(0), "x", 1), msg(taskDone(0), "x", 1)},
			want: []Disposition{deliver, duplicate("the batch contains the completion twice")},
		},
		"a timer is held back until the history has created it": {
			stored: stored(running, startOf("x")), messages: []Message{msg(&history.TimerFired{Header: at(5), TimerID: 0}, "x", 1)}, want: []Disposition{outOfOrder},
		},
		"a result of another execution is held back for a while, because that may be the next one": {
			stored: stored(running, startOf("x")), messages: []Message{msg(taskDone(0), "y", 5), old(msg(taskDone(0), "y", 6))},
			want: []Disposition{outOfOrder, foreign},
		},
		"a result for the first generation is discarded while a later one runs": {
			stored: continuedFrom("x", instanceRowOf("y", history.Running, 0)), messages: []Message{msg(taskDone(0), "x", 1)},
			want: []Disposition{foreign},
		},
		"a result for a generation that this process has replaced is discarded": {
			stored: continuedFrom("w", instanceRowOf("y", history.Running, 0)), messages: []Message{superseded(msg(taskDone(0), "x", 1))},
			want: []Disposition{foreign},
		},
		"a result of an activity that was scheduled before the execution began is discarded": {
			stored: continuedFrom("w", instanceRowOf("y", history.Running, 0)), messages: []Message{resultOf(judgeTime.Add(-5*time.Minute-1), taskDone(0))},
			want: []Disposition{foreign},
		},
		"a result is held back if clock differences leave open which execution started first": {
			stored: continuedFrom("w", instanceRowOf("y", history.Running, 0)), messages: []Message{resultOf(judgeTime.Add(-5*time.Minute), taskDone(0))},
			want: []Disposition{outOfOrder},
		},
		"a result for an execution that is not recorded is held back": {
			stored: continuedFrom("w", instanceRowOf("y", history.Running, 0)), messages: []Message{msg(taskDone(0), "x", 1)},
			want: []Disposition{outOfOrder},
		},
		"a result for the execution in the row is held back, whenever its activity was scheduled": {
			stored: stored(pending), messages: []Message{resultOf(judgeTime.Add(-time.Hour), taskDone(0))},
			want: []Disposition{outOfOrder},
		},
		"a result for an earlier generation is discarded when another one is loaded": {
			stored: stored(running, startOf("x"), scheduled(0)), messages: []Message{superseded(msg(taskDone(0), "w", 1))},
			want: []Disposition{foreign},
		},
		"a result for the current execution is delivered even if this process knows it as superseded": {
			stored: current(stored(running, startOf("x"), scheduled(0))), messages: []Message{superseded(msg(taskDone(0), "x", 1)), superseded(msg(taskDone(7), "x", 1))},
			want: []Disposition{deliver, outOfOrder},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.id == "" {
				tt.id = "i"
			}
			got := Decide(tt.id, tt.stored, tt.messages)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(Disposition{})); diff != "" {
				t.Errorf("dispositions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecide_HoldsBackAWakeUpOfAnEndedInstanceOnce(t *testing.T) {
	t.Parallel()
	failed := stored(instanceRowOf("x", history.Failed, 0), startOf("x"), &history.ExecutionCompleted{Header: at(9), Status: history.Failed})
	wake := &history.GenericEvent{Header: at(10)}
	for deliveries, want := range map[int]Disposition{1: rewinding, 2: ended} {
		if got := Decide("i", failed, []Message{msg(wake, "", deliveries)}); got[0] != want {
			t.Errorf("delivery %d: %+v, want %+v", deliveries, got[0], want)
		}
	}
}

func TestDecide_HoldsBackACompletionUntilARewoundActionIsScheduledAgain(t *testing.T) {
	t.Parallel()
	takenOut := &history.GenericEvent{Header: at(1)}
	takenOut.EventID = 0
	rewound := stored(instanceRowOf("x", history.Pending, 0), startOf("x"), takenOut)
	if got := Decide("i", rewound, []Message{msg(taskDone(0), "x", 1)}); got[0] != outOfOrder {
		t.Errorf("before: %+v, want %+v", got[0], outOfOrder)
	}
	again := stored(instanceRowOf("x", history.Pending, 0), startOf("x"), takenOut, scheduled(0))
	if got := Decide("i", again, []Message{msg(taskDone(0), "x", 1)}); got[0] != deliver {
		t.Errorf("after: %+v, want %+v", got[0], deliver)
	}
}
