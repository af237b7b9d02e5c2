package dispatch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

func one(code replay.Code) functions {
	return functions{orchestrators: map[string]replay.Code{"O": code}, activities: helloFunctions.activities}
}

func TestHelloSequence_HasSixteenEvents(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(helloFunctions)
		b.start("i", "HelloSeq", nil)
		b.wantOutput("i", history.Completed, `["Hello Tokyo!","Hello Seattle!","Hello London!"]`)
		want := strings.Fields(`
			OrchestratorStarted ExecutionStarted TaskScheduled OrchestratorCompleted
			OrchestratorStarted TaskCompleted TaskScheduled OrchestratorCompleted
			OrchestratorStarted TaskCompleted TaskScheduled OrchestratorCompleted
			OrchestratorStarted TaskCompleted ExecutionCompleted OrchestratorCompleted`)
		if got := b.types("i"); got != strings.Join(want, " ") {
			t.Errorf("history is\n%s, want\n%s", got, strings.Join(want, " "))
		}
		if n := b.Pending(); n != 0 {
			t.Errorf("%d messages are left", n)
		}
	})
}

func TestFanOut_OfAThousandCompletes(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
			tasks := make([]*replay.Future, 1000)
			for i := range tasks {
				tasks[i] = begin(x, "Hello", fmt.Sprint(i))
			}
			for i, f := range tasks {
				r, err := result(f)
				if want := fmt.Sprintf("Hello %d!", i); err != nil || decode[string](r) != want {
					return nil, fmt.Errorf("task %d returned %v, %w; want %s", i, *r, err, want)
				}
			}
			return encode(len(tasks)), nil
		}))
		b.start("i", "O", nil)
		b.wantOutput("i", history.Completed, "1000")
	})
}

func TestTimers_FireInTimeAndNotBefore(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
			began := x.Now()
			sleepFor(x, 5*time.Hour)
			sleepFor(x, 20*24*time.Hour) // in legs
			return encode(x.Now().Sub(began).String()), nil
		}))
		b.start("i", "O", nil)
		time.Sleep(21 * 24 * time.Hour)
		b.wantOutput("i", history.Completed, `"485h0m0s"`)
	})
}

// A timer's message may be delivered by a process whose clock is ahead of the worker's.
func TestTimers_TheOrchestratorsTimeIsNotBeforeAFiredTimer(t *testing.T) {
	bubble(t, func(b *bench) {
		late := func(c *dispatch.Config) { c.Now = func() time.Time { return time.Now().Add(-3 * time.Second) } }
		b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
			due := decode[time.Time](x.StartEvent().Input)
			f := new(replay.Future)
			x.CreateTimer(f, due)
			f.Await()
			return encode(x.Now().Before(due)), nil
		}), late)
		b.start("i", "O", time.Now().Add(time.Minute))
		b.wantOutput("i", history.Completed, "false")
	})
}

func TestEvents_ReachTheWaitingOrchestrator(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
			sleepFor(x, time.Minute)
			a, z := waitEvent(x, "first"), waitEvent(x, "SECOND")
			return encode(decode[string](a.Input) + decode[string](z.Input)), nil
		}))
		b.start("i", "O", nil)
		time.Sleep(time.Second)
		b.send("i", &history.EventRaised{Name: "second", Input: encode("z")}) // before the orchestrator waits for it
		time.Sleep(2 * time.Minute)
		b.send("i", &history.EventRaised{Name: "first", Input: encode("a")})
		b.wantOutput("i", history.Completed, `"az"`)
	})
}

func TestEvents_AnEventWaitsForItsInstanceToStart(t *testing.T) {
	bubble(t, func(b *bench) {
		b.start("i", "O", nil)
		b.send("i", &history.EventRaised{Name: "go", Input: encode("now")})
		b.work(one(func(x *replay.Execution, _ *string) (*string, error) { return waitEvent(x, "go").Input, nil }))
		b.wantOutput("i", history.Completed, `"now"`)
	})
}

func TestTerminate_EndsAWaitingInstance(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(one(func(x *replay.Execution, _ *string) (*string, error) { return waitEvent(x, "never").Input, nil }))
		b.start("i", "O", nil)
		time.Sleep(time.Second)
		b.send("i", &history.ExecutionTerminated{Reason: new("enough")})
		b.wantOutput("i", history.Terminated, "enough")
		// Later messages are discarded.
		b.send("i", &history.EventRaised{Name: "never"})
		time.Sleep(time.Minute)
		if n := b.Pending(); n != 0 {
			t.Errorf("%d messages are left", n)
		}
	})
}

func TestSuspend_HoldsEventsBackUntilResume(t *testing.T) {
	for _, change := range []func(*dispatch.Config){func(*dispatch.Config) {}, extendedSessions} {
		bubble(t, func(b *bench) {
			b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
				x.SetCustomStatus(new(`"waiting"`))
				r := waitEvent(x, "go").Input
				return callActivity(x, "Hello", decode[string](r))
			}), change)
			b.start("i", "O", nil)
			time.Sleep(time.Second)
			b.send("i", &history.ExecutionSuspended{Reason: new("hold")})
			time.Sleep(time.Second)
			b.send("i", &history.EventRaised{Name: "go", Input: encode("x")})
			time.Sleep(time.Minute)
			if s := b.state("i"); s.Status != history.Suspended || *s.CustomStatus != `"waiting"` {
				t.Errorf("instance is %v with %s, want Suspended with its custom status", s.Status, *s.CustomStatus)
			}
			b.send("i", &history.ExecutionResumed{})
			b.wantOutput("i", history.Completed, `"Hello x!"`)
		})
	}
}

func TestParent_IsNotifiedOfTheEndOfAChildThatAnotherProgramStarted(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(one(func(x *replay.Execution, input *string) (*string, error) {
			if decode[string](input) == "bad" {
				return nil, fmt.Errorf("no good")
			}
			return input, nil
		}))
		for _, input := range []string{"good", "bad"} {
			b.startEvent(&history.ExecutionStarted{
				Header:   history.NewHeader(time.Now()),
				Instance: history.OrchestrationInstance{InstanceID: "child " + input, ExecutionID: "ce " + input},
				Name:     "O", Input: encode(input), Parent: parent,
			})
		}
		b.wantOutput("child good", history.Completed, `"good"`)
		b.wantOutput("child bad", history.Failed, "error: no good")
		var reports []string
		for _, c := range b.Commits() {
			for _, m := range c.Checkpoint.Messages {
				if m.Target != parent.Instance {
					t.Errorf("%v went to %v", m.Event.Type(), m.Target)
				}
				switch e := m.Event.(type) {
				case *history.SubOrchestrationInstanceCompleted:
					reports = append(reports, fmt.Sprint("completed ", e.TaskScheduledID, *e.Result))
				case *history.SubOrchestrationInstanceFailed:
					reports = append(reports, fmt.Sprint("failed ", e.TaskScheduledID, *e.Reason, e.Failure))
				}
			}
		}
		slices.Sort(reports)
		if got, want := strings.Join(reports, "; "), `completed 7"good"; failed 7no gooderror: no good`; got != want {
			t.Errorf("messages: %s\nwant: %s", got, want)
		}
	})
}

func TestPanics_OfAnOrchestratorFailOnlyItsInstance(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(functions{
			activities: helloFunctions.activities,
			orchestrators: map[string]replay.Code{
				"HelloSeq": helloSequence,
				"Panic": func(x *replay.Execution, _ *string) (*string, error) {
					if _, err := callActivity(x, "Hello", "x"); err != nil {
						return nil, err
					}
					none := []*string{}
					return none[len(none)], nil
				},
				"Goexit": func(x *replay.Execution, _ *string) (*string, error) {
					new(testing.T).FailNow()
					return nil, nil
				},
			},
		})
		b.start("p", "Panic", nil)
		b.start("g", "Goexit", nil)
		b.start("h", "HelloSeq", nil)
		for id, want := range map[string]string{"p": "index out of range", "g": "Goexit"} {
			if s := b.end(id); s.Status != history.Failed || !strings.Contains(*s.Output, want) {
				t.Errorf("instance %s is %v with %q, want Failed with %q in it", id, s.Status, *s.Output, want)
			}
		}
		b.wantOutput("h", history.Completed, `["Hello Tokyo!","Hello Seattle!","Hello London!"]`)
	})
}

func TestUnknownOrchestrator_WaitsForAWorkerThatHasIt(t *testing.T) {
	bubble(t, func(b *bench) {
		stop := b.work(functions{})
		b.start("i", "HelloSeq", nil)
		time.Sleep(time.Hour)
		if s := b.state("i"); s.Status != history.Pending {
			t.Errorf("instance is %v, want Pending", s.Status)
		}
		if n := b.log.count(`name=HelloSeq`); n < 5 || n > 20 {
			t.Errorf("its name was logged %d times in an hour, want a few:\n%s", n, b.log)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		b.work(helloFunctions)
		b.wantOutput("i", history.Completed, `["Hello Tokyo!","Hello Seattle!","Hello London!"]`)
	})
}

func TestRedeployment_ACodeChangeFailsRunningInstances(t *testing.T) {
	bubble(t, func(b *bench) {
		waits := func(first string) functions {
			return one(func(x *replay.Execution, _ *string) (*string, error) {
				if _, err := callActivity(x, first, "x"); err != nil {
					return nil, err
				}
				return waitEvent(x, "go").Input, nil
			})
		}
		stop := b.work(waits("Hello"))
		b.start("i", "O", nil)
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		b.work(waits("Goodbye"))
		b.send("i", &history.EventRaised{Name: "go"})
		s := b.end("i")
		for _, want := range []string{"Non-Deterministic workflow detected", "'Hello'", "'Goodbye'"} {
			if s.Status != history.Failed || !strings.Contains(*s.Output, want) {
				t.Errorf("instance is %v with %q, want Failed with %q in it", s.Status, *s.Output, want)
			}
		}
	})
}

func TestPanics_OfTheDispatcherAffectOnlyTheirItem(t *testing.T) {
	bubble(t, func(b *bench) {
		fns := recordedFunctions
		fns.entities = entityFunctions.entities
		b.work(fns, func(c *dispatch.Config) {
			c.NewID = func() string { panic("no more ids") }
		})
		b.signal(counterID("a"), "add", 1, time.Time{}) // the batch needs an ID
		b.start("h", "HelloSeq", nil)
		b.wantOutput("h", history.Completed, `["Hello Tokyo!","Hello Seattle!","Hello London!"]`)
		time.Sleep(time.Minute)
		synctest.Wait()
		b.wantState(counterID("a"), "<nil>")
		if n := b.log.count("no more ids"); n < 2 {
			t.Errorf("the panic was logged %d times, want at least 2:\n%s", n, b.log)
		}
	})
}
