package management

import (
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// The reason why the worker holds an instance back is the first reason. If the worker does not run the
// orchestrator, the completion of other reasons does not resume the instance.
func TestWhy_MarksReasonsThatDoNotResumeAHeldInstance(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]bool{"orchestrator": true, "activity": false} {
		w := &durable.Diagnosis{Reasons: []durable.Reason{
			{Kind: durable.ReasonSuspended, TaskID: -1}, {Kind: durable.ReasonEvent, TaskID: -1}, {Kind: durable.ReasonTimer, TaskID: 0},
		}}
		addHeld(w, "a reason", durable.BlockedFunction{Kind: kind})
		if r := w.Reasons; len(r) != 4 || r[0].Kind != durable.ReasonHeldBack || r[0].Detail != "a reason" || r[1].IsNotAwaited || r[2].IsNotAwaited != want || r[3].IsNotAwaited != want {
			t.Errorf("an %s is held back: %+v", kind, r)
		}
	}
}
