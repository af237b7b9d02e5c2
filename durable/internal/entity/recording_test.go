package entity_test

import (
	"encoding/json"
	"encoding/xml"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/recordings"
	"github.com/google/go-cmp/cmp"
)

// A recording has the messages to and from .NET's entities, and their stored states, in order.
type recording struct {
	events []recordedEvent
	rows   []recordedRow
}

type recordedEvent struct {
	instance string
	*history.EventRaised
}

type recordedRow struct {
	instance, input, status string
}

var dotNet = func() func(t *testing.T) recording {
	var r recording
	return func(t *testing.T) recording {
		t.Helper()
		if r.events == nil {
			r = readRecording(t)
		}
		return r
	}
}()

func readRecording(t *testing.T) (r recording) {
	t.Helper()
	for _, request := range recordings.All(t) {
		if request.Folder != "ent" {
			continue
		}
		switch {
		case request.Service == "queue" && request.Method == "POST":
			if e, ok := readEvent(t, request.Body); ok {
				r.events = append(r.events, e)
			}
		case request.Service == "table" && strings.HasPrefix(request.Body, `{"PartitionKey":"@`):
			var row struct{ PartitionKey, Input, CustomStatus string }
			if err := json.Unmarshal([]byte(request.Body), &row); err != nil {
				t.Fatal(err)
			}
			r.rows = append(r.rows, recordedRow{row.PartitionKey, row.Input, row.CustomStatus})
		}
	}
	if len(r.events) < 12 || len(r.rows) < 9 {
		t.Fatalf("the recording has %d events and %d rows", len(r.events), len(r.rows))
	}
	return r
}

func readEvent(t *testing.T, body string) (recordedEvent, bool) {
	t.Helper()
	var wrapper struct{ MessageText string }
	if err := xml.Unmarshal([]byte(strings.TrimPrefix(body, "\uFEFF")), &wrapper); err != nil {
		t.Fatal(err)
	}
	var envelope struct {
		TaskMessage struct {
			Event                 struct{ Name, Input *string }
			OrchestrationInstance struct {
				InstanceID string `json:"InstanceId"`
			}
		}
	}
	if err := json.Unmarshal([]byte(wrapper.MessageText), &envelope); err != nil {
		t.Fatal(err)
	}
	e := envelope.TaskMessage.Event
	if e.Name == nil || e.Input == nil || !strings.HasPrefix(*e.Input, "{") {
		return recordedEvent{}, false
	}
	return recordedEvent{envelope.TaskMessage.OrchestrationInstance.InstanceID, &history.EventRaised{Name: *e.Name, Input: e.Input}}, true
}

func TestRecording_IsDecodedAndEncodedByteForByte(t *testing.T) {
	r := dotNet(t)
	for _, e := range r.events {
		var got string
		switch {
		case strings.HasPrefix(e.Name, "op"):
			request, err := entity.DecodeRequest(e.Input)
			if err != nil {
				t.Fatal(err)
			}
			got = request.Encode()
			if !request.Due.IsZero() && entity.EventName(request.Due, request.Due) != e.Name {
				t.Errorf("the event due at %v is named %s, want %s", request.Due, entity.EventName(request.Due, request.Due), e.Name)
			}
		case entity.IsRelease(e.Name):
			var release entity.Release
			if err := json.Unmarshal([]byte(*e.Input), &release); err != nil {
				t.Fatal(err)
			}
			_, got = entity.NewRelease(release)
		default:
			response, err := entity.ParseResponse(e.Input)
			if err != nil {
				t.Fatal(err)
			}
			got = response.Encode()
		}
		if diff := cmp.Diff(*e.Input, got); diff != "" {
			t.Errorf("event %s (-recorded +ours):\n%s", e.Name, diff)
		}
	}
	for _, row := range r.rows {
		state, err := entity.DecodeState(&row.input)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(row.status, state.Status().Encode()); diff != "" {
			t.Errorf("status (-recorded +ours):\n%s", diff)
		}
		if status, err := entity.ParseStatus(&row.status); err != nil || status != state.Status() {
			t.Errorf("status %s is read as %+v, %v; want %+v", row.status, status, err, state.Status())
		}
		if got := state.Encode(); state.Text != nil && !strings.HasPrefix(got, `{"exists":true,"state":`) {
			t.Errorf("an older scheduler would not find the state in %s", got)
		}
		if diff := cmp.Diff(row.input, entity.EncodeAsDotNet(state)); diff != "" {
			t.Errorf("state (-recorded +ours):\n%s", diff)
		}
	}
}

func TestRecording_ClientsSignalsAreEncodedLikeDotNet(t *testing.T) {
	n := 0
	for _, e := range dotNet(t).events {
		request, err := entity.DecodeRequest(e.Input)
		if err != nil || request.Parent != "" || !strings.HasPrefix(e.Name, "op") {
			continue
		}
		n++
		name, text := entity.NewSignal(request.ID, request.Operation, request.Input, request.Due, request.Due)
		if name != e.Name || text != *e.Input {
			t.Errorf("got %s %s, want %s %s", name, text, e.Name, *e.Input)
		}
	}
	if n != 2 {
		t.Errorf("there are %d signals of clients, want 2", n)
	}
}

// recordedCounter runs an operation like the recorded entities.
func recordedCounter(op *entity.Operation) entity.Result {
	n := 0
	if op.State != nil {
		n, _ = strconv.Atoi(*op.State)
	}
	r := entity.Result{State: op.State}
	switch op.Name {
	case "add":
		add, _ := strconv.Atoi(*op.Input)
		r.State = new(strconv.Itoa(n + add))
		r.Output = r.State
	case "get":
		r.Output = op.State
	case "fail":
		r.Failure = &history.FailureDetails{ErrorType: "MyErr", ErrorMessage: "op failed"}
	case "sigother":
		r.Actions = []entity.Action{
			&entity.Signal{Target: entity.ID{Name: "counter", Key: "other"}, Operation: "add", Input: new("1")},
			&entity.Start{Name: "Child", InstanceID: "fromentity", Input: new(`"e"`)},
		}
	}
	return r
}

// settings are the settings of the recorded worker.
var settings = entity.Settings{MaxBatch: 5000, Window: 30 * time.Minute}

// sentLock matches the label of a lock request that .NET passed on; see
// [entity.Sorter.LabelPassedOn].
var sentLock = regexp.MustCompile(`"LastSentToInstance":\{"@counter@k2":"[^"]*"\},|"@counter@k2":"[^"]*",|,"SendHorizon":"[^"]*"`)

var randomID = regexp.MustCompile(`"id":"[0-9a-f-]{36}"`)

// The messages to .NET's entities must have the same stored states and answers here as in .NET.
func TestRecording_BatchesHaveTheResultsOfDotNet(t *testing.T) {
	r := dotNet(t)
	states := map[string]*entity.State{}
	seen := map[string]int{} // number of rows used so far, by instance
	for _, batch := range []struct {
		name     string
		instance string
		events   []string // parts of their content
		now      string
		sends    []string
	}{
		{name: "a signal and a call", instance: "@counter@k1", events: []string{"11111111", "22222222"}, sends: []string{`{"result":"5"}`}},
		{name: "a passed-on lock", instance: "@counter@k1", events: []string{`"id":"33333333`}, now: "2026-11-20T18:34:39.1977859Z", sends: []string{`"pos":1`}},
		{name: "the last lock", instance: "@counter@k2", events: []string{`"pos":1`}, sends: []string{"Lock Acquisition Completed"}},
		{name: "a failing call by the holder", instance: "@counter@k1", events: []string{"44444444"}, sends: []string{"op failed"}},
		{name: "a release", instance: "@counter@k2", events: []string{`{"parent":"entorch"`}},
		{name: "another release", instance: "@counter@k1", events: []string{`{"parent":"entorch"`}},
		{name: "a signal that signals and starts", instance: "@counter@k1", events: []string{"55555555"}, now: "2026-11-20T18:34:40.9623472Z", sends: []string{`"4d416087`, ""}},
		{name: "a signal of an entity", instance: "@counter@other", events: []string{`"4d416087`}},
		{name: "a scheduled signal", instance: "@counter@k1", events: []string{"66666666"}, now: "2026-11-20T18:34:48.9660000Z"},
	} {
		var events []history.Event
		for _, part := range batch.events {
			events = append(events, r.find(t, batch.instance, part))
		}
		now, _ := time.Parse(time.RFC3339, batch.now)
		state := states[batch.instance]
		if state == nil {
			state = new(entity.State)
			states[batch.instance] = state
		}
		b, problems := entity.Begin(batch.instance, state, events, now, settings)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		for op, ok := b.Next(); ok; op, ok = b.Next() {
			b.Done(recordedCounter(op))
		}
		var sent []string
		for _, m := range b.Finish("execution") {
			sent = append(sent, *m.Input)
		}
		var want []string
		for _, part := range batch.sends {
			if part == "" {
				want = append(want, `"e"`) // the input of the orchestration that is started
				continue
			}
			want = append(want, *r.find(t, "", part).Input)
		}
		if strings.Contains(batch.name, "signals and starts") {
			sent[0], want[0] = randomID.ReplaceAllString(sent[0], ""), randomID.ReplaceAllString(want[0], "")
		}
		if diff := cmp.Diff(want, sent); diff != "" {
			t.Errorf("%s: messages (-recorded +ours):\n%s", batch.name, diff)
		}
		stored, err := entity.DecodeState(new(state.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		wantState, got := sentLock.ReplaceAllString(r.row(t, batch.instance, seen), ""), entity.EncodeAsDotNet(stored)
		if diff := cmp.Diff(wantState, sentLock.ReplaceAllString(got, "")); diff != "" {
			t.Errorf("%s: state (-recorded +ours):\n%s", batch.name, diff)
		}
	}
}

// find returns the event for an instance whose content contains part. If instance is empty, it
// finds events for any instance.
func (r recording) find(t *testing.T, instance, part string) *history.EventRaised {
	t.Helper()
	for _, e := range r.events {
		if (instance == "" || e.instance == instance) && strings.Contains(*e.Input, part) {
			return e.EventRaised
		}
	}
	t.Fatalf("the recording has no event for %s with %s", instance, part)
	return nil
}

// row returns the next stored state of an instance.
func (r recording) row(t *testing.T, instance string, seen map[string]int) string {
	t.Helper()
	n := 0
	for _, row := range r.rows {
		if row.instance == instance {
			if n == seen[instance] {
				seen[instance]++
				return row.input
			}
			n++
		}
	}
	t.Fatalf("the recording has no row %d of %s", n, instance)
	return ""
}
