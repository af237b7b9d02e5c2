package replay_test

import (
	"errors"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
	"github.com/google/go-cmp/cmp"
)

// attempt runs an activity and returns its failure text as an error.
func attempt(x *replay.Execution, name string) error {
	f := new(replay.Future)
	x.ScheduleTask(f, name, nil)
	f.Await()
	if e, ok := f.Event().(*history.TaskFailed); ok {
		return errors.New(*e.Reason)
	}
	return nil
}

func sleep(x *replay.Execution, d time.Duration) {
	f := new(replay.Future)
	x.CreateTimer(f, x.Now().Add(d))
	f.Await()
}

// played returns the OrchestratorCompleted that DurableTask adds to the first episode after a
// continue-as-new.
func played() history.Event {
	return &history.OrchestratorCompleted{Header: history.Header{EventID: -1, IsPlayed: true, Timestamp: replaytest.Epoch}}
}

func completed(id int, status history.RuntimeStatus, result string) history.Event {
	return &history.ExecutionCompleted{Header: head(id), Status: status, Result: &result}
}

// DurableTask.AzureStorage 2.9.1 wrote these histories for the same orchestrators, event for
// event. For each episode, a new execution replays the earlier ones and must decide what was
// recorded.
func TestExecution_MakesTheDecisionsOfDotNet(t *testing.T) {
	t.Parallel()
	rewound := func(id int) history.Event { return &history.GenericEvent{Header: head(id)} }
	boom := func(x *replay.Execution, _ *string) (*string, error) { return nil, attempt(x, "Boom") }
	parent := func(x *replay.Execution, _ *string) (*string, error) {
		f := new(replay.Future)
		x.CreateSubOrchestration(f, "Fails", "", nil)
		f.Await()
		if e, ok := f.Event().(*history.SubOrchestrationInstanceFailed); ok {
			return nil, errors.New(*e.Reason)
		}
		return nil, nil
	}
	for _, c := range []struct {
		name    string
		code    replay.Code
		history []history.Event
		skip    int // the number of leading episodes that a rewind rewrote
	}{
		{
			name: "timer",
			code: func(x *replay.Execution, _ *string) (*string, error) {
				sleep(x, 2*time.Second)
				return new("timer done"), nil
			},
			history: []history.Event{
				begin(), start(), timer(0), end(),
				begin(), replaytest.Fired(0), completed(1, history.Completed, "timer done"), end(),
			},
		},
		{
			name: "two attempts a second apart, with the timer after the last",
			code: func(x *replay.Execution, _ *string) (*string, error) {
				if attempt(x, "Boom") == nil {
					return nil, nil
				}
				sleep(x, time.Second)
				err := attempt(x, "Boom")
				sleep(x, 0)
				return nil, err
			},
			history: []history.Event{
				begin(), start(), task(0, "Boom"), end(),
				begin(), replaytest.Failed(0, "kaboom f1"), timer(1), end(),
				begin(), replaytest.Fired(1), task(2, "Boom"), end(),
				begin(), replaytest.Failed(2, "kaboom f1"), timer(3), end(),
				begin(), replaytest.Fired(3), completed(4, history.Failed, "kaboom f1"), end(),
			},
		},
		{
			name: "the last generation of a loop",
			code: func(x *replay.Execution, _ *string) (*string, error) {
				return new("looped"), attempt(x, "Hello")
			},
			history: []history.Event{
				begin(), start(), played(), task(0, "Hello"), end(),
				begin(), replaytest.Done(0, "Hello n2!"), completed(1, history.Completed, "looped"), end(),
			},
		},
		{
			name: "suspended and resumed",
			code: func(x *replay.Execution, _ *string) (*string, error) {
				f := new(replay.Future)
				x.WaitEvent(f, "greet")
				f.Await()
				return new("ev:greet=yo"), nil
			},
			history: []history.Event{
				begin(), start(), end(),
				begin(), &history.ExecutionSuspended{}, end(),
				begin(), &history.ExecutionResumed{}, end(),
				begin(), replaytest.Raised("greet", "yo"), completed(0, history.Completed, "ev:greet=yo"), end(),
			},
		},
		{
			name: "an event for another instance",
			code: func(x *replay.Execution, _ *string) (*string, error) {
				x.SendEvent("ev1", "greet", nil)
				return new("sent"), nil
			},
			history: []history.Event{begin(), start(), sent(0, "greet"), completed(1, history.Completed, "sent"), end()},
		},
		{
			name: "a failed activity, rewound and failed again",
			code: boom,
			history: []history.Event{
				begin(), start(), rewound(0), end(),
				begin(), rewound(-1), rewound(1), end(),
				begin(), rewound(-1), task(0, "Boom"), end(),
				begin(), replaytest.Failed(0, "kaboom p1"), completed(1, history.Failed, "kaboom p1"), end(),
			},
			skip: 2,
		},
		{
			name: "the parent of a failed child, rewound and failed again",
			code: parent,
			history: []history.Event{
				begin(), start(), child(0, "Fails"), end(),
				begin(), rewound(-1), rewound(1), end(),
				begin(), &history.SubOrchestrationInstanceFailed{TaskScheduledID: 0, Reason: new("kaboom p1")}, completed(1, history.Failed, "kaboom p1"), end(),
			},
			skip: 2,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for i, e := range episodesOf(c.history) {
				if i < c.skip {
					continue
				}
				x := replay.New(history.OrchestrationInstance{InstanceID: "abc"}, c.code)
				got := replaytest.Record(x.Episode(e.past, e.arrived).Actions, replaytest.Epoch)
				x.Close()
				if diff := cmp.Diff(summary(got), summary(e.decided)); diff != "" {
					t.Errorf("episode %d (-got +want):\n%s", i, diff)
				}
			}
		})
	}
}

// An episode is one episode of a history: the earlier events, the received events and the
// decisions.
type episode struct{ past, arrived, decided []history.Event }

func episodesOf(events []history.Event) (all []episode) {
	for i := 0; i < len(events); {
		e := episode{past: events[:i]}
		for j := i; ; j++ {
			switch events[j].(type) {
			case *history.TaskScheduled, *history.TimerCreated, *history.SubOrchestrationInstanceCreated, *history.EventSent, *history.ExecutionCompleted:
				e.decided = append(e.decided, events[j])
			default:
				e.arrived = append(e.arrived, events[j])
			}
			if j+1 == len(events) || events[j+1].Type() == history.TypeOrchestratorStarted {
				i = j + 1
				break
			}
		}
		e.arrived = e.arrived[:len(e.arrived)-1] // without the OrchestratorCompleted at the end
		all = append(all, e)
	}
	return all
}

// summary describes events, one per line, by the properties that must be the same in .NET.
func summary(events []history.Event) (lines []string) {
	for _, e := range events {
		line := e.Type().String() + " " + string(rune('0'+e.Head().EventID))
		switch e := e.(type) {
		case *history.TaskScheduled:
			line += " " + e.Name
		case *history.SubOrchestrationInstanceCreated:
			line += " " + e.Name
		case *history.EventSent:
			line += " " + e.Name
		case *history.ExecutionCompleted:
			line += " " + e.Status.String()
			if e.Result != nil {
				line += " " + *e.Result
			}
		}
		lines = append(lines, line)
	}
	return lines
}
