package durable_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/google/go-cmp/cmp"
)

// through runs an activity with the encoded input in and returns its encoded output.
func through[I, O any](t *testing.T, fn func(context.Context, I) (O, error), in *string) (*string, error) {
	t.Helper()
	run, ok := durable.EngineOf(durable.NewRegistry(durable.Activity("A", func(ctx context.Context, v I) (O, error) { return fn(ctx, v) }))).Activity("A")
	if !ok {
		t.Fatal("the activity is not registered")
	}
	return run(t.Context(), in)
}

func echo[T any](_ context.Context, v T) (T, error) { return v, nil }

func show(s *string) string {
	if s == nil {
		return "<nil>"
	}
	return *s
}

type order struct {
	ID    string            `json:"id"`
	Lines []int             `json:"lines"`
	Notes map[string]string `json:"notes,omitempty"`
}

// The input of an activity is a JSON array with one argument. An input without the
// array must be accepted too.
func TestPayload_ActivityInputs(t *testing.T) {
	t.Parallel()
	text := func(v any) (string, error) { return fmt.Sprintf("%+v", v), nil }
	cases := []struct {
		name  string
		input *string
		call  func(t *testing.T, in *string) (*string, error)
		want  string
	}{
		{"in an array", new(`["Tokyo"]`), func(t *testing.T, in *string) (*string, error) { return through(t, echo[string], in) }, `"Tokyo"`},
		{"by itself", new(`"Tokyo"`), func(t *testing.T, in *string) (*string, error) { return through(t, echo[string], in) }, `"Tokyo"`},
		{"with spaces", new(" [ \"Tokyo\" ] \n"), func(t *testing.T, in *string) (*string, error) { return through(t, echo[string], in) }, `"Tokyo"`},
		{"a list in an array", new(`[["a","b"]]`), func(t *testing.T, in *string) (*string, error) { return through(t, echo[[]string], in) }, `["a","b"]`},
		{"a list by itself", new(`["a","b"]`), func(t *testing.T, in *string) (*string, error) { return through(t, echo[[]string], in) }, `["a","b"]`},
		{"a list of one by itself", new(`["a"]`), func(t *testing.T, in *string) (*string, error) { return through(t, echo[[]string], in) }, `["a"]`},
		{"lists by themselves", new(`[[1],[2]]`), func(t *testing.T, in *string) (*string, error) { return through(t, echo[[][]int], in) }, `[[1],[2]]`},
		{"null in an array", new(`[null]`), func(t *testing.T, in *string) (*string, error) { return through(t, echo[*order], in) }, `<nil>`},
		{"no arguments", new(`[]`), func(t *testing.T, in *string) (*string, error) { return through(t, echo[int], in) }, `0`},
		{"nothing", nil, func(t *testing.T, in *string) (*string, error) { return through(t, echo[string], in) }, `""`},
		{"an empty text", new(""), func(t *testing.T, in *string) (*string, error) { return through(t, echo[int], in) }, `0`},
		{"raw", new(`[{"a": 1}]`), func(t *testing.T, in *string) (*string, error) { return through(t, echo[json.RawMessage], in) }, `{"a": 1}`},
		{"raw, several", new(`[1, 2]`), func(t *testing.T, in *string) (*string, error) { return through(t, echo[json.RawMessage], in) }, `[1, 2]`},
		{"anything", new(`[{"a":[1]}]`), func(t *testing.T, in *string) (*string, error) {
			return through(t, func(_ context.Context, v any) (string, error) { return text(v) }, in)
		}, `"map[a:[1]]"`},
		{"for a Void", new(`["whatever"]`), func(t *testing.T, in *string) (*string, error) { return through(t, echo[durable.Void], in) }, "<nil>"},
		{"for an empty struct", new(`[null]`), func(t *testing.T, in *string) (*string, error) { return through(t, echo[struct{}], in) }, "<nil>"},
		{"of a .NET type", new(`[{"$type":"App.Order, App","id":"7","lines":[1]}]`), func(t *testing.T, in *string) (*string, error) { return through(t, echo[order], in) }, `{"id":"7","lines":[1]}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := c.call(t, c.input)
			if err != nil {
				t.Fatal(err)
			}
			if show(got) != c.want {
				t.Errorf("got %s, want %s", show(got), c.want)
			}
		})
	}
}

func TestPayload_ActivityErrorsNameFunctionAndType(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, input, want string }{
		{"another type", `["seven"]`, "decode input of activity A: as int: json: cannot unmarshal string into Go value of type int"},
		{"several arguments", `[1,2]`, "decode input of activity A: as int: json: cannot unmarshal array into Go value of type int"},
		{"invalid JSON", `[`, "decode input of activity A: as int: unexpected end of JSON input"},
		{"a text with brackets", `[x]`, "decode input of activity A: as int: invalid character 'x' looking for beginning of value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if _, err := through(t, echo[int], &c.input); err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	if _, err := through(t, func(context.Context, int) (chan int, error) { return nil, nil }, nil); err == nil ||
		err.Error() != "encode output of activity A: json: unsupported type: chan int" {
		t.Errorf("got %v", err)
	}
	if _, err := through(t, func(context.Context, int) (json.RawMessage, error) { return json.RawMessage("{"), nil }, nil); err == nil ||
		err.Error() != `encode output of activity A: json.RawMessage "{" is not JSON` {
		t.Errorf("got %v", err)
	}
}

// Payloads must pass an orchestrator and an activity unchanged.
func TestPayload_IsUnchangedByARoundTrip(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("ü", 1<<20)
	for _, c := range []struct{ name, json string }{
		{"text", `"<Tokyo> & \"Kyōto\" 😀 \u0000"`},
		{"line separators", "\"\\u2028\\u2029\""},
		{"empty text", `""`},
		{"huge", `"` + huge + `"`},
		{"a number beyond int64", `123456789012345678901234567890.5`},
		{"spaces", `{ "a" : [ 1 , 2 ] }`},
		{"false", `false`},
		{"zero", `0`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := durable.NewRegistry(
				durable.Activity("Echo", echoRaw),
				durable.Orchestrator("Main", func(ctx *durable.Context, in json.RawMessage) (json.RawMessage, error) {
					return durable.CallActivity(ctx, echoRaw, in).Await()
				}))
			s := stageOf(t, r)
			s.Start(json.RawMessage(c.json))
			// Start writes compact JSON, unlike the engine.
			input := *s.History[1].(*history.ExecutionStarted).Input
			run, _ := durable.EngineOf(r).Activity("Echo")
			out, err := run(t.Context(), new("["+c.json+"]"))
			if err != nil {
				t.Fatal(err)
			}
			if *out != c.json {
				t.Errorf("the activity got %.60q, want %.60q", *out, c.json)
			}
			if want := `0 task Echo [` + input + "]\n"; cmp.Diff(describe(s.Actions), want) != "" {
				t.Errorf("scheduled %.60q, want %.60q", describe(s.Actions), want)
			}
			s.Episode(done(0, c.json))
			if got := s.Output(history.Completed); got != c.json {
				t.Errorf("output %.60q, want %.60q", got, c.json)
			}
		})
	}
}

func echoRaw(_ context.Context, v json.RawMessage) (json.RawMessage, error) { return v, nil }

func TestPayload_TypedValuesAreNotEscapedForHTML(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, in order) (order, error) {
		in.Notes = map[string]string{"z": "<&>", "a": "é😀"}
		return in, nil
	})
	s.Start(order{ID: "7", Lines: []int{1}})
	wantOutput(t, s, `{"id":"7","lines":[1],"notes":{"a":"é😀","z":"<&>"}}`)
}

func TestPayload_AbsentValuesHaveNoPayload(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		run  func(t *testing.T) string
	}{
		{"Void", func(t *testing.T) string { return output(t, durable.Void{}) }},
		{"struct{}", func(t *testing.T) string { return output(t, struct{}{}) }},
		{"nil pointer", func(t *testing.T) string { return output(t, (*order)(nil)) }},
		{"nil slice", func(t *testing.T) string { return output(t, []int(nil)) }},
		{"nil any", func(t *testing.T) string { return output(t, any(nil)) }},
		{"nil RawMessage", func(t *testing.T) string { return output(t, json.RawMessage(nil)) }},
		{"null RawMessage", func(t *testing.T) string { return output(t, json.RawMessage("null")) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := c.run(t); got != "<nil>" {
				t.Errorf("got %s", got)
			}
		})
	}
}

// output returns the encoded result of an orchestrator.
func output[T any](t *testing.T, v T) string {
	t.Helper()
	s := stage(t, func(*durable.Context, durable.Void) (T, error) { return v, nil })
	s.Start(nil)
	return s.Output(history.Completed)
}

func FuzzActivityInput(f *testing.F) {
	for _, s := range []string{`["a"]`, `[["a","b"]]`, `[`, `]`, `[]`, `[]]`, `[ ]`, `"a"`, `null`, ``, `[1,2]`, `[{"id":"x"}]`} {
		f.Add(s)
	}
	r := durable.NewRegistry(durable.Activity("Raw", echoRaw), durable.Activity("Order", echoOrder), durable.Activity("Texts", echoTexts))
	f.Fuzz(func(t *testing.T, in string) {
		in = strings.ToValidUTF8(in, "") // no store returns another text
		for _, name := range []string{"Raw", "Order", "Texts"} {
			run, _ := durable.EngineOf(r).Activity(name)
			out, err := run(t.Context(), &in)
			if err == nil && out != nil && !json.Valid([]byte(*out)) {
				t.Errorf("%s returned %q for %q, which is not JSON", name, *out, in)
			}
			if err != nil && !strings.HasPrefix(err.Error(), "decode input of activity "+name+": ") {
				t.Errorf("%s: %v", name, err)
			}
			// A wrapped value must be unwrapped again.
			if json.Valid([]byte(in)) {
				wrapped := "[" + in + "]"
				got, gotErr := run(t.Context(), &wrapped)
				if name == "Raw" && (gotErr != nil || strings.TrimSpace(in) != show(got) && got != nil) {
					t.Errorf("%q was decoded as %s, %v", in, show(got), gotErr)
				}
			}
		}
	})
}

func echoOrder(_ context.Context, v order) (order, error)       { return v, nil }
func echoTexts(_ context.Context, v []string) ([]string, error) { return v, nil }

// See testdata/core-tools of internal/recordings: "func durable start-new --input" and
// "raise-event --event-data" send their argument as a JSON string.
func TestPayload_AcceptsJSONInAString(t *testing.T) {
	t.Parallel()
	type answer struct {
		OK bool `json:"ok"`
	}
	const asked = durable.Event[answer]("Answer")
	for _, c := range []struct{ name, payload, want string }{
		{"as the func tool sends it", `"{\"ok\":true}"`, "true"},
		{"with spaces", " \"\\n {\\\"ok\\\":true} \" ", "true"},
		{"as other clients send it", `{"ok":true}`, "true"},
		{"absent", "", "false"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := stage(t, func(ctx *durable.Context, in answer) (bool, error) {
				a, err := asked.Wait(ctx).Await()
				return in.OK && a.OK || c.payload == "" && a.OK, err
			})
			if c.payload != "" {
				s.Start(json.RawMessage(c.payload))
			} else {
				s.Start(nil)
			}
			s.Episode(raised("Answer", c.payload))
			wantOutput(t, s, c.want)
		})
	}

	for _, c := range []struct {
		name string
		run  func(*testing.T) (*string, error)
		want string
	}{
		{"a number", func(t *testing.T) (*string, error) { return through(t, echo[int], new(`["7"]`)) }, "7"},
		{"a list", func(t *testing.T) (*string, error) { return through(t, echo[[]int], new(`"[1,2]"`)) }, "[1,2]"},
		{"a text is unchanged", func(t *testing.T) (*string, error) { return through(t, echo[string], new(`["{\"ok\":true}"]`)) }, `"{\"ok\":true}"`},
		{"raw JSON is unchanged", func(t *testing.T) (*string, error) { return through(t, echo[json.RawMessage], new(`["{}"]`)) }, `"{}"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := c.run(t)
			if err != nil || show(got) != c.want {
				t.Errorf("got %s, %v, want %s", show(got), err, c.want)
			}
		})
	}

	// The error must be about the payload, not about the JSON in its string.
	_, err := through(t, echo[int], new(`["{}"]`))
	if want := "decode input of activity A: as int: json: cannot unmarshal string into Go value of type int"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
