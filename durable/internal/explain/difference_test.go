package explain_test

import (
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/explain"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

func TestDifference_StatesTheCompatibleChange(t *testing.T) {
	t.Parallel()
	const patched = "only where Context.Patched returns true"
	for want, d := range map[string]*explain.Difference{
		"it would fit to keep what the history has, and to leave it out " + patched: explain.Divergence(&replay.NonDeterminismError{Recorded: "an activity task named 'A'"}),
		"it would fit to do what is new " + patched:                                 explain.Divergence(&replay.NonDeterminismError{Produced: "a timer task"}),
		"it would fit to do what the history has first, and what is new " + patched: explain.Divergence(&replay.NonDeterminismError{Recorded: "an activity task named 'A'", Produced: "a timer task"}),
		"it would fit to end as the history does, and otherwise " + patched:         {Recorded: "the end: Completed with none", Produced: "nothing"},
	} {
		if text := d.String(); !strings.HasSuffix(text, want) {
			t.Errorf("got %q, want %q at the end", text, want)
		}
	}
}
