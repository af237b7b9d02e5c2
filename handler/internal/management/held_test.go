package management

import (
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
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

// One snapshot of the held instances answers for all instances of a list.
func TestBlockedBy_HasTheFirstFunctionOfEachHeldInstance(t *testing.T) {
	t.Parallel()
	snapshots := 0
	m := &API{waiting: func() []durable.BlockedFunction {
		snapshots++
		return []durable.BlockedFunction{{Kind: "activity", Name: "A", Instances: []string{"a", "b"}}, {Kind: "orchestrator", Name: "O", Instances: []string{"b", "c"}}}
	}}
	blocked := m.blockedBy()
	for id, want := range map[string]string{"a": "A", "b": "A", "c": "O", "d": ""} {
		state := &durable.InstanceState{Instance: history.OrchestrationInstance{InstanceID: id}, Status: history.Running}
		if reason, by := held(state, blocked); by == nil && want != "" || by != nil && by.Name != want || (reason == "") != (want == "") {
			t.Errorf("%s waits for %+v, %q; want %q", id, by, reason, want)
		}
		state.Status = history.Terminated
		if reason, by := held(state, blocked); reason != "" || by != nil {
			t.Errorf("%s has ended and waits for %+v, %q", id, by, reason)
		}
	}
	if snapshots != 1 {
		t.Errorf("%d snapshots, want 1", snapshots)
	}
}
