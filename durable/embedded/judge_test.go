package embedded

import (
	"errors"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func TestJudge_DecidesWhatIsHandedOut(t *testing.T) {
	t.Parallel()
	message := func(e history.Event, execution string) provider.TaskMessage {
		return provider.TaskMessage{Event: e, Target: history.OrchestrationInstance{InstanceID: "i", ExecutionID: execution}}
	}
	start := func(execution string) provider.TaskMessage {
		return message(&history.ExecutionStarted{Instance: history.OrchestrationInstance{InstanceID: "i", ExecutionID: execution}}, execution)
	}
	event, result := &history.EventRaised{Name: "E"}, &history.TaskCompleted{TaskScheduledID: 3}
	unknown := standing{}
	pending := standing{known: true, execution: "x", status: history.Pending}
	atStart := standing{known: true, execution: "x", status: history.Pending, starting: true}
	running := standing{known: true, execution: "x", status: history.Running, begun: true}
	ended := standing{known: true, execution: "x", status: history.Completed, begun: true}

	for _, tt := range []struct {
		name    string
		s       standing
		m       provider.TaskMessage
		vouched bool
		want    verdict
	}{
		{"the start of a new instance", pending, start("x"), false, take},
		{"the start of an execution that has begun", running, start("x"), false, drop},
		{"another start while the instance runs", running, start("y"), false, take},
		{"another start before the instance's own", pending, start("y"), false, hold},
		{"another start with the instance's own", atStart, start("y"), false, hold},
		{"a start that nobody knows of", unknown, start("x"), false, take},

		{"an event for an unknown instance", unknown, message(event, ""), false, take},
		{"a result for an unknown instance", unknown, message(result, ""), false, drop},
		{"an event before the start is due", pending, message(event, ""), false, hold},
		{"an event with the start", atStart, message(event, ""), false, take},
		{"an event for any execution", running, message(event, ""), false, take},
		{"an event for the current execution", running, message(event, "x"), false, take},
		{"an event for another execution", running, message(event, "y"), false, drop},
		{"an event for an instance that has ended", ended, message(event, ""), false, drop},
		{"a result for an instance that has ended", ended, message(result, "x"), true, drop},

		{"a result whose event the history has", running, message(&history.TaskCompleted{TaskScheduledID: 1}, "x"), false, take},
		{"a result whose event the history has not", running, message(result, "x"), false, hold},
		{"a result that is vouched for", running, message(result, "x"), true, take},
		{"a result of another execution that is vouched for", running, message(result, "y"), true, drop},
		{"a result with the start", atStart, message(result, "x"), false, hold},
		{"a failed child whose event the history has not", running, message(&history.SubOrchestrationInstanceFailed{TaskScheduledID: 3}, ""), false, hold},
		{"a timer whose event the history has", running, message(&history.TimerFired{TimerID: 1}, ""), false, take},
	} {
		tt.s.scheduled = func(id int) (bool, error) { return id == 1, nil }
		got, err := judge(tt.s, tt.m, tt.vouched)
		if err != nil || got != tt.want {
			t.Errorf("%s: got %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
}

func TestJudge_DecidesNothingOnAHistoryThatCannotBeRead(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	s := standing{known: true, begun: true, scheduled: func(int) (bool, error) { return false, broken }}
	if _, err := judge(s, provider.TaskMessage{Event: &history.TaskFailed{}}, false); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}
