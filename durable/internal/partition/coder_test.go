package partition

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/history/historytest"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

// allEvents returns an event of every type, with fields set by fill.
func allEvents(fill func(reflect.Value)) []history.Event {
	var all []history.Event
	for kind := range history.TypeExecutionRewound + 1 {
		if e := history.NewEvent(kind); e != nil {
			fill(reflect.ValueOf(e).Elem())
			all = append(all, e)
		}
	}
	return all
}

// filled returns a function that sets a value at random. full is the probability that an
// optional value is set.
func filled(r *rand.Rand, full float64) func(reflect.Value) {
	var fill func(v reflect.Value, depth int)
	fill = func(v reflect.Value, depth int) {
		switch v.Kind() {
		case reflect.Struct:
			if v.Type() == reflect.TypeFor[time.Time]() {
				if r.Float64() < full {
					v.Set(reflect.ValueOf(history.TruncateToTicks(time.Unix(r.Int64N(4e9), r.Int64N(1e9)))))
				}
				return
			}
			for i := range v.NumField() {
				fill(v.Field(i), depth)
			}
		case reflect.Pointer:
			if r.Float64() < full && depth < 5 {
				v.Set(reflect.New(v.Type().Elem()))
				fill(v.Elem(), depth+1)
			}
		case reflect.Map:
			if r.Float64() < full {
				v.Set(reflect.MakeMap(v.Type()))
				for range r.IntN(3) {
					v.SetMapIndex(reflect.ValueOf(word(r)), reflect.ValueOf(word(r)))
				}
			}
		case reflect.String:
			v.SetString(word(r))
		case reflect.Int:
			v.SetInt(r.Int64N(2001) - 1000)
		case reflect.Bool:
			v.SetBool(r.IntN(2) == 0)
		default:
			panic("cannot fill a " + v.Type().String())
		}
	}
	return func(v reflect.Value) { fill(v, 0) }
}

func word(r *rand.Rand) string {
	words := []string{"", "a", "Orchestrator", "ünïcode 世界 😀", "\x00\xff", strings.Repeat("long ", 50)}
	return words[r.IntN(len(words))]
}

func TestCoder_DecodesTheEventsThatItEncoded(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		want := allEvents(filled(r, []float64{0, 0.5, 1}[seed%3]))
		if len(want) != 21 {
			t.Fatalf("allEvents returned %d events; want 21", len(want))
		}
		b, err := encodeEpisode(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeEpisode(nil, b)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
		at, err := decodeEpisodeTime(b)
		if last := want[len(want)-1].Head().Timestamp; err != nil || !at.Equal(last) {
			t.Errorf("seed %d: the time of the last event is %v (%v); want %v", seed, at, err, last)
		}
	}
}

func TestCoder_DistinguishesNilFromEmpty(t *testing.T) {
	t.Parallel()
	events := []history.Event{
		&history.EventRaised{}, &history.EventRaised{Input: new("")},
		&history.TaskScheduled{}, &history.TaskScheduled{Tags: map[string]string{}},
	}
	b, err := encodeEpisode(events)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeEpisode(nil, b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(events, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCoder_DecodesMessagesAndTheirRoutes(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, e := range allEvents(filled(r, 0.8)) {
		want := provider.TaskMessage{
			Event:  e,
			Target: history.OrchestrationInstance{InstanceID: "instance/ü", ExecutionID: word(r)},
			Tags:   map[string]string{"a": word(r)},
		}
		b, err := encodeMessage(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeMessage(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", e.Type(), diff)
		}
		if way, err := decodeRoute(b); err != nil || way != (route{e.Type(), want.Target}) {
			t.Errorf("route of %v is %+v, %v", e.Type(), way, err)
		}
	}
}

func TestCoder_DecodesRows(t *testing.T) {
	t.Parallel()
	want := &row{number: 7 << 40, InstanceState: provider.InstanceState{
		Instance: history.OrchestrationInstance{InstanceID: "i", ExecutionID: "e"}, Name: "n", Version: "v", Status: history.Failed,
		CreatedAt: time.Unix(1e9, 100).UTC(), LastUpdatedAt: time.Unix(2e9, 0).UTC(), ScheduledAt: time.Unix(3e9, 0).UTC(),
		Generation: 3, Tags: map[string]string{"a": "b", "c": ""},
		Input: new("in"), Output: unread,
		FirstCreatedAt: time.Unix(1e9, 0).UTC(),
	}}
	b, err := encodeRow(want)
	if err != nil {
		t.Fatal(err)
	}
	same := func(b []byte) {
		t.Helper()
		got, err := decodeRow("i", b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	same(b)
	b[0], want.FirstCreatedAt = 1, time.Time{} // version 1 has no FirstCreatedAt
	same(b[:len(b)-8])
}

// Files outlive programs: the meaning of these bytes must not change.
func TestCoder_DecodesRecordsOfVersion1(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 18, 32, 28, 618124400, time.UTC)
	for _, tt := range []struct {
		name string
		hex  string
		want history.Event
	}{
		{"completed task", "01050161046578656300010008df4734a1ac177c04092268656c6c6f2122", &history.TaskCompleted{
			Header: history.NewHeader(at), TaskScheduledID: 2, Result: new(`"hello!"`),
		}},
		{"start", "01000161046578656300010008df4734a1ac177c01610465786563010150013201700171080c4f7263686573747261746f720131035b5d0101016b017601010930302d312d322d3031027300000008df4734a1ac177c010201", &history.ExecutionStarted{
			Header: history.NewHeader(at), Instance: history.OrchestrationInstance{InstanceID: "a", ExecutionID: "exec"},
			Parent: &history.ParentInstance{Name: "P", Version: "2", Instance: history.OrchestrationInstance{InstanceID: "p", ExecutionID: "q"}, TaskScheduleID: 4},
			Name:   "Orchestrator", Version: "1", Input: new("[]"), Tags: map[string]string{"k": "v"}, Correlation: new(""),
			ParentTraceContext: &history.TraceContext{TraceParent: "00-1-2-01", TraceState: new("s")},
			ScheduledStart:     at, Generation: new(1), GenerateNewTrace: true,
		}},
		{"failed task", "01060161046578656300d8040108df4734a1ac177c02027200010154016d00000001000000010000", &history.TaskFailed{
			Header: history.Header{EventID: 300, IsPlayed: true, Timestamp: at}, TaskScheduledID: 1, Reason: new("r"),
			Failure: &history.FailureDetails{ErrorType: "T", ErrorMessage: "m", InnerFailure: &history.FailureDetails{IsNonRetriable: true}},
		}},
	} {
		want := provider.TaskMessage{Event: tt.want, Target: history.OrchestrationInstance{InstanceID: "a", ExecutionID: "exec"}}
		b, err := encodeMessage(want)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(b); got != tt.hex {
			t.Errorf("%s was encoded as\n%s\nwant\n%s", tt.name, got, tt.hex)
		}
		b, err = hex.DecodeString(tt.hex)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeMessage(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestCoder_RejectsRecordsOfALaterVersion(t *testing.T) {
	t.Parallel()
	b, err := encodeMessage(provider.TaskMessage{Event: &history.EventRaised{Name: "E"}})
	if err != nil {
		t.Fatal(err)
	}
	b[0] = history.RecordVersion + 1
	if _, err := decodeMessage(b); err == nil || !strings.Contains(err.Error(), fmt.Sprint("version ", history.RecordVersion+1)) {
		t.Errorf("got %v, want an error that names the version", err)
	}
}

func TestCoder_RejectsFailuresThatAreNestedTooDeeply(t *testing.T) {
	t.Parallel()
	f := &history.FailureDetails{}
	for range maxInnerFailures + 10 {
		f = &history.FailureDetails{InnerFailure: f}
	}
	if _, err := encodeMessage(provider.TaskMessage{Event: &history.TaskFailed{Failure: f}}); err == nil {
		t.Error("encoding succeeded")
	}
}

// The decoders receive bytes that may be damaged. They must not panic or allocate without
// bounds, and encoding the decoded values must restore them.
func FuzzDecodeMessage(f *testing.F) {
	for _, e := range allEvents(filled(rand.New(rand.NewPCG(3, 4)), 0.9)) {
		b, err := encodeMessage(provider.TaskMessage{Event: e, Target: history.OrchestrationInstance{InstanceID: "a", ExecutionID: "b"}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(b)
		if err != nil {
			return
		}
		again, err := encodeMessage(m)
		if err != nil {
			t.Fatalf("cannot encode the decoded value: %v", err)
		}
		back, err := decodeMessage(again)
		if err != nil {
			t.Fatalf("cannot decode the encoded value: %v", err)
		}
		if diff := cmp.Diff(m, back); diff != "" {
			t.Errorf("(-read +read again):\n%s", diff)
		}
	})
}

func FuzzDecodeEpisode(f *testing.F) {
	b, err := encodeEpisode(allEvents(filled(rand.New(rand.NewPCG(5, 6)), 0.9)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		past, err := decodeEpisode(nil, b)
		if err != nil || len(past) == 0 {
			return
		}
		again, err := encodeEpisode(past)
		if err != nil {
			t.Fatalf("cannot encode the decoded value: %v", err)
		}
		back, err := decodeEpisode(nil, again)
		if err != nil {
			t.Fatalf("cannot decode the encoded value: %v", err)
		}
		if diff := cmp.Diff(past, back); diff != "" {
			t.Errorf("(-read +read again):\n%s", diff)
		}
	})
}

func FuzzDecodeRow(f *testing.F) {
	b, err := encodeRow(&row{number: 1, InstanceState: provider.InstanceState{Tags: map[string]string{"a": "b"}, Input: new("x")}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRow("i", b)
		if err != nil {
			return
		}
		again, err := encodeRow(r)
		if err != nil {
			t.Fatalf("cannot encode the decoded value: %v", err)
		}
		back, err := decodeRow("i", again)
		if err != nil {
			t.Fatalf("cannot decode the encoded value: %v", err)
		}
		if diff := cmp.Diff(r, back, cmp.AllowUnexported(row{})); diff != "" {
			t.Errorf("(-read +read again):\n%s", diff)
		}
	})
}

func TestCoder_KeepsEachFieldOfAnEvent(t *testing.T) {
	t.Parallel()
	historytest.RoundTrip(t, "eventCoder in durable/internal/partition/coder.go", func(ev history.Event) (history.Event, error) {
		b, err := encodeMessage(provider.TaskMessage{Event: ev})
		if err != nil {
			return nil, err
		}
		m, err := decodeMessage(b)
		return m.Event, err
	})
}

// An older program rejects a record only if an event has a field that the program does not
// know.
func TestCoder_WritesTheLowestVersionThatHasAllFields(t *testing.T) {
	t.Parallel()
	for _, priority := range []*int{nil, new(7)} {
		code := func(c *coder, v **int) {
			if c.recorded = c.version(c.recorded); (*eventCoder)(c).Since(2, *v != nil) {
				(*eventCoder)(c).OptionalInt("Priority", v)
			}
		}
		b, err := encodeEvents(nil, func(c *coder) { code(c, &priority) })
		if err != nil {
			t.Fatal(err)
		}
		if want := byte(1); priority == nil && (len(b) != 1 || b[0] != want) {
			t.Errorf("the record without the field is %v; want version %d without additions", b, want)
		}
		var got *int
		c := newDecoder(b)
		c.recorded = 2
		code(c, &got)
		if err := c.End(); err != nil || !reflect.DeepEqual(got, priority) {
			t.Errorf("the field was decoded as %v (%v)", got, err)
		}
	}
}
