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

// stored makes what is stored of an instance: a history of execution "x".
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

// old is a message that was sent so long ago that no worker can still hide another.
func old(m Message) Message {
	m.Age = (SlowLocks+1)*m.Lock + time.Second
	return m
}

func msg(ev history.Event, executionID string, dequeueCount int) Message {
	return Message{
		Event: ev, ExecutionID: executionID, DequeueCount: dequeueCount, ReceivedAt: judgeTime.Add(10 * time.Second),
		Age: 10 * time.Second, Lock: 30 * time.Second,
	}
}

// continuedFrom makes what is stored when an execution has continued as new since:
// nothing of the one that is wanted, "x", but that the current one goes back to first.
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

// superseded returns m as a process receives it that has replaced its execution.
func superseded(m Message) Message {
	m.Superseded = true
	return m
}

// after returns m as it is when it is received so long after it was sent.
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
		"a start whose row is there begins": {
			stored: stored(pending), messages: []Message{msg(startOf("x"), "x", 1)}, want: []Disposition{deliver},
		},
		"execution IDs are compared without regard to case": {
			stored: stored(instanceRowOf("X", history.Pending, 0)), messages: []Message{msg(startOf("x"), "x", 1)}, want: []Disposition{deliver},
		},
		"a row of an old version without execution ID will do": {
			stored: stored(instanceRowOf("", history.Pending, 0)), messages: []Message{msg(startOf("x"), "x", 1)}, want: []Disposition{deliver},
		},
		"a start waits for its row": {
			stored: stored(nil), messages: []Message{msg(startOf("x"), "x", 1)},
			want: []Disposition{{HoldBack, RepairNothing, "AbandoningMessage", "the instance has no row with this execution yet"}},
		},
		"but not for ever": {
			stored: stored(nil), messages: []Message{after(17*time.Minute, msg(startOf("x"), "x", 10))},
			want: []Disposition{refused("the instance has no row with this execution")},
		},
		"a start that workers have released often waits as long": {
			stored: stored(nil), messages: []Message{after(5*time.Minute, msg(startOf("x"), "x", 20))},
			want: []Disposition{{HoldBack, RepairNothing, "AbandoningMessage", "the instance has no row with this execution yet"}},
		},
		"a start that lost to another client's, whose row was there before": {
			stored: stored(instanceRowOf("y", history.Pending, -1)), messages: []Message{msg(startOf("x"), "x", 1)},
			want: []Disposition{refused("the instance was created by another start message")},
		},
		"a start that lost, seen again after the row was written": {
			stored: stored(instanceRowOf("y", history.Running, 1)), messages: []Message{msg(startOf("x"), "x", 2)},
			want: []Disposition{refused("the instance was created by another start message")},
		},
		"a start of another generation waits for its row": {
			stored: stored(&wire.InstanceRow{Generation: new(1), State: instanceRowOf("y", history.Completed, -1).State}), messages: []Message{msg(startOf("x"), "x", 1)},
			want: []Disposition{{HoldBack, RepairNothing, "AbandoningMessage", "the instance has no row with this execution yet"}},
		},
		"a start of an execution that was terminated before does not begin": {
			stored: stored(instanceRowOf("x", history.Terminated, 0)), messages: []Message{msg(startOf("x"), "x", 1)},
			want: []Disposition{{Discard, RepairTracking, "DiscardingWorkItem", "Instance is Terminated"}},
		},
		"a start that comes again while the execution runs": {
			stored: stored(running, startOf("x")), messages: []Message{msg(startOf("x"), "x", 2)},
			want: []Disposition{duplicate("the execution has started already")},
		},
		"a start that comes again while a later generation runs, of which the row knows nothing": {
			stored: continuedFrom("x", pending), messages: []Message{msg(startOf("x"), "x", 2)}, want: []Disposition{continued},
		},
		"a child that comes again while a later generation runs": {
			stored: continuedFrom("x", nil), messages: []Message{msg(childStart("x"), "x", 2)}, want: []Disposition{continued},
		},
		"a start of an ID whose earlier instance has continued as new": {
			stored: continuedFrom("w", pending), messages: []Message{msg(startOf("x"), "x", 1)}, want: []Disposition{deliver},
		},
		"a start that comes again after the end": {
			stored: stored(running, startOf("x"), done), messages: []Message{msg(startOf("x"), "x", 2)}, want: []Disposition{ended},
		},
		"a child needs no row": {
			stored: stored(nil), messages: []Message{msg(childStart("x"), "x", 1)}, want: []Disposition{deliver},
		},
		"a child that comes again": {
			stored: stored(running, childStart("x")), messages: []Message{msg(childStart("x"), "x", 2)},
			want: []Disposition{duplicate("the execution has started already")},
		},
		"a child whose ID belongs to an instance that goes on is for the engine to refuse": {
			stored: stored(instanceRowOf("y", history.Running, 0), startOf("x")), messages: []Message{msg(childStart("c"), "c", 1), msg(raised, "", 1)},
			want: []Disposition{deliver, deliver},
		},
		"a child whose ID belongs to an instance that is about to start waits": {
			stored: stored(instanceRowOf("y", history.Pending, 0)), messages: []Message{msg(childStart("c"), "c", 1), msg(childStart("c"), "c", 11)},
			want: []Disposition{otherStarts, deliver},
		},
		"a child whose ID belongs to an instance that has ended takes its place": {
			stored: stored(instanceRowOf("y", history.Failed, 0)), messages: []Message{msg(childStart("c"), "c", 1)},
			want: []Disposition{deliver},
		},
		"what comes with the start begins with it": {
			stored: stored(pending), messages: []Message{msg(startOf("x"), "x", 1), msg(raised, "", 1), msg(raised, "x", 1)},
			want: []Disposition{deliver, deliver, deliver},
		},
		"but nothing that completes what has not been scheduled": {
			stored: stored(pending), messages: []Message{msg(startOf("x"), "x", 1), msg(taskDone(0), "x", 1)},
			want: []Disposition{deliver, outOfOrder},
		},
		"what comes with a start that has to wait, waits": {
			stored: stored(nil), messages: []Message{msg(startOf("x"), "x", 1), msg(raised, "", 1)},
			want: []Disposition{{HoldBack, RepairNothing, "AbandoningMessage", "the instance has no row with this execution yet"}, NotYetStarted},
		},

		// Instances without history.
		"an event before the start waits while the instance is pending": {
			stored: stored(pending), messages: []Message{msg(raised, "", 40)}, want: []Disposition{NotYetStarted},
		},
		"an event for nobody waits once, since it may have overtaken a child's start": {
			stored: stored(nil), messages: []Message{after(time.Hour, msg(raised, "", 1))}, want: []Disposition{NotYetStarted},
		},
		"it waits as long as the start can be hidden where storage is slow": {
			stored: stored(nil), messages: []Message{after(150*time.Second, msg(raised, "", 3))}, want: []Disposition{NotYetStarted},
		},
		"and is then discarded": {
			stored: stored(nil), messages: []Message{after(151*time.Second, msg(raised, "", 2))}, want: []Disposition{unknownInstance},
		},
		"a terminate of nobody is discarded, too": {
			stored: stored(nil), messages: []Message{after(151*time.Second, msg(terminate, "", 2))}, want: []Disposition{unknownInstance},
		},
		"a terminate before the start terminates": {
			stored: stored(pending), messages: []Message{msg(terminate, "", 1)}, want: []Disposition{terminated},
		},
		"an event after such a terminate is discarded": {
			stored: stored(instanceRowOf("x", history.Terminated, 0)), messages: []Message{msg(raised, "", 1)}, want: []Disposition{ended},
		},
		"a completion before the history is there waits": {
			stored: stored(pending), messages: []Message{msg(taskDone(0), "x", 5)}, want: []Disposition{outOfOrder},
		},
		"IsOutOfOrderMessage: after five deliveries it is believed that none will be": {
			stored: stored(nil), messages: []Message{old(msg(taskDone(0), "x", 6))}, want: []Disposition{foreign},
		},
		"a completion waits while a worker may still hide the start of its instance": {
			stored: stored(nil), messages: []Message{msg(taskDone(0), "x", 6)}, want: []Disposition{outOfOrder},
		},
		"messages to entities are handed out, since nothing starts an entity": {
			id: "@counter@a", stored: stored(nil), messages: []Message{msg(raised, "", 9)}, want: []Disposition{deliver},
		},

		// Instances that have ended.
		"what comes after the end is discarded and the row looked after": {
			stored: stored(running, startOf("x"), done), messages: []Message{msg(raised, "", 1), msg(taskDone(0), "x", 1)},
			want: []Disposition{ended, ended},
		},
		"what comes while the ID is started again waits for that": {
			stored: stored(instanceRowOf("y", history.Pending, 20), startOf("x"), done), messages: []Message{msg(raised, "", 1), msg(taskDone(0), "x", 1)},
			want: []Disposition{NotYetStarted, ended},
		},

		// Instances that go on.
		"an event is delivered": {
			stored: stored(running, startOf("x")), messages: []Message{msg(raised, "", 1)}, want: []Disposition{deliver},
		},
		"an event that comes again after it was taken": {
			stored: stored(running, startOf("x"), raised), messages: []Message{msg(&history.EventRaised{Header: at(3), Name: "go", Input: new(`1`)}, "", 2)},
			want: []Disposition{duplicate("the history has this event already")},
		},
		"an event like one that was taken, but received for the first time": {
			stored: stored(running, startOf("x"), raised), messages: []Message{msg(&history.EventRaised{Header: at(3), Name: "go", Input: new(`1`)}, "", 1)},
			want: []Disposition{deliver},
		},
		"an event that was taken when it was hidden from the start, by a worker that died then": {
			stored:   stored(running, startOf("x"), raised),
			messages: []Message{after(30*time.Second, msg(&history.EventRaised{Header: at(3), Name: "go", Input: new(`1`)}, "", 1))},
			want:     []Disposition{duplicate("the history has this event already")},
		},
		"an event that comes again and was not taken": {
			stored: stored(running, startOf("x"), raised), messages: []Message{msg(&history.EventRaised{Header: at(4), Name: "go", Input: new(`1`)}, "", 2)},
			want: []Disposition{deliver},
		},
		"a completion of what is scheduled is delivered": {
			stored: stored(running, startOf("x"), scheduled(0)), messages: []Message{msg(taskDone(0), "x", 1)}, want: []Disposition{deliver},
		},
		"a result of the activity that is scheduled is delivered": {
			stored: stored(running, startOf("x"), scheduled(0)), messages: []Message{resultOf(judgeTime, taskDone(0))}, want: []Disposition{deliver},
		},
		"a completion of an action of another kind, of an episode that does not count": {
			stored: stored(running, startOf("x"), scheduled(0), timer(1, 60), child(2), &history.EventSent{Header: history.Header{EventID: 3, Timestamp: judgeTime}}),
			messages: []Message{
				msg(fired(0, 60), "x", 1), msg(taskDone(1), "x", 1), msg(taskDone(2), "x", 1), msg(taskDone(3), "x", 1),
				msg(childDone(1), "x", 1), msg(fired(2, 60), "x", 1), msg(childDone(3), "x", 1), msg(fired(1, 60), "x", 1), msg(childDone(2), "x", 1),
			},
			want: []Disposition{otherAction, otherAction, otherAction, otherAction, otherAction, otherAction, otherAction, deliver, deliver},
		},
		"a timer that an episode created which does not count": {
			stored: stored(running, startOf("x"), timer(0, 60)), messages: []Message{msg(fired(0, 5), "x", 1), msg(fired(0, 60), "x", 1)},
			want: []Disposition{otherAction, deliver},
		},
		"a result of an activity that an episode scheduled which does not count": {
			stored:   stored(running, startOf("x"), scheduled(0)),
			messages: []Message{resultOf(judgeTime.Add(-time.Second), taskDone(0)), resultOf(judgeTime, taskDone(0))}, want: []Disposition{otherAction, deliver},
		},
		"a completion faster than the checkpoint waits": {
			stored: stored(running, startOf("x"), scheduled(0)), messages: []Message{msg(taskDone(1), "x", 30)}, want: []Disposition{outOfOrder},
		},
		"a completion of what the history went past waits a while": {
			stored: stored(running, startOf("x"), scheduled(3)), messages: []Message{msg(taskDone(1), "x", 1), old(msg(taskDone(2), "x", 6))},
			want: []Disposition{outOfOrder, foreign},
		},
		"a completion that the history has": {
			stored: stored(running, startOf("x"), scheduled(0), taskDone(0)), messages: []Message{msg(taskDone(0), "x", 1)},
			want: []Disposition{duplicate("the history has this completion already")},
		},
		"a completion that comes twice at a time": {
			stored: stored(running, startOf("x"), scheduled(0)), messages: []Message{msg(taskDone(0), "x", 1), msg(taskDone(0), "x", 1)},
			want: []Disposition{deliver, duplicate("the same completion came twice")},
		},
		"a timer waits for its creation": {
			stored: stored(running, startOf("x")), messages: []Message{msg(&history.TimerFired{Header: at(5), TimerID: 0}, "x", 1)}, want: []Disposition{outOfOrder},
		},
		"a result of another execution waits a while, since that may be the next": {
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
		"a result waits if the clocks of workers leave open which execution began first": {
			stored: continuedFrom("w", instanceRowOf("y", history.Running, 0)), messages: []Message{resultOf(judgeTime.Add(-5*time.Minute), taskDone(0))},
			want: []Disposition{outOfOrder},
		},
		"a result for an execution that no record names waits": {
			stored: continuedFrom("w", instanceRowOf("y", history.Running, 0)), messages: []Message{msg(taskDone(0), "x", 1)},
			want: []Disposition{outOfOrder},
		},
		"a result of the execution in the row waits, whenever it was scheduled": {
			stored: stored(pending), messages: []Message{resultOf(judgeTime.Add(-time.Hour), taskDone(0))},
			want: []Disposition{outOfOrder},
		},
		"a result for an earlier generation is discarded when another one is loaded": {
			stored: stored(running, startOf("x"), scheduled(0)), messages: []Message{superseded(msg(taskDone(0), "w", 1))},
			want: []Disposition{foreign},
		},
		"a result that the current execution waits for is delivered whatever this process remembers": {
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

func TestDecide_HoldsAWakeUpBackOnceThoughTheInstanceHasEnded(t *testing.T) {
	t.Parallel()
	failed := stored(instanceRowOf("x", history.Failed, 0), startOf("x"), &history.ExecutionCompleted{Header: at(9), Status: history.Failed})
	wake := &history.GenericEvent{Header: at(10)}
	for deliveries, want := range map[int]Disposition{1: rewinding, 2: ended} {
		if got := Decide("i", failed, []Message{msg(wake, "", deliveries)}); got[0] != want {
			t.Errorf("delivery %d: %+v, want %+v", deliveries, got[0], want)
		}
	}
}

func TestDecide_WaitsForWhatARewindTookOutToBeScheduledAgain(t *testing.T) {
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
