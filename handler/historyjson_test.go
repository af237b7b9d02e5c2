package handler

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/google/go-cmp/cmp"
)

var eventTime = time.Date(2026, 1, 5, 10, 20, 30, 123456700, time.UTC)

// at returns the header of an event at the given time after the first event.
func at(id int, after time.Duration) history.Header {
	return history.Header{EventID: id, IsPlayed: true, Timestamp: eventTime.Add(after)}
}

const none = history.NoEventID

// everyEvent returns a history with an event of every type, in no meaningful order.
func everyEvent() []history.Event {
	return []history.Event{
		&history.OrchestratorStarted{Header: at(none, 0)},
		&history.ExecutionStarted{
			Header: at(none, 0), Name: "MyOrchestrator", Version: "1", Input: new(`{"city":"Oslo"}`),
			Instance: history.OrchestrationInstance{InstanceID: "i", ExecutionID: "e"}, Tags: map[string]string{"t": "v"}, Generation: new(0),
			ParentTraceContext: &history.TraceContext{TraceParent: "00-1-2-01"}, ScheduledStart: eventTime.Add(time.Hour),
		},
		&history.TaskScheduled{Header: at(0, time.Second), Name: "SayHi", Version: "", Input: new(`["Oslo"]`)},
		&history.TaskScheduled{Header: at(1, time.Second), Name: "Boom"},
		&history.TaskScheduled{Header: at(2, time.Second), Name: "StillOpen"},
		&history.SubOrchestrationInstanceCreated{Header: at(3, time.Second), Name: "Child", InstanceID: "c", Input: new("1")},
		&history.SubOrchestrationInstanceCreated{Header: at(4, time.Second), Name: "Bad", InstanceID: "d"},
		&history.SubOrchestrationInstanceCreated{Header: at(5, time.Second), Name: "Open", InstanceID: "f", Input: new("2"), Tags: map[string]string{"t": "v"}},
		&history.OrchestratorCompleted{Header: at(none, time.Second)},
		&history.TaskCompleted{Header: at(none, 2*time.Second), TaskScheduledID: 0, Result: new(`"hi"`)},
		&history.TaskFailed{Header: at(none, 2*time.Second), TaskScheduledID: 1, Reason: new("boom"), Failure: &history.FailureDetails{
			ErrorType: "*errors.errorString", ErrorMessage: "boom", InnerFailure: &history.FailureDetails{ErrorType: "T", ErrorMessage: "m", IsNonRetriable: true},
			Properties: map[string]string{"a": "1"},
		}},
		&history.SubOrchestrationInstanceCompleted{Header: at(none, 2*time.Second), TaskScheduledID: 3, Result: new("raw text")},
		&history.SubOrchestrationInstanceFailed{Header: at(none, 2*time.Second), TaskScheduledID: 4, Reason: new("r"), Details: new("d")},
		&history.TaskCompleted{Header: at(none, 3*time.Second), TaskScheduledID: 99},
		&history.TimerCreated{Header: at(6, time.Second), FireAt: eventTime.Add(time.Minute)},
		&history.TimerFired{Header: at(none, time.Minute), TimerID: 6, FireAt: eventTime.Add(time.Minute)},
		&history.EventSent{Header: at(7, time.Minute), InstanceID: "other", Name: "Ping", Input: new("1")},
		&history.EventRaised{Header: at(none, time.Minute), Name: "Approve", Input: new("true")},
		&history.GenericEvent{Header: at(none, time.Minute), Data: new("x")},
		&history.HistoryState{Header: at(none, time.Minute), State: new("{}")},
		&history.ExecutionSuspended{Header: at(none, time.Minute), Reason: new("hold")},
		&history.ExecutionResumed{Header: at(none, time.Minute)},
		&history.ExecutionRewound{Header: at(none, time.Minute), Reason: new("again")},
		&history.ExecutionTerminated{Header: at(none, time.Minute), Reason: new("enough")},
		&history.ContinueAsNew{Header: at(8, time.Minute), Status: history.ContinuedAsNew, Result: new("3")},
		&history.ExecutionCompleted{Header: at(9, time.Minute), Status: history.Completed, Result: new("[1,2,3]")},
	}
}

// Covers the eight rules of DurableClient.cs, ConvertOrchestrationStateToStatus.
func TestShapeHistory_ShowsEveryEventAsTheExtensionDoes(t *testing.T) {
	t.Parallel()
	want := `{"EventType":"ExecutionStarted","Input":"{\"city\":\"Oslo\"}","Correlation":null,"ParentTraceContext":{"TraceParent":"00-1-2-01","TraceState":null,"Id":null,"SpanId":null,"ActivityStartTime":null},"ScheduledStartTime":"2026-01-05T11:20:30.1234567Z","Generation":0,"GenerateNewTrace":false,"Timestamp":"2026-01-05T10:20:30.1234567Z","FunctionName":"MyOrchestrator"}
{"EventType":"TaskScheduled","Name":"StillOpen","Input":null,"ParentTraceContext":null,"Tags":null,"Timestamp":"2026-01-05T10:20:31.1234567Z"}
{"EventType":"SubOrchestrationInstanceCreated","Name":"Open","InstanceId":"f","Input":"2","ClientSpanId":null,"Tags":{"t":"v"},"Timestamp":"2026-01-05T10:20:31.1234567Z"}
{"EventType":"TaskCompleted","Result":"hi","Timestamp":"2026-01-05T10:20:32.1234567Z","ScheduledTime":"2026-01-05T10:20:31.1234567Z","FunctionName":"SayHi","Input":"[\"Oslo\"]"}
{"EventType":"TaskFailed","Reason":"boom","Details":null,"FailureDetails":{"ErrorType":"*errors.errorString","ErrorMessage":"boom","StackTrace":null,"InnerFailure":{"ErrorType":"T","ErrorMessage":"m","StackTrace":null,"InnerFailure":null,"IsNonRetriable":true,"Properties":null},"IsNonRetriable":false,"Properties":{"a":1}},"Timestamp":"2026-01-05T10:20:32.1234567Z","ScheduledTime":"2026-01-05T10:20:31.1234567Z","FunctionName":"Boom","Input":null}
{"EventType":"SubOrchestrationInstanceCompleted","Result":"raw text","Timestamp":"2026-01-05T10:20:32.1234567Z","ScheduledTime":"2026-01-05T10:20:31.1234567Z","FunctionName":"Child","Input":"1"}
{"EventType":"SubOrchestrationInstanceFailed","Reason":"r","Details":"d","FailureDetails":null,"Timestamp":"2026-01-05T10:20:32.1234567Z","ScheduledTime":"2026-01-05T10:20:31.1234567Z","FunctionName":"Bad","Input":null}
{"EventType":"TaskCompleted","Result":null,"Timestamp":"2026-01-05T10:20:33.1234567Z"}
{"EventType":"TimerCreated","FireAt":"2026-01-05T10:21:30.1234567Z","Timestamp":"2026-01-05T10:20:31.1234567Z"}
{"EventType":"TimerFired","FireAt":"2026-01-05T10:21:30.1234567Z","Timestamp":"2026-01-05T10:21:30.1234567Z"}
{"EventType":"EventSent","InstanceId":"other","Name":"Ping","Input":"1","Timestamp":"2026-01-05T10:21:30.1234567Z"}
{"EventType":"EventRaised","Name":"Approve","Input":"true","ParentTraceContext":null,"Timestamp":"2026-01-05T10:21:30.1234567Z"}
{"EventType":"GenericEvent","Data":"x","Timestamp":"2026-01-05T10:21:30.1234567Z"}
{"EventType":"HistoryState","State":"{}","Timestamp":"2026-01-05T10:21:30.1234567Z"}
{"EventType":"ExecutionSuspended","Reason":"hold","Timestamp":"2026-01-05T10:21:30.1234567Z"}
{"EventType":"ExecutionResumed","Reason":null,"Timestamp":"2026-01-05T10:21:30.1234567Z"}
{"EventType":"ExecutionRewound","Reason":"again","ParentExecutionId":null,"InstanceId":null,"ParentTraceContext":null,"Timestamp":"2026-01-05T10:21:30.1234567Z"}
{"EventType":"ExecutionTerminated","Input":"enough","Timestamp":"2026-01-05T10:21:30.1234567Z"}
{"EventType":"ContinueAsNew","OrchestrationStatus":"ContinuedAsNew","Result":3,"FailureDetails":null,"Timestamp":"2026-01-05T10:21:30.1234567Z"}
{"EventType":"ExecutionCompleted","OrchestrationStatus":"Completed","Result":[1,2,3],"FailureDetails":null,"Timestamp":"2026-01-05T10:21:30.1234567Z"}`
	if diff := cmp.Diff(shaped(t, true, true), strings.Split(want, "\n")); diff != "" {
		t.Errorf("got, want:\n%s", diff)
	}
}

func shaped(t *testing.T, showInput, showOutput bool) []string {
	t.Helper()
	var out []string
	for _, e := range management.ShapeHistory(everyEvent(), showInput, showOutput) {
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(text))
	}
	return out
}

func TestShapeHistory_OmitsInputsAndOutputsUnlessRequested(t *testing.T) {
	t.Parallel()
	full := shaped(t, true, true)
	count := func(events []string, member string) int {
		return strings.Count(strings.Join(events, "\n"), `"`+member+`":`)
	}
	for _, tt := range []struct {
		showInput, showOutput bool
		inputs, results       int
	}{{true, false, count(full, "Input"), 0}, {false, true, 0, count(full, "Result")}, {false, false, 0, 0}} {
		got := shaped(t, tt.showInput, tt.showOutput)
		if count(got, "Input") != tt.inputs || count(got, "Result") != tt.results || len(got) != len(full) {
			t.Errorf("%+v: %d inputs, %d results, %d events", tt, count(got, "Input"), count(got, "Result"), len(got))
		}
		for _, dropped := range []string{"EventId", "IsPlayed", "Version", "TimerId", "TaskScheduledId", "OrchestrationInstance", "ParentInstance"} {
			if n := count(got, dropped); n > 0 {
				t.Errorf("%d events have %s", n, dropped)
			}
		}
	}
}

// The extension answers 400 to two scheduling events with one ID.
func TestShapeHistory_AcceptsTwoEventsWithOneID(t *testing.T) {
	t.Parallel()
	got := management.ShapeHistory([]history.Event{
		&history.TaskScheduled{Header: at(0, 0), Name: "First"},
		&history.TaskScheduled{Header: at(0, 0), Name: "Second"},
		&history.TaskCompleted{Header: at(none, 0), TaskScheduledID: 0},
	}, false, false)
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"EventType":"TaskScheduled","Name":"First","ParentTraceContext":null,"Tags":null,"Timestamp":"2026-01-05T10:20:30.1234567Z"},` +
		`{"EventType":"TaskCompleted","Timestamp":"2026-01-05T10:20:30.1234567Z","ScheduledTime":"2026-01-05T10:20:30.1234567Z","FunctionName":"Second"}]`
	if diff := cmp.Diff(string(text), want); diff != "" {
		t.Errorf("got, want:\n%s", diff)
	}
}
