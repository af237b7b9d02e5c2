package history_test

import (
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

func TestCompletes_KnowsEveryKindOfCompletion(t *testing.T) {
	t.Parallel()
	tests := []struct {
		event history.Event
		id    int
		ok    bool
	}{
		{&history.TaskCompleted{TaskScheduledID: 1}, 1, true},
		{&history.TaskFailed{TaskScheduledID: 2}, 2, true},
		{&history.SubOrchestrationInstanceCompleted{TaskScheduledID: 3}, 3, true},
		{&history.SubOrchestrationInstanceFailed{TaskScheduledID: 4}, 4, true},
		{&history.TimerFired{TimerID: 0}, 0, true},
		{&history.TaskScheduled{Header: history.Header{EventID: 5}}, 0, false},
		{&history.EventRaised{Name: "6"}, 0, false},
	}
	for _, tt := range tests {
		if id, ok := history.Completes(tt.event); id != tt.id || ok != tt.ok {
			t.Errorf("Completes(%v) = %d, %v, want %d, %v", tt.event.Type(), id, ok, tt.id, tt.ok)
		}
	}
}
