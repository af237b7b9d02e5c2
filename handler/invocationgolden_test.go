package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/jsontext"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/triggers"
	"github.com/google/go-cmp/cmp"
)

// A sighting records what a function of the golden app received.
type sighting struct {
	Payload  any
	Metadata any           `json:",omitempty"`
	Input    any           `json:",omitempty"`
	Retry    *RetryContext `json:",omitempty"`
}

// sightings holds the last sighting of a golden app.
type sightings struct {
	mu   sync.Mutex // guards the fields below
	last sighting
}

// watched returns a function that records its invocation and then calls next. If metadata is not nil,
// the function decodes the metadata into it.
func watched[T any](s *sightings, metadata any, next func(*Invocation, T) error) func(context.Context, *Invocation, T) error {
	return func(_ context.Context, call *Invocation, payload T) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last = sighting{Payload: payload, Metadata: metadata, Retry: call.Retry}
		if metadata != nil {
			if err := call.Metadata(metadata); err != nil {
				return err
			}
		}
		if next == nil {
			return nil
		}
		return next(call, payload)
	}
}

type goldenOrder struct {
	ID     int       `json:"id"`
	Note   string    `json:"note"`
	Placed time.Time `json:"placed"`
}

// goldenApp has a function for each type of trigger, and for each kind of payload and output with its
// own encoding.
func goldenApp(s *sightings) App {
	type queueMetadata struct {
		ID                            string
		PopReceipt                    string
		DequeueCount                  int
		InsertionTime, ExpirationTime time.Time
	}
	type blobMetadata struct {
		Name, URI  string
		Properties struct{ ContentType string }
		Metadata   map[string]string
	}
	type busMetadata struct {
		MessageID             string
		DeliveryCount         int
		SequenceNumber        int64
		EnqueuedTimeUtc       time.Time
		ApplicationProperties map[string]any
	}
	type busManyMetadata struct {
		MessageIDArray       []string
		DeliveryCountArray   []int
		EnqueuedTimeUtcArray []time.Time
	}
	type hubMetadata struct {
		PartitionContext    struct{ PartitionID string }
		SequenceNumberArray []int64
	}
	copies := QueueOutput[string]("copies", "copies")
	orders := QueueOutput[goldenOrder]("orders", "orders")
	result := QueueOutput[string](triggers.ReturnName, "results")
	raw := QueueOutput[[]byte]("raw", "raw")
	thumbnail := BlobOutput[[]byte]("thumbnail", "thumbnails/{name}")
	config := BlobInput[map[string]int]("config", "settings/config.json")
	logo := BlobInput[[]byte]("logo", "settings/logo.png")
	docs := CosmosDBOutput[goldenOrder]("docs", "shop", "orders", Connection("Cosmos"))
	bus, hub := Connection("Bus"), Connection("Hub")
	return App{Triggers: []Trigger{
		Timer("Nightly", "0 0 2 * * *", watched(s, nil, func(_ *Invocation, info TimerInfo) error {
			if info.ScheduleStatus != nil && info.ScheduleStatus.Next.IsZero() {
				return fmt.Errorf("no next time in %+v", info.ScheduleStatus)
			}
			return nil
		}), FixedRetry(3, time.Minute)),
		Queue("Letters", "letters", watched(s, &queueMetadata{}, func(call *Invocation, text string) error {
			copies.Put(call, text)
			result.Put(call, "test", "[1,2]", "<abcd1234>")
			call.Logf("copied %q", text)
			return nil
		}), copies, result),
		Queue("Orders", "orders-in", watched(s, &queueMetadata{}, func(call *Invocation, o goldenOrder) error {
			orders.Put(call, o)
			orders.Put(call, o)
			result.Put(call, "[1,2]")
			return nil
		}), orders, result),
		Queue("Numbers", "numbers", watched[[]int](s, nil, nil)),
		Queue("Bytes", "bytes", watched(s, nil, func(call *Invocation, b []byte) error {
			raw.Put(call, b)
			return nil
		}), raw),
		Blob("Shrink", "pictures/{name}", watched(s, &blobMetadata{}, func(call *Invocation, picture []byte) error {
			limits, err := config.Of(call)
			if err != nil {
				return err
			}
			mark, err := logo.Of(call)
			s.last.Input = []any{limits, mark}
			thumbnail.Put(call, picture[:min(len(picture), limits["bytes"])])
			return err
		}), thumbnail, config, logo),
		Blob("Read", "texts/{name}", watched[string](s, &blobMetadata{}, nil)),
		EventGrid("Grid", watched[GridEvent[map[string]string]](s, nil, nil)),
		EventGrid("Cloud", watched[CloudEvent[goldenOrder]](s, nil, nil)),
		ServiceBusQueue("BusOne", "one", watched[goldenOrder](s, &busMetadata{}, nil), bus),
		ServiceBusTopic("BusMany", "topic", "mine", watched[[]goldenOrder](s, &busManyMetadata{}, nil), bus),
		ServiceBusQueue("BusBytes", "bytes", watched[[]byte](s, nil, nil), bus),
		EventHub("HubMany", "events", watched[[]goldenOrder](s, &hubMetadata{}, nil), hub),
		EventHub("HubTexts", "events", watched[[]string](s, nil, nil), hub),
		EventHub("HubBytes", "events", watched[[][]byte](s, nil, nil), hub),
		EventHub("HubOne", "events", watched[string](s, nil, nil), hub),
		CosmosDB("Feed", "shop", "orders", watched(s, nil, func(call *Invocation, changed []goldenOrder) error {
			docs.Put(call, changed...)
			return nil
		}), Connection("Cosmos"), docs),
		Warmup(func(context.Context, *Invocation) error { return nil }),
		Manual("Ask", watched[string](s, nil, nil)),
		On("Kafka", "kafkaTrigger", watched[[]string](s, nil, nil), Property("brokerList", "%BROKERS%"), Property("topic", "letters")),
		On("Any", "somethingTrigger", watched[any](s, nil, nil)),
	}}
}

// Each file in testdata/invocations contains an invocation by the host, the values that the function
// receives, and the answer. The invocations are written by hand, in the host's serialization.
func TestInvocation_EveryTriggerIsDecodedAndAnswered(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/invocations/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := &sightings{}
	s, _ := hosted(t, goldenApp(seen))
	shown := map[string]bool{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		request, _, _ := strings.Cut(string(text), "-- sees --\n")
		function, body, ok := strings.Cut(strings.TrimPrefix(request, "POST /"), "\n")
		if !ok || !json.Valid([]byte(body)) {
			t.Fatalf("%s does not begin with an invocation", path)
		}
		shown[function] = true
		seen.last = sighting{}
		code, answer := invoke(s, function, body)
		current(t, path, request+"-- sees --\n"+indented(t, seen.last)+"-- answers --\n"+fmt.Sprintln(code, answer))
	}
	for _, trigger := range goldenApp(seen).Triggers {
		if !shown[trigger.Name()] {
			t.Errorf("no file has an invocation of %s", trigger.Name())
		}
	}
}

func indented(t *testing.T, v any) string {
	t.Helper()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// The host writes exactly the items that a function has put into an output (azure-functions-host:
// HttpScriptInvocationResultExtensions.cs).
func TestOutputs_ArriveAsTheyWerePut(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		kind  string
		items []any
		want  []string
	}{
		{"a text", "queue", []any{"hello"}, []string{"hello"}},
		{"a text that could be Base64", "queue", []any{"test"}, []string{"test"}},
		{"no text", "queue", []any{""}, []string{""}},
		{"a text that is a list", "queue", []any{"[1,2]"}, []string{"[1,2]"}},
		{"a date", "queue", []any{"2026-08-20T10:11:12Z"}, []string{"2026-08-20T10:11:12Z"}},
		{"texts", "queue", []any{"test", "abcd1234", "é<&>"}, []string{"test", "abcd1234", "é<&>"}},
		{"bytes", "blob", []any{[]byte{0xff, 0, 1}}, []string{"\xff\x00\x01"}},
		{"objects as messages", "serviceBus", []any{map[string]int{"a": 1}, map[string]int{"b": 2}}, []string{`{"a":1}`, `{"b":2}`}},
		{"one object as a message", "eventHub", []any{map[string]string{"a": "<"}}, []string{`{"a":"<"}`}},
		{"one list as a message", "queue", []any{[]int{1, 2}}, []string{`[1,2]`}},
		{"a document", "cosmosDB", []any{map[string]int{"a": 1}}, []string{`{"a":1}`}},
		{"documents", "table", []any{map[string]int{"a": 1}, map[string]int{"b": 2}}, []string{`{"a":1}`, `{"b":2}`}},
	} {
		var items []triggers.Item
		for _, item := range tt.items {
			encoded, err := triggers.Encode(tt.kind, item)
			if err != nil {
				t.Fatal(err)
			}
			items = append(items, encoded)
		}
		value, err := triggers.OutputValue(tt.kind, items)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if diff := cmp.Diff(tt.want, asTheHostWrites(t, value)); diff != "" {
			t.Errorf("%s: sent %s (-want +got):\n%s", tt.name, value, diff)
		}
	}
}

// asTheHostWrites returns the items that the host writes for the value of an output. It decodes a
// string in Base64 into one item. Otherwise each element of a list, or of a string that contains a
// list, is an item (azure-functions-host: HttpScriptInvocationResultExtensions.cs, GetBindingValue;
// Binding/FunctionBinding.cs, BindAsyncCollectorAsync).
func asTheHostWrites(t *testing.T, value json.RawMessage) []string {
	t.Helper()
	text, isText := jsontext.Unquote(value)
	if isText {
		var decoded []byte
		if json.Unmarshal(value, &decoded) == nil {
			return []string{string(decoded)}
		}
		value = json.RawMessage(text)
	}
	var list []json.RawMessage
	if json.Unmarshal(value, &list) != nil {
		return []string{string(value)}
	}
	var out []string
	for _, element := range list {
		if text, ok := jsontext.Unquote(element); ok {
			out = append(out, text)
		} else {
			out = append(out, string(element))
		}
	}
	return out
}

func TestOutputs_ThatTheHostWouldCorruptAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind  string
		items []any
		want  string
	}{
		{"queue", []any{[]byte{0xff}, []byte("a")}, "several items that are not UTF-8"},
		{"queue", []any{"a", "2026-08-20T10:11:12"}, `one of them "2026-08-20T10:11:12"`},
		{"blob", []any{"a", "b"}, "has 2 items"},
	} {
		var items []triggers.Item
		for _, item := range tt.items {
			encoded, err := triggers.Encode(tt.kind, item)
			if err != nil {
				t.Fatal(err)
			}
			items = append(items, encoded)
		}
		if value, err := triggers.OutputValue(tt.kind, items); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %s %v, want an error with %s", tt.items, value, err, tt.want)
		}
	}
}
