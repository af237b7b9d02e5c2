package wire

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/history/historytest"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// oneOfEach returns events of each class, with and without optional members.
func oneOfEach() []history.Event {
	at := time.Date(2026, 11, 20, 18, 33, 4, 138074400, time.UTC)
	head := func(id int) history.Header { return history.Header{EventID: id, IsPlayed: id%2 == 0, Timestamp: at} }
	text := new("té\"xt\u2028<&>")
	instance := history.OrchestrationInstance{InstanceID: "a/b'c", ExecutionID: "8747b3a46089446a9771b91d72f57a5a"}
	parent := &history.ParentInstance{Name: "Parent", Version: "v1", Instance: history.OrchestrationInstance{InstanceID: "p"}, TaskScheduleID: 3}
	tags := map[string]string{"a": "1", "quo\"te": "<é>", "": ""}
	trace := &history.TraceContext{
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		TraceState:  new("k=v"), ID: new("id"), SpanID: new("b7ad6b7169203331"), ActivityStartTime: new("2026-11-20T18:33:04.1+00:00"),
	}
	failure := &history.FailureDetails{
		ErrorType: "main.Err", ErrorMessage: "kaboom", StackTrace: new("at x\n at y"), IsNonRetriable: true,
		InnerFailure: &history.FailureDetails{ErrorType: "inner", Properties: map[string]string{}},
		Properties:   map[string]string{"code": "5", "list": `[1,{"a":null}]`, "text": `"x"`},
	}
	return []history.Event{
		&history.ExecutionStarted{Header: head(-1), Instance: instance, Name: "N"},
		&history.ExecutionStarted{
			Header: head(-1), Instance: instance, Parent: parent, Name: "N", Version: "1.2", Input: text, Tags: tags, Correlation: text,
			ParentTraceContext: trace, ScheduledStart: at.Add(time.Hour), Generation: new(4), GenerateNewTrace: true,
		},
		&history.ExecutionCompleted{Header: head(4), Status: history.Completed, Result: text},
		&history.ExecutionCompleted{Header: head(5), Status: history.Failed, Result: text, Failure: failure},
		&history.ExecutionTerminated{Header: head(-1), Reason: text},
		&history.ExecutionSuspended{Header: head(-1), Reason: text},
		&history.ExecutionResumed{Header: head(-1)},
		&history.ExecutionRewound{Header: head(-1), Reason: text, ParentExecutionID: text, InstanceID: text, ParentTraceContext: trace},
		&history.ExecutionRewound{Header: head(-1)},
		&history.ContinueAsNew{Header: head(7), Status: history.ContinuedAsNew, Result: text},
		&history.TaskScheduled{Header: head(0), Name: "T"},
		&history.TaskScheduled{Header: head(0), Name: "T", Version: "2", Input: text, ParentTraceContext: &history.TraceContext{}, Tags: tags},
		&history.TaskCompleted{Header: head(-1), TaskScheduledID: 9, Result: text},
		&history.TaskCompleted{Header: head(-1)},
		&history.TaskFailed{Header: head(-1), TaskScheduledID: 9, Reason: text, Details: text},
		&history.TaskFailed{Header: head(-1), TaskScheduledID: 9, Reason: text, Failure: failure},
		&history.SubOrchestrationInstanceCreated{Header: head(1), Name: "S", Version: "3", InstanceID: "x:0", Input: text, ClientSpanID: text, Tags: tags},
		&history.SubOrchestrationInstanceCompleted{Header: head(-1), TaskScheduledID: 1, Result: text},
		&history.SubOrchestrationInstanceFailed{Header: head(-1), TaskScheduledID: 1, Reason: text, Details: text, Failure: failure},
		&history.TimerCreated{Header: head(2), FireAt: at.Add(time.Minute)},
		&history.TimerFired{Header: head(-1), TimerID: 2, FireAt: at.Add(time.Minute)},
		&history.OrchestratorStarted{Header: head(-1)},
		&history.OrchestratorCompleted{Header: head(-1)},
		&history.EventSent{Header: head(3), InstanceID: "@c@k", Name: "op", Input: text},
		&history.EventRaised{Header: head(-1), Name: "approve", Input: text, ParentTraceContext: trace},
		&history.GenericEvent{Header: head(-1), Data: text},
		&history.HistoryState{Header: head(-1), State: new(`{"a":[1,2]}`)},
		&history.HistoryState{Header: head(-1)},
	}
}

func TestMessages_RoundTripEveryEvent(t *testing.T) {
	seen := map[history.EventType]bool{}
	for _, ev := range oneOfEach() {
		seen[ev.Type()] = true
		want := &Envelope{
			ActivityID: uuid.MustParse("23221245-03aa-4809-a73c-88b3128d9d26"),
			Message: &provider.TaskMessage{
				Event:  ev,
				Target: history.OrchestrationInstance{InstanceID: "a/b'c", ExecutionID: "e"},
				Tags:   map[string]string{"t": "1"},
			},
			SequenceNumber: 1 << 40,
			Episode:        new(3),
			Sender:         &history.OrchestrationInstance{InstanceID: "s", ExecutionID: "e2"},
			TraceContext:   new("{}"),
		}
		for _, asBase64 := range []bool{false, true} {
			text, err := EncodeEnvelope(want)
			if err != nil {
				t.Fatalf("%T: %v", ev, err)
			}
			got, err := DecodeEnvelope(EncodeQueueText(text, asBase64))
			if err != nil {
				t.Fatalf("%T: %v", ev, err)
			}
			if diff := cmp.Diff(got, want); diff != "" {
				t.Errorf("%T, Base64 %t (-got +want):\n%s", ev, asBase64, diff)
			}
		}
	}
	for typ := history.TypeExecutionStarted; typ <= history.TypeExecutionRewound; typ++ {
		if !seen[typ] && typ != history.TypeExecutionFailed {
			t.Errorf("no event of type %s was tried", typ)
		}
	}
}

// Events that no recording contains have their members in the order of their classes in
// DurableTask.Core/History.
func TestMessages_WriteUnrecordedEventsInTheOrderOfTheirClass(t *testing.T) {
	head := history.Header{EventID: -1, Timestamp: time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)}
	const tail = `"EventId":-1,"IsPlayed":false,"Timestamp":"2026-11-20T18:00:00Z"}`
	for _, c := range []struct {
		ev   history.Event
		want string
	}{
		{
			&history.ExecutionRewound{Header: head, Reason: new("r")},
			`{"$type":"DurableTask.Core.History.ExecutionRewoundEvent","EventType":21,"Reason":"r","ParentExecutionId":null,"InstanceId":null,"ParentTraceContext":null,`,
		},
		{
			&history.ContinueAsNew{Header: head, Status: history.ContinuedAsNew, Result: new("1")},
			`{"$type":"DurableTask.Core.History.ContinueAsNewEvent","EventType":16,"OrchestrationStatus":2,"Result":"1","FailureDetails":null,`,
		},
		{
			&history.EventRaised{Header: head, Name: "n", ParentTraceContext: &history.TraceContext{TraceParent: "00-1"}},
			`{"$type":"DurableTask.Core.History.EventRaisedEvent","EventType":15,"Name":"n","Input":null,"ParentTraceContext":{"$type":"DurableTask.Core.Tracing.DistributedTraceContext","TraceParent":"00-1","TraceState":null,"Id":null,"SpanId":null,"ActivityStartTime":null},`,
		},
	} {
		w := jsonWriter{types: true}
		if err := w.event(c.ev); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(w.buf), c.want+tail); diff != "" {
			t.Errorf("%T (-got +want):\n%s", c.ev, diff)
		}
	}
}

// minimal is a message with only the members that .NET requires too, $type only in the event, and unknown
// members.
const minimal = `{"ActivityId":"23221245-03aa-4809-a73c-88b3128d9d26","Novelty":{"a":[1]},"TaskMessage":{"Event":{` +
	`"$type":"DurableTask.Core.History.TaskScheduledEvent","EventType":4,"Name":"Hello","Tags":{"t1":"v1"},"Novelty":5,"EventId":7,"Timestamp":"2026-11-20T18:32:47.8523574"},` +
	`"OrchestrationInstance":{"InstanceId":"seq1","ExecutionId":null}}}`

func TestDecodeEnvelope_AcceptsTheMinimumOfDotNet(t *testing.T) {
	got, err := DecodeEnvelope(minimal)
	if err != nil {
		t.Fatal(err)
	}
	want := &Envelope{
		ActivityID: uuid.MustParse("23221245-03aa-4809-a73c-88b3128d9d26"),
		Message: &provider.TaskMessage{
			Event: &history.TaskScheduled{
				Header: history.Header{EventID: 7, Timestamp: time.Date(2026, 11, 20, 18, 32, 47, 852357400, time.UTC)},
				Name:   "Hello", Tags: map[string]string{"t1": "v1"},
			},
			Target: history.OrchestrationInstance{InstanceID: "seq1"},
		},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("envelope (-got +want):\n%s", diff)
	}
}

// Old messages contain assembly names in types, and mscorlib in dictionaries.
func TestDecodeEnvelope_IgnoresAssembliesInTypes(t *testing.T) {
	old := strings.NewReplacer(
		`"$type":"DurableTask.Core.History.TaskScheduledEvent"`,
		`"$type":"DurableTask.Core.History.TaskScheduledEvent, DurableTask.Core, Version=2.0.0.6, Culture=neutral, PublicKeyToken=d53979610a6e89dd"`,
		`"Tags":{`, `"Tags":{"$type":"System.Collections.Generic.Dictionary`+"`"+`2[[System.String, mscorlib],[System.String, mscorlib]], mscorlib",`,
		`"TaskMessage":{`, `"TaskMessage":{"$type":"DurableTask.Core.TaskMessage, DurableTask.Core",`,
	).Replace(minimal)
	if old == minimal {
		t.Fatal("nothing was replaced")
	}
	got, err := DecodeEnvelope(old)
	if err != nil {
		t.Fatal(err)
	}
	want, err := DecodeEnvelope(minimal)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("envelope (-got +want):\n%s", diff)
	}
}

func TestDecodeEnvelope_RejectsInvalidMessages(t *testing.T) {
	replace := func(old, new string) string {
		s := strings.Replace(minimal, old, new, 1)
		if s == minimal {
			t.Fatalf("%q is not in the message", old)
		}
		return s
	}
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "decode message"},
		{"neither JSON nor Base64", "hello!", "not JSON"},
		{"Base64 of something else", base64.StdEncoding.EncodeToString([]byte("hello")), "decode message"},
		{"half a message", minimal[:100], "decode message"},
		{"JSON that is not an object", base64.StdEncoding.EncodeToString([]byte("[]")), "decode message"},
		{"null", base64.StdEncoding.EncodeToString([]byte("null")), "neither"},
		{"an empty object", "{}", "neither a TaskMessage nor a CompressedBlobName"},
		{"no event", replace(`"Event":{`, `"Event":null,"X":{`), "no Event"},
		{"an event without type", replace(`"$type":"DurableTask.Core.History.TaskScheduledEvent"`, `"x":1`), "neither $type nor __type"},
		{"an event of unknown type", replace("TaskScheduledEvent", "TaskForgottenEvent"), `"TaskForgottenEvent"`},
		{"an event of another namespace", replace("DurableTask.Core.History.TaskScheduledEvent", "System.IO.FileInfo"), `"System.IO.FileInfo"`},
		{"an event type without a class", replace("TaskScheduledEvent", "ExecutionFailedEvent"), "ExecutionFailed"},
		{"no receiver", replace(`"InstanceId":"seq1"`, `"InstanceId":""`), "no target instance"},
		{"an invalid time", replace(`2026-11-20T18:32:47.8523574`, `soon`), "soon"},
		{"an invalid activity ID", replace(`23221245-03aa`, `23221245_03aa`), "ActivityId"},
		{"an unknown type in the data-contract form", replace(`"$type":"DurableTask.Core.History.TaskScheduledEvent"`, `"__type":"TaskScheduledEvent:#Else"`), "Else"},
	} {
		got, err := DecodeEnvelope(c.text)
		if err == nil {
			t.Errorf("%s: decoded as %+v", c.name, got)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want it to say %s", c.name, err, c.want)
		}
	}
}

func TestEncodeEnvelope_RejectsAMessageWithoutAnEvent(t *testing.T) {
	if text, err := EncodeEnvelope(&Envelope{Message: &provider.TaskMessage{}}); err == nil {
		t.Errorf("encoded as %s", text)
	}
}

// .NET would interpret a tag with this name as the dictionary's type.
func TestEncodeEnvelope_OmitsATagNamedType(t *testing.T) {
	text, err := EncodeEnvelope(&Envelope{Message: &provider.TaskMessage{
		Event:  &history.TaskScheduled{Tags: map[string]string{"$type": "x", "a": "b"}},
		Target: history.OrchestrationInstance{InstanceID: "i"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"Tags":{"a":"b"}`) {
		t.Errorf("tags are not {a: b} in %s", text)
	}
}

func TestEncodeEnvelope_KeepsAFailurePropertyThatIsNotJSON(t *testing.T) {
	text, err := EncodeEnvelope(&Envelope{Message: &provider.TaskMessage{
		Event: &history.TaskFailed{Failure: &history.FailureDetails{Properties: map[string]string{"k": `{"`, "$type": "1"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"Properties":{"k":"{\""}`) || !json.Valid(text) {
		t.Errorf("property k is not text in %s", text)
	}
}

// Work that an orchestration starts has an execution context even without tags; results and events have
// none (DurableTask.Core/TaskOrchestrationDispatcher.cs).
func TestEncodeEnvelope_GivesStartedWorkAnExecutionContext(t *testing.T) {
	const empty = `{"$type":"DurableTask.Core.OrchestrationExecutionContext","OrchestrationTags":{}}`
	parent := func(id string) *history.ParentInstance {
		return &history.ParentInstance{Instance: history.OrchestrationInstance{InstanceID: id}}
	}
	for _, c := range []struct {
		name string
		ev   history.Event
		want string
	}{
		{"activity", &history.TaskScheduled{}, empty},
		{"child", &history.ExecutionStarted{Parent: parent("p")}, empty},
		{"started by an entity", &history.ExecutionStarted{Parent: parent("@c@k")}, "null"},
		{"started by a client", &history.ExecutionStarted{}, "null"},
		{"result", &history.TaskCompleted{}, "null"},
		{"event", &history.EventRaised{}, "null"},
	} {
		text, err := EncodeEnvelope(&Envelope{Message: &provider.TaskMessage{Event: c.ev}})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), `"OrchestrationExecutionContext":`+c.want+`},`) {
			t.Errorf("%s: execution context is not %s in %s", c.name, c.want, text)
		}
	}
}

func TestEncodeEnvelope_WritesSendersAsByDotNet(t *testing.T) {
	for _, c := range []struct {
		name   string
		sender *history.OrchestrationInstance
		want   string
	}{
		{"wrapper", nil, `"Sender":null`},
		{"client", &history.OrchestrationInstance{}, `"Sender":{"InstanceId":"","ExecutionId":""}`},
		{"orchestration", &history.OrchestrationInstance{InstanceID: "i", ExecutionID: "e"}, `"Sender":{"InstanceId":"i","ExecutionId":"e"}`},
		{"entity's first batch", &history.OrchestrationInstance{InstanceID: "@c@k"}, `"Sender":{"InstanceId":"@c@k","ExecutionId":null}`},
	} {
		text, err := EncodeEnvelope(&Envelope{Sender: c.sender, CompressedBlobName: "b"})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), c.want+",") {
			t.Errorf("%s: no %s in %s", c.name, c.want, text)
		}
	}
}

// Only activities and their results contain the schedule time; other messages equal .NET's.
func TestEnvelope_ContainsTheScheduleTimeOfTheActivity(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	e := &Envelope{Message: &provider.TaskMessage{Event: &history.TaskCompleted{Header: history.NewHeader(at)}, Target: history.OrchestrationInstance{InstanceID: "i"}}}
	for _, scheduled := range []time.Time{at, {}} {
		e.Scheduled = scheduled
		text, err := EncodeEnvelope(e)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeEnvelope(string(text))
		if err != nil {
			t.Fatal(err)
		}
		if !got.Scheduled.Equal(scheduled) {
			t.Errorf("got %v of %s, want %v", got.Scheduled, text, scheduled)
		}
		if strings.Contains(string(text), "ScheduledTimestamp") == scheduled.IsZero() {
			t.Errorf("scheduled %v: the message is %s", scheduled, text)
		}
	}
}

// DurableTask.AzureStorage/MessageManager.cs, DeserializeQueueMessageAsync.
func TestDecodeQueueText_DetectsTheEncoding(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"JSON", `{"a":"é"}`, `{"a":"é"}`},
		{"Base64", "eyJhIjoiw6kifQ==", `{"a":"é"}`},
		{"Base64 with space around it", " eyJhIjoiw6kifQ==\r\n", `{"a":"é"}`},
	} {
		got, err := DecodeQueueText(c.text)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
	for _, text := range []string{"eyJhIjoiw6kifQ", "[1]", "\uFEFF{}"} {
		if got, err := DecodeQueueText(text); err == nil {
			t.Errorf("of %q: %q", text, got)
		}
	}
}

func TestEncodeQueueText_IsJSONOrBase64(t *testing.T) {
	if got := EncodeQueueText([]byte(`{"a":"é"}`), true); got != "eyJhIjoiw6kifQ==" {
		t.Errorf("Base64 is %q", got)
	}
	if got := EncodeQueueText([]byte(`{"a":"é"}`), false); got != `{"a":"é"}` {
		t.Errorf("UTF-8 is %q", got)
	}
}

func TestEnvelope_KeepsEachFieldOfAnEvent(t *testing.T) {
	historytest.RoundTrip(t, "eventWriter in durable/azurestorage/internal/wire/eventjson.go, and Event in durable/internal/eventjson", func(ev history.Event) (history.Event, error) {
		text, err := EncodeEnvelope(&Envelope{Message: &provider.TaskMessage{Event: ev, Target: history.OrchestrationInstance{InstanceID: "i"}}})
		if err != nil {
			return nil, err
		}
		e, err := DecodeEnvelopeJSON(text)
		if err != nil {
			return nil, err
		}
		return e.Message.Event, nil
	})
}

func TestHistoryRow_KeepsEachFieldOfAnEvent(t *testing.T) {
	historytest.RoundTrip(t, "eventColumns in durable/azurestorage/internal/wire/historyrow.go, and historydecode.go", func(ev history.Event) (history.Event, error) {
		written := EncodeHistoryRow(ev, "i", 0, "e")
		row, err := DecodeHistoryRow(written.JSON())
		if err != nil {
			return nil, err
		}
		return row.Event()
	})
}
