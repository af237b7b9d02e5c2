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
		"the code must keep the recorded action, and skip it " + patched:              explain.Divergence(&replay.NonDeterminismError{Recorded: "an activity task named 'A'"}),
		"the code must perform the new action " + patched:                             explain.Divergence(&replay.NonDeterminismError{Produced: "a timer task"}),
		"the code must perform the recorded action first, and the new one " + patched: explain.Divergence(&replay.NonDeterminismError{Recorded: "an activity task named 'A'", Produced: "a timer task"}),
		"the code must end as recorded, and differently " + patched:                   {Recorded: "the end: Completed with none", Produced: "nothing"},
	} {
		if text := d.String(); !strings.HasSuffix(text, want) {
			t.Errorf("got %q, want %q at the end", text, want)
		}
	}
}
