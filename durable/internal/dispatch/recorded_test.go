package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
	"github.com/google/go-cmp/cmp"
)

// recordedFunctions are the functions behind testdata/dotnet, which contains the histories that
// DurableTask.Core 2.9.1 wrote for them.
var recordedFunctions = functions{
	activities: map[string]activity{
		"Hello": sayHello,
		"Boom": func(_ context.Context, input *string) (*string, error) {
			return nil, errors.New("kaboom " + decode[string](input))
		},
	},
	orchestrators: map[string]replay.Code{
		"HelloSeq": helloSequence,
		"One": func(x *replay.Execution, input *string) (*string, error) {
			return callActivity(x, "Hello", decode[string](input))
		},
		"Fails": func(x *replay.Execution, input *string) (*string, error) {
			return callActivity(x, "Boom", decode[string](input))
		},
		"FailRetry": func(x *replay.Execution, input *string) (*string, error) {
			var err error
			for range 2 {
				if _, err = callActivity(x, "Boom", decode[string](input)); err != nil {
					sleepFor(x, time.Second)
				}
			}
			return nil, err
		},
		"Parent": func(x *replay.Execution, input *string) (*string, error) {
			f := new(replay.Future)
			x.CreateSubOrchestration(f, "Child", "", input)
			r, err := result(f)
			return encode("parent:" + decode[string](r)), err
		},
		"Child": func(x *replay.Execution, input *string) (*string, error) {
			return encode("child:" + decode[string](input)), nil
		},
		"ParentOfFail": func(x *replay.Execution, input *string) (*string, error) {
			f := new(replay.Future)
			x.CreateSubOrchestration(f, "Fails", x.Instance().InstanceID+"-child", input)
			return result(f)
		},
		"Timer1": func(x *replay.Execution, _ *string) (*string, error) {
			sleepFor(x, 2*time.Second)
			return encode("timer done"), nil
		},
		"Loop": func(x *replay.Execution, input *string) (*string, error) {
			n := decode[int](input)
			if _, err := callActivity(x, "Hello", "n"+string(rune('0'+n))); err != nil || n == 2 {
				return encode("looped"), err
			}
			return nil, x.ContinueAsNew(encode(n + 1))
		},
		"LoopFast": func(x *replay.Execution, input *string) (*string, error) {
			if n := decode[int](input); n < 2 {
				return nil, x.ContinueAsNew(encode(n + 1))
			}
			return encode("fast"), nil
		},
		"WaitEv": func(x *replay.Execution, _ *string) (*string, error) {
			e := waitEvent(x, "greet")
			return encode("ev:" + e.Name + "=" + decode[string](e.Input)), nil
		},
		"Sender": func(x *replay.Execution, input *string) (*string, error) {
			x.SendEvent(decode[string](input), "greet", encode("yo"))
			return encode("sent"), nil
		},
		"BigOut": func(_ *replay.Execution, input *string) (*string, error) {
			return encode(strings.Repeat("z", decode[int](input))), nil
		},
	},
}

func TestHistories_EqualTheHistoriesOfDotNet(t *testing.T) {
	scenarios := map[string]func(*bench){
		"hello":      func(b *bench) { b.start("seq1", "HelloSeq", nil) },
		"fails":      func(b *bench) { b.start("fails", "Fails", "f1") },
		"retry":      func(b *bench) { b.start("retry", "FailRetry", "f1") },
		"parent":     func(b *bench) { b.start("par", "Parent", "p1") },
		"parentfail": func(b *bench) { b.start("parf", "ParentOfFail", "p1") },
		"timer":      func(b *bench) { b.start("tim", "Timer1", "p1") },
		"loop":       func(b *bench) { b.start("loop", "Loop", 0) },
		"loopfast":   func(b *bench) { b.start("loopfast", "LoopFast", 0) },
		"bigin":      func(b *bench) { b.start("bigin", "One", strings.Repeat("x", 50_000)) },
		"bigout":     func(b *bench) { b.start("bigout", "BigOut", 40_000) },
		"tags": func(b *bench) {
			b.startEvent(&history.ExecutionStarted{
				Header:   history.NewHeader(time.Now()),
				Instance: history.OrchestrationInstance{InstanceID: "tagged", ExecutionID: "execution of tagged"},
				Name:     "One", Input: encode("zz"), Tags: map[string]string{"t1": "v1"},
			})
		},
		"events": func(b *bench) {
			b.start("ev1", "WaitEv", "x")
			time.Sleep(time.Second) // real time: each scenario runs in a bubble
			b.send("ev1", &history.ExecutionSuspended{Reason: new("hold")})
			time.Sleep(time.Second) // real time: each scenario runs in a bubble
			b.send("ev1", &history.ExecutionResumed{Reason: new("go")})
			time.Sleep(time.Second) // real time: each scenario runs in a bubble
			b.start("snd", "Sender", "ev1")
		},
		"terminate": func(b *bench) {
			b.start("ev2", "WaitEv", "x")
			time.Sleep(time.Second) // real time: each scenario runs in a bubble
			b.send("ev2", &history.ExecutionTerminated{Reason: new("stop it")})
		},
	}
	for _, sessions := range []struct {
		name string
		on   func(*bench) func() error
	}{
		{"episodes from storage", func(b *bench) func() error { return b.work(recordedFunctions) }},
		{"extended sessions", func(b *bench) func() error { return b.work(recordedFunctions, extendedSessions) }},
	} {
		for name, play := range scenarios {
			t.Run(sessions.name+"/"+name, func(t *testing.T) {
				bubble(t, func(b *bench) {
					stop := sessions.on(b)
					play(b)
					time.Sleep(time.Minute)
					synctest.Wait()
					for id, want := range recorded(t, name, b) {
						if diff := cmp.Diff(want, rows(t, b.events(id))); diff != "" {
							t.Errorf("history of %s differs from the recorded (-recorded +ours):\n%s", id, diff)
						}
					}
					if err := stop(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// recorded returns the recorded histories of a scenario by instance, with the execution IDs of
// this run.
func recorded(t *testing.T, name string, b *bench) map[string][]map[string]any {
	t.Helper()
	text, err := os.ReadFile("testdata/dotnet/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	filled := replaytest.ExpandPayloads(string(text))
	page, err := b.Instances(b.Context(), everything)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range page.Instances {
		filled = strings.ReplaceAll(filled, "<execution of "+i.Instance.InstanceID+">", i.Instance.ExecutionID)
	}
	var histories map[string][]map[string]any
	if err := json.Unmarshal([]byte(filled), &histories); err != nil {
		t.Fatal(err)
	}
	return histories
}

// rows returns events in the format of testdata: the columns of the history table that are not
// null, except times, executions and versions.
func rows(t *testing.T, events []history.Event) []map[string]any {
	t.Helper()
	var all []map[string]any
	for _, e := range events {
		row := map[string]any{
			"EventType": e.Type().String(), "EventId": float64(e.Head().EventID), "IsPlayed": e.Head().IsPlayed,
		}
		set := func(column string, value any) {
			switch v := value.(type) {
			case *string:
				if v != nil {
					row[column] = *v
				}
			case int:
				row[column] = float64(v)
			default:
				row[column] = v
			}
		}
		switch e := e.(type) {
		case *history.ExecutionStarted:
			set("Name", e.Name)
			set("Input", e.Input)
			if e.Generation != nil {
				set("Generation", *e.Generation)
			}
			if e.Tags != nil {
				set("Tags", *encode(e.Tags))
			}
			if p := e.Parent; p != nil {
				set("ParentInstance", *encode(struct {
					Name                  string
					OrchestrationInstance history.OrchestrationInstance
					TaskScheduleID        int `json:"TaskScheduleId"`
				}{p.Name, p.Instance, p.TaskScheduleID}))
				row["ParentInstance"] = strings.ReplaceAll(row["ParentInstance"].(string), "ID\":", "Id\":")
			}
		case *history.ExecutionCompleted:
			set("OrchestrationStatus", e.Status.String())
			set("Result", e.Result)
		case *history.ExecutionTerminated:
			set("Input", e.Reason)
		case *history.ExecutionSuspended:
			set("Reason", e.Reason)
		case *history.ExecutionResumed:
			set("Reason", e.Reason)
		case *history.TaskScheduled:
			set("Name", e.Name)
			set("Input", e.Input)
		case *history.TaskCompleted:
			set("TaskScheduledId", e.TaskScheduledID)
			set("Result", e.Result)
		case *history.TaskFailed:
			set("TaskScheduledId", e.TaskScheduledID)
			set("Reason", e.Reason)
		case *history.SubOrchestrationInstanceCreated:
			set("Name", e.Name)
			set("InstanceId", e.InstanceID)
			set("Input", e.Input)
		case *history.SubOrchestrationInstanceCompleted:
			set("TaskScheduledId", e.TaskScheduledID)
			set("Result", e.Result)
		case *history.SubOrchestrationInstanceFailed:
			set("TaskScheduledId", e.TaskScheduledID)
			set("Reason", e.Reason)
		case *history.TimerFired:
			set("TimerId", e.TimerID)
		case *history.EventSent:
			set("InstanceId", e.InstanceID)
			set("Name", e.Name)
			set("Input", e.Input)
		case *history.EventRaised:
			set("Name", e.Name)
			set("Input", e.Input)
		case *history.OrchestratorStarted, *history.OrchestratorCompleted, *history.TimerCreated:
		default:
			t.Errorf("the histories have no %T", e)
		}
		all = append(all, row)
	}
	return all
}
