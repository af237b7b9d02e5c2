package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/crashes"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// step decides a step.
func step(x *replay.Execution, name string, f dispatch.StepFunc, change ...func(*replay.RunStep)) *replay.Future {
	future := new(replay.Future)
	s := &replay.RunStep{Name: name, Attempt: 1, Func: f}
	for _, c := range change {
		c(s)
	}
	x.RunStep(future, s)
	return future
}

func atMostOnce(s *replay.RunStep) { s.AtMostOnce = true }

// resultOf waits for a step and returns its result as text.
func resultOf(f *replay.Future) string {
	f.Await()
	switch e := f.Event().(type) {
	case *history.TaskCompleted:
		if e.Result != nil {
			return *e.Result
		}
	case *history.TaskFailed:
		return "failed: " + e.Failure.ErrorMessage
	}
	return "none"
}

// returns returns a step function that counts its runs and returns text after a time.
func returns(runs *atomic.Int64, after time.Duration, text string) dispatch.StepFunc {
	return func(ctx context.Context) (*string, error) {
		runs.Add(1)
		select {
		case <-time.After(after): // real time: all callers run in a bubble
			return &text, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// inARow returns an orchestrator of n steps, one after the other.
func inARow(n int, runs *atomic.Int64, each time.Duration) functions {
	return one(func(x *replay.Execution, _ *string) (*string, error) {
		all := ""
		for i := range n {
			all += resultOf(step(x, "S", returns(runs, each, fmt.Sprint(i))))
		}
		return &all, nil
	})
}

func TestSteps_CostOneCommitEach(t *testing.T) {
	for name, each := range map[string]time.Duration{"short": 10 * time.Millisecond, "at once": 0, "long": time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var runs atomic.Int64
				b.work(inARow(3, &runs, each))
				b.start("i", "O", nil)
				b.wantOutput("i", history.Completed, "012")
				want := 3
				if each > time.Second { // the start is stored before the first result
					want = 4
				}
				if n := len(b.Commits()); n != want || runs.Load() != 3 {
					t.Errorf("%d commits and %d runs, want %d and 3: %s", n, runs.Load(), want, b.types("i"))
				}
				if n := b.Pending(); n != 0 {
					t.Errorf("%d messages are left", n)
				}
			})
		})
	}
}

// Steps of an instance start one after the other, when another instance releases its slots. This does
// not defer the first checkpoint further.
func TestSteps_DeferTheFirstCheckpointForALimitedTime(t *testing.T) {
	bubble(t, func(b *bench) {
		var runs atomic.Int64
		parallel := func(takes func(i int) time.Duration) replay.Code {
			return func(x *replay.Execution, _ *string) (*string, error) {
				var all []*replay.Future
				for i := range 5 {
					all = append(all, step(x, "S", returns(&runs, takes(i), "")))
				}
				for _, f := range all {
					f.Await()
				}
				return nil, nil
			}
		}
		b.work(functions{orchestrators: map[string]replay.Code{
			"Releases": parallel(func(i int) time.Duration { return time.Duration(30+20*i) * time.Millisecond }),
			"Waits":    parallel(func(int) time.Duration { return time.Hour }),
		}}, func(c *dispatch.Config) { c.MaxConcurrentActivities = 5 })
		b.start("releases", "Releases", nil)
		time.Sleep(time.Millisecond)
		b.start("waits", "Waits", nil)
		time.Sleep(110 * time.Millisecond)
		if got := b.types("waits"); got != "OrchestratorStarted ExecutionStarted OrchestratorCompleted" {
			t.Errorf("after 110 ms the history is %q", got)
		}
	})
}

func TestSteps_HaveAHistoryThatReplays(t *testing.T) {
	bubble(t, func(b *bench) {
		var runs atomic.Int64
		fns := inARow(2, &runs, 0)
		b.work(fns)
		b.start("i", "O", nil)
		b.wantOutput("i", history.Completed, "01")
		want := "OrchestratorStarted ExecutionStarted OrchestratorCompleted OrchestratorStarted TaskScheduled TaskCompleted OrchestratorCompleted " +
			"OrchestratorStarted TaskScheduled TaskCompleted ExecutionCompleted OrchestratorCompleted"
		if got := b.types("i"); got != want {
			t.Errorf("history\n%s, want\n%s", got, want)
		}
		x := replay.New(history.OrchestrationInstance{InstanceID: "i"}, fns.orchestrators["O"])
		defer x.Close()
		x.Episode(b.events("i"), nil)
		if d := x.Divergence(); d != nil {
			t.Error(d)
		}
		var played []bool
		for _, e := range b.events("i") {
			if e.Type() == history.TypeOrchestratorCompleted || e.Type() == history.TypeTaskScheduled {
				played = append(played, e.Head().IsPlayed)
			}
		}
		if got := fmt.Sprint(played); got != "[true false true false false]" {
			t.Errorf("IsPlayed of the ends of episodes and the records is %s", got)
		}
	})
}

// A message, an event or a timer does not wait for a step.
func TestSteps_RunWhileTheInstanceReceivesMessages(t *testing.T) {
	bubble(t, func(b *bench) {
		var runs atomic.Int64
		fns := one(func(x *replay.Execution, _ *string) (*string, error) {
			long := step(x, "long", returns(&runs, time.Minute, "long"))
			before := x.Now()
			waitEvent(x, "go")
			sleepFor(x, 10*time.Second)
			short := resultOf(step(x, "short", returns(&runs, time.Second, "short")))
			text := fmt.Sprint(short, long.IsComplete(), x.Now().Sub(before).Round(time.Second), resultOf(long))
			return &text, nil
		})
		b.work(fns)
		b.start("i", "O", nil)
		time.Sleep(5 * time.Second)
		b.send("i", &history.EventRaised{Name: "go"})
		b.wantOutput("i", history.Completed, "shortfalse 16slong")
		if runs.Load() != 2 {
			t.Errorf("%d runs, want 2", runs.Load())
		}
	})
}

func TestSteps_ReceiveMessagesBeforeTheFirstCheckpoint(t *testing.T) {
	bubble(t, func(b *bench) {
		ran := make(chan time.Duration, 1)
		b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
			step(x, "S", func(ctx context.Context) (*string, error) {
				began := b.Now()
				<-ctx.Done()
				ran <- b.Now().Sub(began)
				return nil, nil
			})
			waitEvent(x, "first")
			waitEvent(x, "never")
			return nil, nil
		}))
		b.start("i", "O", nil)
		time.Sleep(10 * time.Millisecond)
		if n := len(b.Commits()); n != 0 {
			t.Errorf("%d commits before the messages, want 0", n)
		}
		b.send("i", &history.EventRaised{Name: "first"})
		b.send("i", &history.EventRaised{Name: "second"})
		b.send("i", &history.ExecutionTerminated{Reason: new("why")})
		b.end("i")
		got := strings.ReplaceAll(b.types("i"), " OrchestratorCompleted OrchestratorStarted", "") // a message can arrive in a later episode
		if n, want := len(b.Commits()), "ExecutionStarted EventRaised EventRaised ExecutionTerminated"; n > 3 || !strings.Contains(got, want) {
			t.Errorf("%d commits, want at most 3: %s, want %s in it", n, b.types("i"), want)
		}
		if ran := <-ran; ran != 10*time.Millisecond {
			t.Errorf("the step ran for %v after the start, want 10ms", ran)
		}
	})
}

// Many results that arrive at the same time are recorded in several checkpoints.
func TestSteps_RecordALimitedNumberOfResultsAtOnce(t *testing.T) {
	for name, test := range map[string]struct{ steps, size, most int }{
		"number": {2500, 1, dispatch.MaxStepResults}, "size": {10, dispatch.MaxStepResultSize/2 - 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var runs atomic.Int64
				text := strings.Repeat("x", test.size)
				fns := one(func(x *replay.Execution, _ *string) (*string, error) {
					var all []*replay.Future
					first := step(x, "S", returns(&runs, time.Second, text))
					for range test.steps {
						all = append(all, step(x, "S", returns(&runs, 2*time.Second, text)))
					}
					first.Await()
					time.Sleep(5 * time.Second) // while this episode runs, all other steps end
					for _, f := range all {
						f.Await()
					}
					return nil, nil
				})
				b.work(fns, func(c *dispatch.Config) { c.MaxConcurrentActivities = test.steps + 1 })
				b.start("i", "O", nil)
				b.end("i")
				if runs.Load() != int64(test.steps)+1 {
					t.Errorf("%d runs, want %d", runs.Load(), test.steps+1)
				}
				for _, c := range b.Commits() {
					n := 0
					for _, e := range c.Checkpoint.NewEvents {
						if e.Type() == history.TypeTaskCompleted {
							n++
						}
					}
					if n > test.most {
						t.Errorf("a checkpoint records %d results, want at most %d", n, test.most)
					}
				}
			})
		})
	}
}

func TestSteps_FailLikeActivities(t *testing.T) {
	bubble(t, func(b *bench) {
		fns := one(func(x *replay.Execution, _ *string) (*string, error) {
			text := resultOf(step(x, "error", func(context.Context) (*string, error) { return nil, errors.New("no") }))
			text += " " + resultOf(step(x, "panic", func(context.Context) (*string, error) { panic("oh") }))
			text += " " + resultOf(step(x, "exit", func(context.Context) (*string, error) { runtime.Goexit(); return nil, nil }))
			return &text, nil
		})
		b.work(fns)
		b.start("i", "O", nil)
		b.wantOutput("i", history.Completed, "failed: no failed: panic: oh failed: the step ended its goroutine with runtime.Goexit instead of returning")
	})
}

// A killed worker's steps run again. What is recorded does not.
func TestSteps_RunAgainAfterACrash(t *testing.T) {
	for name, killAfter := range map[string]time.Duration{
		"before the first commit": 50 * time.Millisecond, "in the first step": 5 * time.Second, "in the second step": 15 * time.Second, "in the last step": 25 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var runs atomic.Int64
				fns := inARow(3, &runs, 10*time.Second)
				w := b.NewWorker()
				b.workOn(w, fns)
				b.start("i", "O", nil)
				time.Sleep(killAfter)
				w.Kill()
				b.work(fns)
				b.wantOutput("i", history.Completed, "012")
				if runs.Load() != 4 {
					t.Errorf("%d runs, want one more than 3", runs.Load())
				}
				if n := b.Pending(); n != 0 {
					t.Errorf("%d messages are left", n)
				}
			})
		})
	}
}

// The delivery that makes a worker run unrecorded steps does not change the length of the history.
func TestSteps_RunAgainWithTheSameHistoryLength(t *testing.T) {
	bubble(t, func(b *bench) {
		var runs atomic.Int64
		var lengths, sizes []int
		fns := one(func(x *replay.Execution, _ *string) (*string, error) {
			lengths, sizes = nil, nil // only the last replay counts
			for range 2 {
				step(x, "S", returns(&runs, 10*time.Second, "x")).Await()
				lengths, sizes = append(lengths, x.HistoryLength()), append(sizes, x.HistorySize())
			}
			return nil, nil
		})
		w := b.NewWorker()
		b.workOn(w, fns)
		b.start("i", "O", nil)
		time.Sleep(15 * time.Second)
		w.Kill()
		b.work(fns)
		b.end("i")
		inSession := fmt.Sprint(lengths, sizes)
		x := replay.New(history.OrchestrationInstance{InstanceID: "i"}, fns.orchestrators["O"])
		defer x.Close()
		x.Episode(b.events("i"), nil)
		if got := fmt.Sprint(lengths, sizes); got != inSession || len(lengths) != 2 {
			t.Errorf("the session had lengths and sizes %s, and a replay has %s", inSession, got)
		}
	})
}

// A worker that lacks the code fails an instance with two unrecorded steps. With the code, a rewind runs
// both steps.
func TestSteps_RunAfterARewindOfAFailureWithoutTheirCode(t *testing.T) {
	code := func(runs *atomic.Int64, differs bool) functions {
		return one(func(x *replay.Execution, _ *string) (*string, error) {
			if differs {
				begin(x, "A", nil)
			}
			if _, err := callActivity(x, "A", nil); err != nil {
				return nil, err
			}
			first, second := step(x, "S", returns(runs, 10*time.Second, "a")), step(x, "S", returns(runs, 10*time.Second, "b"))
			text := resultOf(first) + resultOf(second)
			return &text, nil
		})
	}
	for name, test := range map[string]struct {
		fns    functions
		change func(*dispatch.Config)
	}{
		"no function": {noFunctions, func(c *dispatch.Config) { c.FailUnknownAfter, c.FailUnknownStarted = -1, true }},
		"wrong version": {code(nil, false), func(c *dispatch.Config) {
			c.CheckVersion, c.FailVersionMismatch = func(string) error { return errors.New("too old") }, true
		}},
		"other code": {code(nil, true), func(*dispatch.Config) {}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var runs atomic.Int64
				fns := code(&runs, false)
				fns.activities = map[string]activity{"A": func(context.Context, *string) (*string, error) { return nil, nil }}
				w := b.NewWorker()
				b.workOn(w, fns)
				b.start("i", "O", nil)
				time.Sleep(5 * time.Second)
				w.Kill()
				stop := b.work(test.fns, test.change)
				if s := b.end("i"); s.Status != history.Failed {
					t.Fatalf("the instance is %v", s.Status)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				if err := b.Rewind(t.Context(), "i", "again"); err != nil {
					t.Fatal(err)
				}
				b.work(fns)
				b.wantOutput("i", history.Completed, "ab")
			})
		})
	}
}

func TestSteps_WhoseResultCannotBeStoredRunAgain(t *testing.T) {
	for _, fault := range []memhub.Fault{memhub.CommitFails, memhub.CommitReplyLost, memhub.SessionLost} {
		for failing := 1; failing <= 3; failing++ { // the first commit stores the deferred checkpoint
			t.Run(fmt.Sprint(fault, " at commit ", failing), func(t *testing.T) {
				bubble(t, func(b *bench) {
					var runs atomic.Int64
					n := 0
					b.Inject(fault, func() bool { n++; return n == failing })
					b.work(inARow(3, &runs, time.Second))
					b.start("i", "O", nil)
					b.wantOutput("i", history.Completed, "012")
					if n := b.Pending(); n != 0 {
						t.Errorf("%d messages are left", n)
					}
					if strings.Contains(b.log.String(), "panic") {
						t.Errorf("the worker has panicked:\n%s", b.log)
					}
				})
			})
		}
	}
}

func TestSteps_EndWithTheirExecution(t *testing.T) {
	for name, end := range map[string]func(b *bench, x *replay.Execution) (*string, error){
		"returned":         func(*bench, *replay.Execution) (*string, error) { return new("returned"), nil },
		"terminated":       func(b *bench, x *replay.Execution) (*string, error) { waitEvent(x, "never"); return nil, nil },
		"continued as new": func(_ *bench, x *replay.Execution) (*string, error) { return nil, x.ContinueAsNew(new("2")) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				causes := make(chan error, 1)
				fns := one(func(x *replay.Execution, input *string) (*string, error) {
					if input != nil {
						return new("second generation"), nil
					}
					step(x, "S", func(ctx context.Context) (*string, error) {
						<-ctx.Done()
						causes <- context.Cause(ctx)
						return new("late"), nil
					})
					waitEvent(x, "go")
					return end(b, x)
				})
				b.work(fns, extendedSessions)
				b.start("i", "O", nil)
				time.Sleep(time.Second)
				if name == "terminated" {
					b.send("i", &history.ExecutionTerminated{Reason: new("why")})
				} else {
					b.send("i", &history.EventRaised{Name: "go"})
				}
				b.end("i")
				if cause := <-causes; !strings.Contains(cause.Error(), "ended or continued") {
					t.Errorf("the cause is %v", cause)
				}
				if strings.Contains(b.types("i"), "TaskCompleted") || b.Pending() != 0 {
					t.Errorf("the late result is recorded, or %d messages are left: %s", b.Pending(), b.types("i"))
				}
			})
		})
	}
}

func TestSteps_OfASuspendedInstanceEndAndNoneStarts(t *testing.T) {
	for name, change := range map[string]func(*dispatch.Config){"with extended sessions": extendedSessions, "without": func(*dispatch.Config) {}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var runs atomic.Int64
				b.work(inARow(2, &runs, 10*time.Second), change)
				b.start("i", "O", nil)
				time.Sleep(time.Second)
				b.send("i", &history.ExecutionSuspended{})
				time.Sleep(time.Hour)
				if runs.Load() != 1 || !strings.HasSuffix(b.types("i"), "TaskCompleted OrchestratorCompleted") || b.Pending() != 0 {
					t.Errorf("%d runs, want 1; %d messages left; %s", runs.Load(), b.Pending(), b.types("i"))
				}
				b.send("i", &history.ExecutionResumed{})
				b.wantOutput("i", history.Completed, "01")
				if runs.Load() != 2 {
					t.Errorf("%d runs, want 2", runs.Load())
				}
			})
		})
	}
}

func TestSteps_ShareTheSlotsOfActivities(t *testing.T) {
	bubble(t, func(b *bench) {
		var running, most atomic.Int64
		fns := one(func(x *replay.Execution, _ *string) (*string, error) {
			var all []*replay.Future
			for range 20 {
				all = append(all, step(x, "S", func(context.Context) (*string, error) {
					if n := running.Add(1); n > most.Load() {
						most.Store(n)
					}
					time.Sleep(time.Second)
					running.Add(-1)
					return nil, nil
				}))
			}
			for _, f := range all {
				f.Await()
			}
			return nil, nil
		})
		d := b.dispatcher(fns, func(c *dispatch.Config) { c.MaxConcurrentActivities = 3 })
		b.start("i", "O", nil)
		b.start("j", "O", nil)
		time.Sleep(time.Second / 2)
		if n := len(d.Running(history.OrchestrationInstance{InstanceID: "i", ExecutionID: "execution of i"})) +
			len(d.Running(history.OrchestrationInstance{InstanceID: "j", ExecutionID: "execution of j"})); n < 2 {
			t.Errorf("%d running steps are reported", n)
		}
		b.end("i")
		b.end("j")
		if n := most.Load(); n != 3 {
			t.Errorf("%d steps ran at the same time, want 3", n)
		}
	})
}

// More instances than slots run steps at the same time.
func TestSteps_LeaveTheSlotOfTheirOrchestration(t *testing.T) {
	bubble(t, func(b *bench) {
		var runs atomic.Int64
		b.work(inARow(1, &runs, time.Minute), func(c *dispatch.Config) { c.MaxConcurrentOrchestrators, c.MaxConcurrentActivities = 2, 11 })
		for i := range 10 {
			b.start(fmt.Sprint(i), "O", nil)
		}
		time.Sleep(time.Second)
		if runs.Load() != 10 {
			t.Errorf("%d steps run, want 10", runs.Load())
		}
		for i := range 10 {
			b.wantOutput(fmt.Sprint(i), history.Completed, "0")
		}
	})
}

func TestSteps_EndWithTheWorkerAndRunElsewhere(t *testing.T) {
	for name, test := range map[string]struct {
		each time.Duration
		runs int64
	}{"in time": {4 * time.Second, 3}, "interrupted": {20 * time.Second, 4}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var runs atomic.Int64
				fns := inARow(3, &runs, test.each)
				_, stop := b.workOn(b.NewWorker(), fns)
				b.start("i", "O", nil)
				time.Sleep(time.Second)
				if err := stop(); err != nil {
					t.Error(err)
				}
				at := time.Now()
				b.work(fns)
				b.wantOutput("i", history.Completed, "012")
				if runs.Load() != test.runs || time.Since(at) > 62*time.Second {
					t.Errorf("%d runs, want %d; it took %v", runs.Load(), test.runs, time.Since(at))
				}
			})
		})
	}
}

// A worker ends two steps at the same time. One returns a result, and the other is interrupted. The next
// worker runs the interrupted step.
func TestSteps_ThatAreInterruptedBesideAResultRunElsewhere(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*replay.RunStep)
		outcome string
		runs    int64
	}{
		"at least once": {func(*replay.RunStep) {}, "again", 2},
		"at most once":  {atMostOnce, "failed: the process that ran step A ended before it recorded the result; the outcome is unknown", 1},
	} {
		for sessions, change := range map[string]func(*dispatch.Config){"with extended sessions": extendedSessions, "without": func(*dispatch.Config) {}} {
			t.Run(name+" "+sessions, func(t *testing.T) {
				bubble(t, func(b *bench) {
					var runs atomic.Int64
					fns := one(func(x *replay.Execution, _ *string) (*string, error) {
						a := step(x, "A", func(ctx context.Context) (*string, error) {
							if runs.Add(1) > 1 {
								return new("again"), nil
							}
							<-ctx.Done()
							return nil, context.Cause(ctx)
						}, test.change)
						c := step(x, "B", func(ctx context.Context) (*string, error) {
							<-ctx.Done()
							time.Sleep(time.Millisecond) // after the return of A
							return new("b"), nil
						})
						text := resultOf(c) + " " + resultOf(a)
						return &text, nil
					})
					_, stop := b.workOn(b.NewWorker(), fns, change)
					b.start("i", "O", nil)
					time.Sleep(time.Second)
					if err := stop(); err != nil {
						t.Error(err)
					}
					if got := b.types("i"); !strings.HasSuffix(got, "TaskCompleted OrchestratorCompleted") {
						t.Errorf("the result of B is not recorded: %s", got)
					}
					b.work(fns, change)
					b.wantOutput("i", history.Completed, "b "+test.outcome)
					if runs.Load() != test.runs {
						t.Errorf("%d runs of A, want %d", runs.Load(), test.runs)
					}
				})
			})
		}
	}
}

func TestSteps_ThatIgnoreTheStopAreNamed(t *testing.T) {
	bubble(t, func(b *bench) {
		fns := one(func(x *replay.Execution, _ *string) (*string, error) {
			step(x, "Deaf", func(context.Context) (*string, error) { time.Sleep(time.Hour); return nil, nil }).Await()
			return nil, nil
		})
		stop := b.work(fns)
		b.start("i", "O", nil)
		time.Sleep(time.Second)
		if err := stop(); err == nil || !strings.Contains(err.Error(), "step Deaf of orchestration i") {
			t.Errorf("Run returned %v", err)
		}
		time.Sleep(2 * time.Hour)
	})
}

func TestSteps_ThatRunAtMostOnce(t *testing.T) {
	code := func(runs *atomic.Int64) functions {
		return one(func(x *replay.Execution, _ *string) (*string, error) {
			text := resultOf(step(x, "S", returns(runs, 10*time.Second, "done"), atMostOnce))
			return &text, nil
		})
	}
	t.Run("record their start first", func(t *testing.T) {
		bubble(t, func(b *bench) {
			var runs atomic.Int64
			b.work(code(&runs))
			b.start("i", "O", nil)
			time.Sleep(time.Second)
			if got := b.types("i"); got != "OrchestratorStarted ExecutionStarted OrchestratorCompleted OrchestratorStarted TaskScheduled GenericEvent OrchestratorCompleted" {
				t.Errorf("the history is %s", got)
			}
			if n := len(b.Commits()); n != 1 {
				t.Errorf("%d commits, want 1", n)
			}
			b.wantOutput("i", history.Completed, "done")
		})
	})
	t.Run("do not run again after a crash", func(t *testing.T) {
		bubble(t, func(b *bench) {
			var runs atomic.Int64
			w := b.NewWorker()
			b.workOn(w, code(&runs))
			b.start("i", "O", nil)
			time.Sleep(time.Second)
			w.Kill()
			b.work(code(&runs))
			b.wantOutput("i", history.Completed, "failed: the process that ran step S ended before it recorded the result; the outcome is unknown")
			if runs.Load() != 1 {
				t.Errorf("%d runs, want 1", runs.Load())
			}
		})
	})
}

// Of parallel steps that run at most once, only the steps that have started have an unknown outcome. The
// others run later.
func TestSteps_ThatRunAtMostOnceAndHaveNotBegunRunLater(t *testing.T) {
	code := func(runs *atomic.Int64, n int) functions {
		return one(func(x *replay.Execution, _ *string) (*string, error) {
			var all []*replay.Future
			for i := range n {
				all = append(all, step(x, "S", returns(runs, 10*time.Second, fmt.Sprint(i)), atMostOnce))
			}
			text := ""
			for _, f := range all {
				text += resultOf(f) + " "
			}
			return &text, nil
		})
	}
	oneSlot := func(c *dispatch.Config) { c.MaxConcurrentActivities = 1 }
	for name, leave := range map[string]func(b *bench, w *memhub.Worker, stop func() error){
		"worker stops": func(_ *bench, _ *memhub.Worker, stop func() error) { _ = stop() },
		"worker dies":  func(_ *bench, w *memhub.Worker, _ func() error) { w.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var runs atomic.Int64
				w := b.NewWorker()
				_, stop := b.workOn(w, code(&runs, 3), oneSlot)
				b.start("i", "O", nil)
				time.Sleep(time.Second)
				leave(b, w, stop)
				b.work(code(&runs, 3), oneSlot)
				b.wantOutput("i", history.Completed, "failed: the process that ran step S ended before it recorded the result; the outcome is unknown 1 2 ")
				if runs.Load() != 3 {
					t.Errorf("%d runs, want 3", runs.Load())
				}
			})
		})
	}
	t.Run("instance is suspended", func(t *testing.T) {
		bubble(t, func(b *bench) {
			var runs atomic.Int64
			b.work(code(&runs, 2), oneSlot)
			b.start("i", "O", nil)
			time.Sleep(time.Second)
			b.send("i", &history.ExecutionSuspended{})
			time.Sleep(time.Hour)
			if runs.Load() != 1 {
				t.Errorf("%d runs, want 1", runs.Load())
			}
			b.send("i", &history.ExecutionResumed{})
			b.wantOutput("i", history.Completed, "0 1 ")
		})
	})
	t.Run("start cannot be stored", func(t *testing.T) {
		bubble(t, func(b *bench) {
			var runs atomic.Int64
			n := 0
			b.Inject(memhub.CommitFails, func() bool { n++; return n == 1 })
			d := b.dispatcher(code(&runs, 2), oneSlot)
			b.start("i", "O", nil)
			b.wantOutput("i", history.Completed, "0 1 ")
			if runs.Load() != 2 {
				t.Errorf("%d runs, want 2", runs.Load())
			}
			b.wantNoSlots(d)
		})
	})
	t.Run("instance ends", func(t *testing.T) {
		bubble(t, func(b *bench) {
			var runs atomic.Int64
			d := b.dispatcher(code(&runs, 3), oneSlot)
			b.start("i", "O", nil)
			time.Sleep(time.Second)
			b.send("i", &history.ExecutionTerminated{})
			b.end("i")
			time.Sleep(time.Minute)
			if runs.Load() != 1 {
				t.Errorf("%d runs, want 1", runs.Load())
			}
			b.wantNoSlots(d)
		})
	})
}

// wantNoSlots fails the test if an idle worker occupies a slot for activities.
func (b *bench) wantNoSlots(d *dispatch.Dispatcher) {
	b.Helper()
	if n := d.ActivitySlotsInUse(); n != 0 {
		b.Errorf("%d slots are in use, want 0", n)
	}
}

// After an episode that read the time or received an event, a repetition could decide otherwise.
func TestSteps_StartOnlyAfterADurableDecision(t *testing.T) {
	for name, test := range map[string]struct {
		before func(*replay.Execution)
		stored bool
	}{
		"nothing": {func(*replay.Execution) {}, false},
		"time":    {func(x *replay.Execution) { x.ReadTime() }, true},
		"event":   {func(x *replay.Execution) { waitEvent(x, "go") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				stored := false
				fns := one(func(x *replay.Execution, _ *string) (*string, error) {
					test.before(x)
					step(x, "S", func(context.Context) (*string, error) {
						stored = len(b.events("i")) > 0
						return nil, nil
					}).Await()
					return nil, nil
				})
				b.start("i", "O", nil)
				if name == "event" {
					b.send("i", &history.EventRaised{Name: "go"})
				}
				b.work(fns)
				b.end("i")
				if stored != test.stored {
					t.Errorf("the decision was stored before the step: %v, want %v", stored, test.stored)
				}
			})
		})
	}
}

// Messages that come from a result must not be sent before it is stored. The hub in memory does not claim
// atomic commits.
func TestSteps_StoreTheirResultsBeforeMessages(t *testing.T) {
	bubble(t, func(b *bench) {
		var runs atomic.Int64
		fns := one(func(x *replay.Execution, _ *string) (*string, error) {
			text := resultOf(step(x, "S", returns(&runs, time.Second, "1")))
			x.SendEvent("other", text, nil)
			waitEvent(x, "go")
			return nil, nil
		})
		b.work(fns)
		b.start("i", "O", nil)
		time.Sleep(2 * time.Second)
		commits := b.Commits()
		last, before := commits[len(commits)-1].Checkpoint, commits[len(commits)-2].Checkpoint
		if len(last.Messages) != 1 || len(before.Messages) != 0 || len(before.NewEvents) != 4 || !before.StepsRunning || last.StepsRunning {
			t.Errorf("the commits are %+v and %+v", before, last)
		}
		b.send("i", &history.EventRaised{Name: "go"})
		b.end("i")
	})
}

// A crash between the two parts of a commit leaves the decisions to the next worker.
func TestSteps_RepeatDecisionsThatWereNotStored(t *testing.T) {
	bubble(t, func(b *bench) {
		var runs atomic.Int64
		fns := one(func(x *replay.Execution, _ *string) (*string, error) {
			text := resultOf(step(x, "S", returns(&runs, time.Second, "1")))
			x.SendEvent("other", text, nil)
			return &text, nil
		})
		n := 0
		b.Inject(memhub.CommitFails, func() bool { n++; return n == 3 }) // the start, the results, the decisions
		b.work(fns)
		b.start("i", "O", nil)
		b.wantOutput("i", history.Completed, "1")
		if runs.Load() != 1 {
			t.Errorf("%d runs, want 1", runs.Load())
		}
	})
}

// While one step occupies the only slot, many instances wait for it. They leave the slots of
// orchestrations to others, also if their number exceeds the limit.
func TestSteps_ThatWaitForASlotLeaveTheSlotOfTheirOrchestration(t *testing.T) {
	for _, n := range []int{5, dispatch.MaxWaitingSessions + 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubble(t, func(b *bench) {
				var runs atomic.Int64
				fns := inARow(1, &runs, 10*time.Minute)
				fns.orchestrators["Waits"] = waitForGo
				b.work(fns, func(c *dispatch.Config) { c.MaxConcurrentOrchestrators, c.MaxConcurrentActivities = 2, 1 })
				for i := range n {
					b.start(fmt.Sprint(i), "O", nil)
				}
				time.Sleep(time.Minute)
				b.start("w", "Waits", nil)
				b.send("w", &history.EventRaised{Name: "go", Input: new("1")})
				time.Sleep(time.Minute)
				if s := b.state("w"); s.Status != history.Completed || runs.Load() != 1 {
					t.Errorf("the instance without steps is %v while %d steps run", s.Status, runs.Load())
				}
				time.Sleep(20 * time.Minute)
				if runs.Load() < 3 {
					t.Errorf("%d runs after twenty minutes", runs.Load())
				}
			})
		})
	}
}

// A session that is about to record the start of a step has a slot for activities. It gets a slot for
// orchestrations although other sessions wait for its slot.
func TestSteps_ThatRunAtMostOnceGetBothSlots(t *testing.T) {
	bubble(t, func(b *bench) {
		var runs atomic.Int64
		fns := one(func(x *replay.Execution, _ *string) (*string, error) {
			first, second := step(x, "S", returns(&runs, time.Second, "a")), step(x, "S", returns(&runs, time.Second, "b"), atMostOnce)
			text := resultOf(first) + resultOf(second)
			return &text, nil
		})
		b.work(fns, func(c *dispatch.Config) { c.MaxConcurrentOrchestrators, c.MaxConcurrentActivities = 1, 1 })
		for i := range 10 {
			b.start(fmt.Sprint(i), "O", nil)
		}
		for i := range 10 {
			b.wantOutput(fmt.Sprint(i), history.Completed, "ab")
		}
	})
}

// A step and its session get a slot although fetching an item takes one, too.
func TestSteps_RunWithOneSlotOfEachKind(t *testing.T) {
	for name, change := range map[string]func(*dispatch.Config){"with extended sessions": extendedSessions, "without": func(*dispatch.Config) {}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var runs atomic.Int64
				fns := inARow(3, &runs, time.Second)
				fns.activities = map[string]activity{"A": func(context.Context, *string) (*string, error) { return nil, nil }}
				b.work(fns, change, func(c *dispatch.Config) { c.MaxConcurrentOrchestrators, c.MaxConcurrentActivities = 1, 1 })
				for _, id := range []string{"i", "j", "k"} {
					b.start(id, "O", nil)
				}
				for _, id := range []string{"i", "j", "k"} {
					b.wantOutput(id, history.Completed, "012")
				}
				if runs.Load() != 9 {
					t.Errorf("%d runs, want 9", runs.Load())
				}
			})
		})
	}
}

// setAside returns a ledger that sets work aside.
func setAside(t *testing.T, work string) *crashes.Ledger {
	t.Helper()
	t.Setenv("GODEBUG", os.Getenv("GODEBUG")) // the ledger changes it
	path := filepath.Join(t.TempDir(), "crashes")
	counts, err := json.Marshal(crashes.Counts{work: {Crashes: crashes.Limit}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, counts, 0o600); err != nil {
		t.Fatal(err)
	}
	ledger, _, err := crashes.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return ledger
}

// A step that crashes the process is set aside. Its orchestrator is not.
func TestSteps_ThatCrashTheProcessAreSetAside(t *testing.T) {
	ledger := setAside(t, crashes.WorkName("step", "S", "execution of i", 0, "i"))
	bubble(t, func(b *bench) {
		var runs atomic.Int64
		b.work(inARow(1, &runs, time.Second), func(c *dispatch.Config) { c.Crashes = ledger })
		b.start("i", "O", nil)
		b.start("j", "O", nil)
		b.wantOutput("j", history.Completed, "0")
		time.Sleep(time.Hour)
		if runs.Load() != 1 || b.log.count("orchestration is held back") == 0 {
			t.Errorf("%d runs, want 1 of the other instance\n%s", runs.Load(), b.log)
		}
		b.send("i", &history.ExecutionSuspended{})
		time.Sleep(time.Minute)
		b.send("i", &history.ExecutionResumed{})
		b.wantOutput("i", history.Completed, "0")
	})
}

// stepGrace is the time that a session waits for a function that ignores the end of its context.
const stepGrace = 5 * time.Second

// leasedWorker is a worker whose sessions have a lease that can be lost.
type leasedWorker struct {
	provider.Worker
	holds  func() bool
	leaves func() (time.Duration, bool)
}

func (w leasedWorker) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	item, err := w.Worker.NextOrchestration(ctx)
	if err == nil {
		item.Session = leasedSession{item.Session, w}
	}
	return item, err
}

type leasedSession struct {
	provider.Session
	worker leasedWorker
}

func (s leasedSession) Holds() bool { return s.worker.holds() }

func (s leasedSession) Leaves() (left time.Duration, ok bool) {
	if s.worker.leaves == nil {
		return 0, false
	}
	return s.worker.leaves()
}

// Next returns nothing if the worker needs the instance.
func (s leasedSession) Next(ctx context.Context, idle time.Duration) ([]provider.TaskMessage, error) {
	for end := time.Now().Add(min(idle, 24*time.Hour)); ; {
		messages, err := s.Session.Next(ctx, 100*time.Millisecond)
		_, leaves := s.Leaves()
		if len(messages) > 0 || err != nil || leaves || time.Now().After(end) {
			return messages, err
		}
	}
}

// A session without a lease starts no step, records what has ended, and returns its instance.
func TestSteps_WaitForALostLease(t *testing.T) {
	for name, slots := range map[string]int{"when the first one has ended": 1, "while the first one runs": 2} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var runs, asked atomic.Int64
				fns := one(func(x *replay.Execution, _ *string) (*string, error) {
					first, second := step(x, "A", returns(&runs, time.Second, "a")), step(x, "B", returns(&runs, time.Second, "b"))
					text := resultOf(first) + resultOf(second)
					return &text, nil
				})
				lost := func() bool { return asked.Add(1) != 2 } // when B may start
				b.workOn(leasedWorker{Worker: b.Hub.Worker, holds: lost}, fns, func(c *dispatch.Config) { c.MaxConcurrentActivities = slots })
				b.start("i", "O", nil)
				b.wantOutput("i", history.Completed, "ab")
				if runs.Load() != 2 {
					t.Errorf("%d runs, want 2", runs.Load())
				}
			})
		})
	}
}

// When an instance is handed over, its steps have the time of the drain, less one second for storing
// their results. A step that ignores its context does not keep the instance.
func TestSteps_EndBeforeAHandover(t *testing.T) {
	for name, isDeaf := range map[string]bool{"heeds its context": false, "ignores its context": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var runs atomic.Int64
				var canceled atomic.Int64 // time after the start of the handover, in nanoseconds
				handover := time.Now().Add(10 * time.Second)
				drained := handover.Add(5 * time.Second)
				fns := one(func(x *replay.Execution, _ *string) (*string, error) {
					text := resultOf(step(x, "S", func(ctx context.Context) (*string, error) {
						if runs.Add(1) > 1 {
							return new("second run"), nil
						}
						<-ctx.Done()
						canceled.Store(int64(time.Since(handover)))
						if isDeaf {
							time.Sleep(time.Hour)
						}
						return nil, context.Cause(ctx)
					}))
					return &text, nil
				})
				isOver := func() bool { return time.Now().After(drained) }
				worker := leasedWorker{b.Hub.Worker, func() bool { return time.Now().Before(handover) || isOver() }, func() (time.Duration, bool) {
					return time.Until(drained), !time.Now().Before(handover) && !isOver()
				}}
				b.workOn(worker, fns)
				b.start("i", "O", nil)
				b.wantOutput("i", history.Completed, "second run")
				if d := time.Duration(canceled.Load()).Round(time.Second); d != 4*time.Second {
					t.Errorf("the context ended %v after the start of the handover, want 4s", d)
				}
				if at := time.Since(drained); at > stepGrace+time.Second {
					t.Errorf("the instance ended %v after the handover", at)
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

func TestReconcile_WakesAnInstance(t *testing.T) {
	t.Parallel()
	i := history.OrchestrationInstance{InstanceID: "i", ExecutionID: "e"}
	past := []history.Event{&history.OrchestratorStarted{}, &history.ExecutionStarted{Instance: i}, &history.OrchestratorCompleted{}}
	_, kept, dropped, err := dispatch.Reconcile(past, []provider.TaskMessage{provider.WakeSteps(i, time.Now())})
	if err != nil || len(kept) > 0 || len(dropped) > 0 {
		t.Errorf("kept %v, dropped %v, %v", kept, dropped, err)
	}
}
