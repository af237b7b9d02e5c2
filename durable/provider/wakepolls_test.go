package provider_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func TestWakePolls_IsADelayedMessageOfItsOwn(t *testing.T) {
	t.Parallel()
	to := history.OrchestrationInstance{InstanceID: "i", ExecutionID: "x"}
	m := provider.WakePolls(to, later, []int{3, 14})
	due, ids := m.WokenPolls()
	delay, delayed := provider.DelayedUntil(m)
	if !due.Equal(later) || fmt.Sprint(ids) != "[3 14]" || !delayed || !delay.Equal(later) || !provider.DueTime(m).Equal(later) {
		t.Errorf("due %v for %v, delayed until %v %v", due, ids, delay, delayed)
	}
	if m.WakesSteps() {
		t.Error("the message wakes all steps")
	}
	for name, other := range map[string]provider.TaskMessage{
		"the wake-up of steps":   provider.WakeSteps(to, later),
		"an event without data":  {Event: &history.GenericEvent{}, Target: to},
		"an event of a program":  {Event: &history.GenericEvent{Data: new("durable.Poll: continue x")}, Target: to},
		"an event without polls": {Event: &history.GenericEvent{Data: new("durable.Poll: continue ")}, Target: to},
		"a timer":                {Event: &history.TimerFired{}, Target: to},
	} {
		if due, ids := other.WokenPolls(); ids != nil || !due.IsZero() {
			t.Errorf("%s is the wake-up of polls %v at %v", name, ids, due)
		}
		if due, delayed := provider.DelayedUntil(other); delayed {
			t.Errorf("%s is delayed until %v", name, due.Format(time.RFC3339))
		}
	}
}
