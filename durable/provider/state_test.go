package provider_test

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

func TestInstanceState_AppliesTheEventsOfAHistory(t *testing.T) {
	t.Parallel()
	at := func(minute int) history.Header {
		return history.NewHeader(time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC))
	}
	start := func(execution string, minute int, input string) *history.ExecutionStarted {
		return &history.ExecutionStarted{
			Header: at(minute), Instance: history.OrchestrationInstance{InstanceID: "i", ExecutionID: execution}, Name: "O", Input: &input,
		}
	}
	s := provider.NewInstanceState(start("x", 0, "1"))
	first := at(0).Timestamp
	for _, tt := range []struct {
		name      string
		event     history.Event
		status    history.RuntimeStatus
		output    *string
		changed   bool
		completed bool
	}{
		{"pending", &history.OrchestratorStarted{Header: at(1)}, history.Pending, nil, false, false},
		{"started", start("x", 0, "1"), history.Running, nil, true, false},
		{"suspended", &history.ExecutionSuspended{Header: at(2), Reason: new("wait")}, history.Suspended, new("wait"), true, false},
		{"event raised", &history.EventRaised{Header: at(3)}, history.Suspended, new("wait"), false, false},
		{"resumed", &history.ExecutionResumed{Header: at(4)}, history.Running, nil, true, false},
		{"continued as new", &history.ContinueAsNew{Header: at(5), Result: new("2")}, history.ContinuedAsNew, new("2"), true, false},
		{"next generation started", start("y", 6, "2"), history.Running, new("2"), true, false},
		{"failed", &history.ExecutionCompleted{
			Header: at(7), Status: history.Failed, Failure: &history.FailureDetails{ErrorType: "T", ErrorMessage: "m"},
		}, history.Failed, new("T: m"), true, true},
		{"started again", start("z", 8, "3"), history.Running, nil, true, false},
		{"terminated", &history.ExecutionTerminated{Header: at(9), Reason: new("stop")}, history.Terminated, new("stop"), true, true},
	} {
		changed := s.Apply(tt.event)
		if changed != tt.changed || s.Status != tt.status || !s.CompletedAt.IsZero() != tt.completed || !cmp.Equal(s.Output, tt.output) {
			t.Errorf("%s: changed %v, %+v", tt.name, changed, s)
		}
		if tt.event.Head().Timestamp.After(at(7).Timestamp) {
			first = at(8).Timestamp
		}
		if !s.FirstCreatedAt.Equal(first) || !s.LastUpdatedAt.Equal(tt.event.Head().Timestamp) {
			t.Errorf("%s: FirstCreatedAt %v and LastUpdatedAt %v, want %v and %v", tt.name, s.FirstCreatedAt, s.LastUpdatedAt, first, tt.event.Head().Timestamp)
		}
	}
	if s.Instance.ExecutionID != "z" || *s.Input != "3" {
		t.Errorf("state %+v, want the last execution", s)
	}
}
