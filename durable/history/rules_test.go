package history

import (
	"testing"
	"time"
)

// A rewind removes the TaskScheduled of a step and leaves the record of its start. An activity that gets
// the same number later is not an interrupted step.
func TestInterruptedSteps_NeedTheRecordOfTheirStartDirectlyAfterTheirTaskScheduled(t *testing.T) {
	t.Parallel()
	at := time.Unix(0, 0)
	scheduled := func(id int) *TaskScheduled { return &TaskScheduled{Header: Header{EventID: id}, Name: "S"} }
	completed := func(id int) *TaskCompleted { return &TaskCompleted{Header: NewHeader(at), TaskScheduledID: id} }
	for name, test := range map[string]struct {
		past []Event
		want int
	}{
		"an interrupted step":          {[]Event{scheduled(0), NewStepStart(0, at)}, 1},
		"two steps, one has ended":     {[]Event{scheduled(0), NewStepStart(0, at), scheduled(1), NewStepStart(1, at), completed(0)}, 1},
		"a step that has ended":        {[]Event{scheduled(0), NewStepStart(0, at), completed(0)}, 0},
		"an activity":                  {[]Event{scheduled(0)}, 0},
		"an activity after a rewind":   {[]Event{NewStepStart(0, at), scheduled(0)}, 0},
		"the start after another task": {[]Event{scheduled(0), scheduled(1), NewStepStart(0, at)}, 0},
	} {
		if got := InterruptedSteps(test.past); len(got) != test.want {
			t.Errorf("%s: %d interrupted steps, want %d", name, len(got), test.want)
		}
	}
}
