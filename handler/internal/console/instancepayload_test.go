package console

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

func TestIndented_IsJSONOfTheSameValue(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`null`, `""`, `"a\\"`, `"a\"b\\\"c"`, `{}`, `[]`, `[ ]`, `{"a":1}`, `[1,2,[3,{}],{"a":[],"b":"x, y: {z}"}]`, ` { "a" : [ 1 , 2 ] } `,
	} {
		var want bytes.Buffer
		if err := json.Indent(&want, []byte(strings.TrimSpace(text)), "", "  "); err != nil {
			t.Fatal(err)
		}
		if got, isCut := indented(text, 1000); isCut || got != strings.ReplaceAll(want.String(), "[ ]", "[]") {
			t.Errorf("%s becomes\n%s\nwant\n%s", text, got, want.String())
		}
	}
}

// A few megabytes of nested JSON become gigabytes if each level is indented.
func TestShowPayload_IsBounded(t *testing.T) { // not parallel: it measures memory
	deep := strings.Repeat("[", 5000) + strings.Repeat("1,", 500_000) + "1" + strings.Repeat("]", 5000)
	for name, text := range map[string]string{
		"deep": deep, "long": `"` + strings.Repeat("ä", 3<<20) + `"`, "no JSON": strings.Repeat("ä", 3<<20), "no UTF-8": strings.Repeat("\xbf", 1<<20),
		"backslashes": `"` + strings.Repeat(`\\`, 1<<20) + `"`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p := showPayload(&text)
		runtime.ReadMemStats(&after)
		if made := after.TotalAlloc - before.TotalAlloc; made > 20*maxShown {
			t.Errorf("%s: %d bytes are allocated", name, made)
		}
		if !p.Cut || len(p.Text) > maxShown || len(p.Text) < maxShown-utf8.UTFMax {
			t.Errorf("%s: %d bytes are shown of %d, cut: %v", name, len(p.Text), len(text), p.Cut)
		}
		if name != "no UTF-8" && !utf8.ValidString(p.Text) {
			t.Errorf("%s: half a character is left", name)
		}
	}
	if p := showPayload(nil); !p.None {
		t.Error("nothing is shown as something")
	}
}

// Each payload link of a row finds its payload.
func TestHistoryRow_LinksToAllPayloads(t *testing.T) {
	t.Parallel()
	failure := &history.FailureDetails{ErrorType: "E", ErrorMessage: "m", StackTrace: text("at x"), InnerFailure: &history.FailureDetails{ErrorType: "I", ErrorMessage: "n"}}
	events := []history.Event{
		&history.ExecutionStarted{Name: "Order", Input: text("1"), Tags: map[string]string{"b": "2", "a": "1"}},
		&history.TaskFailed{TaskScheduledID: 7, Reason: text("r"), Details: text("d"), Failure: failure},
		&history.EventRaised{Name: strings.Repeat("long ", 100), Input: text("2")},
		&history.ExecutionCompleted{Status: history.Failed, Result: text("3"), Failure: failure},
		&history.GenericEvent{Data: text("4")}, &history.ExecutionTerminated{Reason: text("5")},
	}
	payloads := 0
	for i, e := range events {
		row := historyRowOf(i, e, func(field string) string { return field })
		for _, p := range row.Payloads {
			payloads++
			if payloadOf(e, p.Query) == nil {
				t.Errorf("%s of a %s is not found", p.Name, row.Type)
			}
		}
		for _, f := range row.Facts {
			if len(f.Value) > maxFactSize+len("…") {
				t.Errorf("%s of a %s has %d bytes", f.Name, row.Type, len(f.Value))
			}
		}
		if payloadOf(e, "Nonsense") != nil {
			t.Errorf("a %s has nonsense", row.Type)
		}
	}
	if payloads != 9 {
		t.Errorf("%d payloads, want 9", payloads)
	}
	if got := *payloadOf(events[1], "FailureDetails"); got != "E: m\nat x\n\ncaused by I: n\n" {
		t.Errorf("the failure is %q", got)
	}
}
