package provider_test

import (
	"errors"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func TestDisposition_OfEachMessage(t *testing.T) {
	t.Parallel()
	message := func(e history.Event, execution string) provider.TaskMessage {
		return provider.TaskMessage{Event: e, Target: history.OrchestrationInstance{InstanceID: "i", ExecutionID: execution}}
	}
	event := func(execution string) provider.TaskMessage {
		return message(&history.EventRaised{Name: "E"}, execution)
	}
	result := func(id int, execution string) provider.TaskMessage {
		return message(&history.TaskCompleted{TaskScheduledID: id}, execution)
	}
	start := func(execution string) provider.TaskMessage {
		return message(&history.ExecutionStarted{Instance: history.OrchestrationInstance{InstanceID: "i", ExecutionID: execution}}, execution)
	}
	child := func(execution string, action int) provider.TaskMessage {
		m := start(execution)
		m.Event.(*history.ExecutionStarted).Parent = &history.ParentInstance{
			Instance: history.OrchestrationInstance{InstanceID: "p", ExecutionID: "q"}, TaskScheduleID: action,
		}
		return m
	}
	signal := event("")
	signal.Target.InstanceID = "@e@k"

	unknown := provider.Progress{}
	pending := provider.Progress{Known: true, Execution: "x", Status: history.Pending}
	starting := provider.Progress{Known: true, Execution: "x", Status: history.Pending, Starting: true}
	running := provider.Progress{Known: true, Execution: "x", Status: history.Running, HasHistory: true}
	rewound := provider.Progress{Known: true, Execution: "x", Status: history.Pending, HasHistory: true}
	ended := provider.Progress{Known: true, Execution: "x", Status: history.Completed, HasHistory: true}
	neverBegan := provider.Progress{Known: true, Execution: "x", Status: history.Terminated}
	past := []history.Event{child("x", 3).Event, &history.TaskScheduled{Header: history.Header{EventID: 1}}}

	for _, tt := range []struct {
		name     string
		progress provider.Progress
		message  provider.TaskMessage
		trusted  bool
		want     provider.Disposition
	}{
		{"the start of a new instance", pending, start("x"), false, provider.StartExecution},
		{"the start of an unknown instance", unknown, start("x"), false, provider.StartExecution},
		{"the start of an execution that has begun", running, start("x"), false, provider.Discard},
		{"the start of an execution that was rewound", rewound, start("x"), false, provider.Discard},
		{"the start of an execution that has ended", ended, start("x"), false, provider.Discard},
		{"the start of an execution that was terminated before it", neverBegan, start("x"), false, provider.Discard},
		{"a start that a client has replaced", pending, start("y"), false, provider.Discard},
		{"a start that a client has replaced by one that runs", running, start("y"), false, provider.Discard},

		{"a child with an unknown ID", unknown, child("y", 0), false, provider.StartExecution},
		{"a child with the ID of a pending instance", pending, child("y", 0), false, provider.HoldBack},
		{"a child with the ID of a starting instance", starting, child("y", 0), false, provider.HoldBack},
		{"a child with the ID of a running instance", running, child("y", 0), false, provider.Deliver},
		{"a child with the ID of a rewound instance", rewound, child("y", 0), false, provider.Deliver},
		{"a child with the ID of an ended instance", ended, child("y", 0), false, provider.StartExecution},
		{"the same child, which has continued as new and ended", ended, child("y", 3), false, provider.Discard},
		{"a child with the ID of an instance terminated before its start", neverBegan, child("y", 0), false, provider.StartExecution},

		{"a signal to an unknown entity", unknown, signal, false, provider.Deliver},
		{"a signal to an entity", running, signal, false, provider.Deliver},
		{"an event for an unknown instance", unknown, event(""), false, provider.Discard},
		{"a result for an unknown instance", unknown, result(1, ""), false, provider.Discard},
		{"an event before the start is due", pending, event(""), false, provider.HoldBack},
		{"an event with the start", starting, event(""), false, provider.Deliver},
		{"an event for any execution", running, event(""), false, provider.Deliver},
		{"an event for the current execution", running, event("x"), false, provider.Deliver},
		{"an event for another execution", running, event("y"), false, provider.OtherExecution},
		{"an event for an execution other than the pending one", pending, event("y"), false, provider.OtherExecution},
		{"an event for an instance that has ended", ended, event(""), false, provider.Discard},
		{"an event for an instance that was terminated before its start", neverBegan, event(""), false, provider.Discard},
		{"a result for an instance that has ended", ended, result(1, "x"), true, provider.Discard},

		{"a result whose scheduling event is in the history", running, result(1, "x"), false, provider.Deliver},
		{"a result whose scheduling event is missing", running, result(2, "x"), false, provider.HoldBack},
		{"a trusted result", running, result(2, "x"), true, provider.Deliver},
		{"a trusted result of another execution", running, result(2, "y"), true, provider.OtherExecution},
		{"a trusted result for an execution that was rewound", rewound, result(2, "x"), true, provider.Deliver},
		{"a result with the start", starting, result(1, "x"), false, provider.HoldBack},
		{"a trusted result with the start", starting, result(1, "x"), true, provider.HoldBack},
		{"a failed child whose scheduling event is missing", running, message(&history.SubOrchestrationInstanceFailed{TaskScheduledID: 2}, ""), false, provider.HoldBack},
		{"a timer that the history has", running, message(&history.TimerFired{TimerID: 1}, ""), false, provider.Deliver},
	} {
		tt.progress.History = func() ([]history.Event, error) { return past, nil }
		got, err := tt.progress.Disposition(tt.message, tt.trusted)
		if err != nil || got != tt.want {
			t.Errorf("%s: got %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
}

func TestDisposition_ReadsTheHistoryAtMostOnce(t *testing.T) {
	t.Parallel()
	reads := 0
	p := provider.Progress{Known: true, HasHistory: true, History: func() ([]history.Event, error) { reads++; return nil, nil }}
	for i, m := range []history.Event{&history.EventRaised{}, &history.TaskCompleted{}, &history.TimerFired{}} {
		if _, err := p.Disposition(provider.TaskMessage{Event: m}, false); err != nil {
			t.Error(err)
		}
		if want := min(i, 1); reads != want {
			t.Errorf("after message %d the history was read %d times, want %d", i, reads, want)
		}
	}
	broken := errors.New("broken")
	p = provider.Progress{Known: true, HasHistory: true, History: func() ([]history.Event, error) { return nil, broken }}
	if _, err := p.Disposition(provider.TaskMessage{Event: &history.TaskFailed{}}, false); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}
