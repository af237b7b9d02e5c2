package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// every makes a step a poll with a constant interval.
func every(interval time.Duration) func(*replay.RunStep) {
	return func(s *replay.RunStep) {
		s.Poll = &replay.PollSchedule{Interval: interval, Coefficient: 1, MaxInterval: interval}
	}
}

// A pollLog records the calls of polls: the number and the time since the start.
type pollLog struct {
	began time.Time
	mu    sync.Mutex
	calls []string
}

// until returns the function of a poll that is done at call n.
func (l *pollLog) until(n int) dispatch.StepFunc {
	return func(ctx context.Context) (*string, error) {
		info, _ := dispatch.ActivityInfoFrom(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.calls = append(l.calls, fmt.Sprintf("%d@%v", info.Poll, time.Since(l.began)))
		if info.Poll < n {
			return nil, dispatch.ErrPollAgain
		}
		return new("done"), nil
	}
}

func (l *pollLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.calls, " ")
}

func (l *pollLog) want(t *testing.T, want string) {
	t.Helper()
	if got := l.String(); got != want {
		t.Errorf("calls\n%s, want\n%s", got, want)
	}
}

// polling returns an orchestrator of one poll.
func polling(l *pollLog, n int, interval time.Duration) functions {
	l.began = time.Now()
	return one(func(x *replay.Execution, _ *string) (*string, error) {
		text := resultOf(step(x, "P", l.until(n), every(interval)))
		return &text, nil
	})
}

const onePoll = "OrchestratorStarted ExecutionStarted OrchestratorCompleted OrchestratorStarted TaskScheduled TaskCompleted ExecutionCompleted OrchestratorCompleted"

func TestPoll_AddsOneTaskToTheHistory(t *testing.T) {
	for name, interval := range map[string]time.Duration{"in memory": time.Second, "asleep": time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var l pollLog
				b.work(polling(&l, 3, interval))
				b.start("i", "O", nil)
				b.wantOutput("i", history.Completed, "done")
				l.want(t, fmt.Sprintf("1@0s 2@%v 3@%v", interval, 2*interval))
				if got := b.types("i"); got != onePoll {
					t.Errorf("history %s", got)
				}
				if n := b.Pending(); n != 0 {
					t.Errorf("%d messages are left", n)
				}
			})
		})
	}
}

// A poll that sleeps holds neither a session nor a slot.
func TestPoll_LeavesMemoryUntilItIsDue(t *testing.T) {
	bubble(t, func(b *bench) {
		var l pollLog
		fns := polling(&l, 2, time.Hour)
		fns.orchestrators["Other"] = func(*replay.Execution, *string) (*string, error) { return nil, nil }
		d := b.dispatcher(fns, func(c *dispatch.Config) { c.MaxConcurrentOrchestrators, c.MaxConcurrentActivities = 1, 1 })
		b.start("i", "O", nil)
		time.Sleep(time.Minute)
		for what, n := range d.InUse() {
			if n != 0 {
				t.Errorf("in use: %d %s", n, what)
			}
		}
		b.start("other", "Other", nil)
		b.end("other")
		b.wantOutput("i", history.Completed, "done")
		l.want(t, "1@0s 2@1h0m0s")
	})
}

// A poll that is due soon waits in memory, and has a wake-up like a running step.
func TestPoll_SurvivesAKillWithItsNumber(t *testing.T) {
	for name, interval := range map[string]time.Duration{"in memory": time.Second, "asleep": time.Minute} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var l pollLog
				fns := polling(&l, 600, interval)
				b.start("i", "O", nil)
				for range 5 {
					w := b.NewWorker()
					b.workOn(w, fns)
					time.Sleep(100*interval + interval/2)
					w.Kill()
				}
				b.work(fns)
				b.wantOutput("i", history.Completed, "done")
				if got := b.types("i"); got != onePoll {
					t.Errorf("history %s", got)
				}
				if !strings.HasSuffix(l.String(), fmt.Sprintf(" 599@%v 600@%v", 598*interval, 599*interval)) {
					t.Errorf("calls %s", l.String())
				}
				if n := len(l.calls); n < 400 || n > 610 { // a killed worker's work is redelivered after 30 s
					t.Errorf("%d calls", n)
				}
			})
		})
	}
}

func TestPoll_OfAStoppedWorkerIsNotRepeatedEarly(t *testing.T) {
	bubble(t, func(b *bench) {
		var l pollLog
		fns := polling(&l, 3, 9*time.Second)
		stop := b.work(fns)
		b.start("i", "O", nil)
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		b.work(fns)
		b.wantOutput("i", history.Completed, "done")
		l.want(t, "1@0s 2@9s 3@18s")
	})
}

// An event that arrives while a poll sleeps does not wake the poll.
func TestPoll_SleepsWhileTheInstanceReceivesMessages(t *testing.T) {
	for name, extended := range map[string]bool{"extended sessions": true, "no extended sessions": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				l := pollLog{began: time.Now()}
				var runs atomic.Int64
				b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
					poll := step(x, "P", l.until(3), every(time.Hour))
					waitEvent(x, "go")
					sleepFor(x, 20*time.Minute)
					other := resultOf(step(x, "S", returns(&runs, 90*time.Minute, "step")))
					text := other + " " + resultOf(poll)
					return &text, nil
				}), func(c *dispatch.Config) { c.ExtendedSessions = extended })
				b.start("i", "O", nil)
				time.Sleep(10 * time.Minute)
				b.send("i", &history.EventRaised{Name: "go"})
				time.Sleep(time.Minute)
				if all := b.Commits(); all[len(all)-1].Checkpoint.StepsRunning {
					t.Error("the poll counts as a running step while it sleeps")
				}
				b.wantOutput("i", history.Completed, "step done")
				l.want(t, "1@0s 2@1h0m0s 3@2h0m0s")
				if n := b.Pending(); n != 0 || runs.Load() != 1 {
					t.Errorf("%d messages are left, the step ran %d times", n, runs.Load())
				}
			})
		})
	}
}

// Polls of one instance with different intervals keep their own schedules.
func TestPoll_RunsBesideOthersOfItsInstance(t *testing.T) {
	bubble(t, func(b *bench) {
		fast, slow := pollLog{began: time.Now()}, pollLog{began: time.Now()}
		b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
			one, other := step(x, "P", fast.until(5), every(time.Minute)), step(x, "Q", slow.until(2), every(10*time.Minute))
			text := resultOf(one) + resultOf(other)
			return &text, nil
		}))
		b.start("i", "O", nil)
		b.wantOutput("i", history.Completed, "donedone")
		fast.want(t, "1@0s 2@1m0s 3@2m0s 4@3m0s 5@4m0s")
		slow.want(t, "1@0s 2@10m0s")
	})
}

func TestPoll_EndsWithItsInstance(t *testing.T) {
	bubble(t, func(b *bench) {
		var l pollLog
		b.work(polling(&l, 99, time.Hour))
		b.start("i", "O", nil)
		time.Sleep(90 * time.Minute)
		b.send("i", &history.ExecutionTerminated{})
		if s := b.end("i"); s.Status != history.Terminated {
			t.Errorf("%v", s.Status)
		}
		time.Sleep(10 * time.Hour)
		l.want(t, "1@0s 2@1h0m0s")
		if n := b.Pending(); n != 0 {
			t.Errorf("%d messages are left", n)
		}
	})
}

// A call that returns after the end of its execution neither changes the instance nor schedules another call.
func TestPoll_CallMayReturnAfterItsExecution(t *testing.T) {
	for name, end := range map[string]history.Event{"terminated": &history.ExecutionTerminated{}, "ended by its code": &history.EventRaised{Name: "end"}} {
		for _, isDone := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/done=%t", name, isDone), func(t *testing.T) {
				bubble(t, func(b *bench) {
					var calls atomic.Int32
					b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
						step(x, "P", func(context.Context) (*string, error) { // ignores the end of its context
							calls.Add(1)
							time.Sleep(10 * time.Minute)
							if isDone {
								return new("too late"), nil
							}
							return nil, dispatch.ErrPollAgain
						}, every(time.Hour))
						waitEvent(x, "end")
						return new("ended"), nil
					}))
					b.start("i", "O", nil)
					time.Sleep(time.Minute)
					b.send("i", end)
					ended := b.end("i")
					events := len(b.events("i"))
					time.Sleep(10 * time.Hour)
					if now := b.end("i"); now.Status != ended.Status || len(b.events("i")) != events {
						t.Errorf("%v with %d events, then %v with %d", ended.Status, events, now.Status, len(b.events("i")))
					}
					if n := b.Pending(); n != 0 || calls.Load() != 1 {
						t.Errorf("%d messages are left after %d calls; want none and 1 call", n, calls.Load())
					}
				})
			})
		}
	}
}

func TestPoll_WaitsForTheResumption(t *testing.T) {
	for name, interval := range map[string]time.Duration{"in memory": 8 * time.Second, "asleep": time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var l pollLog
				b.work(polling(&l, 4, interval))
				b.start("i", "O", nil)
				time.Sleep(interval + interval/2)
				b.send("i", &history.ExecutionSuspended{})
				time.Sleep(interval)
				l.want(t, fmt.Sprintf("1@0s 2@%v", interval))
				b.send("i", &history.ExecutionResumed{})
				b.wantOutput("i", history.Completed, "done")
				if n := b.Pending(); n != 0 || !strings.HasSuffix(l.String(), fmt.Sprintf(" 4@%v", 3*interval)) {
					t.Errorf("%d messages are left; calls %s", n, l.String())
				}
			})
		})
	}
}

// A generation does not continue the polls of the previous generation.
func TestPoll_EndsWithItsGeneration(t *testing.T) {
	bubble(t, func(b *bench) {
		l := pollLog{began: time.Now()}
		b.work(one(func(x *replay.Execution, input *string) (*string, error) {
			if input != nil {
				sleepFor(x, 5*time.Hour)
				return input, nil
			}
			step(x, "P", l.until(99), every(time.Hour))
			sleepFor(x, 90*time.Minute)
			return nil, x.ContinueAsNew(new("second"))
		}))
		b.start("i", "O", nil)
		b.wantOutput("i", history.Completed, "second")
		l.want(t, "1@0s 2@1h0m0s")
		if n := b.Pending(); n != 0 {
			t.Errorf("%d messages are left", n)
		}
	})
}

func TestPoll_FailsWithItsError(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
			calls := 0
			text := resultOf(step(x, "P", func(context.Context) (*string, error) {
				if calls++; calls < 3 {
					return nil, dispatch.ErrPollAgain
				}
				return nil, errors.New("broken")
			}, every(time.Second)))
			return &text, nil
		}))
		b.start("i", "O", nil)
		b.wantOutput("i", history.Completed, "failed: broken")
	})
}

// A rewind removes the record of a poll and its wake-up.
func TestPoll_StartsAgainAfterARewind(t *testing.T) {
	bubble(t, func(b *bench) {
		fails := true
		b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
			f := step(x, "P", func(ctx context.Context) (*string, error) {
				info, _ := dispatch.ActivityInfoFrom(ctx)
				if info.Poll%2 == 1 {
					return nil, dispatch.ErrPollAgain
				}
				if fails {
					return nil, errors.New("broken")
				}
				return new("done"), nil
			}, every(time.Hour))
			text := resultOf(f)
			if f.HasFailed() {
				return nil, errors.New(text)
			}
			return &text, nil
		}))
		b.start("i", "O", nil)
		if s := b.end("i"); s.Status != history.Failed {
			t.Fatalf("%v", s.Status)
		}
		fails = false
		time.Sleep(time.Hour)
		if err := b.Rewind(b.Context(), "i", "again"); err != nil {
			t.Fatal(err)
		}
		b.wantOutput("i", history.Completed, "done")
	})
}

// A message for a poll that has ended does nothing.
func TestPoll_IgnoresAnObsoleteWakeUp(t *testing.T) {
	bubble(t, func(b *bench) {
		var l pollLog
		b.work(polling(&l, 2, time.Hour))
		b.start("i", "O", nil)
		time.Sleep(time.Minute)
		execution := history.OrchestrationInstance{InstanceID: "i", ExecutionID: "execution of i"}
		for _, m := range []provider.TaskMessage{
			provider.WakePolls(execution, time.Now(), []int{7}),
			provider.WakePolls(history.OrchestrationInstance{InstanceID: "i", ExecutionID: "other"}, time.Now(), []int{0}),
		} {
			if err := b.Send(b.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if n := b.Pending(); n != 1 {
			t.Errorf("%d messages wait, want the one for the poll", n)
		}
		b.wantOutput("i", history.Completed, "done")
		l.want(t, "1@0s 2@1h0m0s")
	})
}

// An interrupted step must not wait for the later wake-up of a poll.
func TestPoll_DoesNotDelayAStepThatWasInterrupted(t *testing.T) {
	bubble(t, func(b *bench) {
		var l pollLog
		var runs atomic.Int64
		var again time.Time
		l.began = time.Now()
		fns := one(func(x *replay.Execution, _ *string) (*string, error) {
			poll := step(x, "P", l.until(2), every(time.Hour))
			text := resultOf(step(x, "S", func(ctx context.Context) (*string, error) {
				if runs.Add(1) > 1 {
					again = time.Now()
					return new("again"), nil
				}
				<-ctx.Done()
				return nil, context.Cause(ctx)
			})) + resultOf(poll)
			return &text, nil
		})
		_, stop := b.workOn(b.NewWorker(), fns)
		b.start("i", "O", nil)
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		b.work(fns)
		b.wantOutput("i", history.Completed, "againdone")
		if late := again.Sub(l.began); late > 2*time.Minute {
			t.Errorf("the step runs again after %v", late)
		}
	})
}

// The number of sessions that wait in memory is limited. Instances of further sessions leave memory between
// the calls.
func TestPoll_LeavesMemoryIfTooManySessionsWait(t *testing.T) {
	bubble(t, func(b *bench) {
		began, calls := time.Now(), make([]pollLog, dispatch.MaxWaitingSessions+5)
		for i := range calls {
			calls[i].began = began
		}
		b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
			i, _ := strconv.Atoi(x.Instance().InstanceID)
			text := resultOf(step(x, "P", calls[i].until(3), every(5*time.Second)))
			return &text, nil
		}), func(c *dispatch.Config) {
			c.MaxConcurrentOrchestrators, c.MaxConcurrentActivities = len(calls), len(calls)
		})
		for i := range calls {
			b.start(strconv.Itoa(i), "O", nil)
		}
		for i := range calls {
			b.wantOutput(strconv.Itoa(i), history.Completed, "done")
			calls[i].want(t, "1@0s 2@5s 3@10s")
		}
	})
}

// The schedule starts with the episode. A repeated episode gets a new schedule, so no call is made before the
// episode is stored.
func TestPoll_StartsWhenItsEpisodeIsStored(t *testing.T) {
	bubble(t, func(b *bench) {
		var l pollLog
		commits := 0
		b.Inject(memhub.CommitFails, func() bool { commits++; return commits == 1 })
		b.work(polling(&l, 3, 20*time.Millisecond))
		b.start("i", "O", nil)
		b.wantOutput("i", history.Completed, "done")
		if len(l.calls) != 3 {
			t.Errorf("calls %s, want 3", l.String())
		}
	})
}

func TestPoll_CountsAsLoadFromItsDueTimeOn(t *testing.T) {
	bubble(t, func(b *bench) {
		var l pollLog
		var runs atomic.Int64
		fns := polling(&l, 2, time.Hour)
		fns.orchestrators["Busy"] = inARow(1, &runs, 90*time.Minute).orchestrators["O"]
		d := b.dispatcher(fns, func(c *dispatch.Config) { c.MaxConcurrentActivities = 1 })
		b.start("i", "O", nil)
		time.Sleep(30 * time.Minute)
		if load := d.StepLoad(); load.Length != 0 {
			t.Errorf("a sleeping poll has the load %+v", load)
		}
		b.start("busy", "Busy", nil)
		time.Sleep(40 * time.Minute)
		if load := d.StepLoad(); load.Length != 2 || load.Latency.Round(time.Second) != 10*time.Minute {
			t.Errorf("a step and a poll that waits for a slot have the load %+v", load)
		}
		b.wantOutput("i", history.Completed, "done")
	})
}

// A worker stops at the due time of polls.
func TestPoll_IsNotLostIfItIsDueWhenTheWorkerStops(t *testing.T) {
	bubble(t, func(b *bench) {
		began, calls := time.Now(), make([]pollLog, 50)
		for i := range calls {
			calls[i].began = began
		}
		fns := one(func(x *replay.Execution, _ *string) (*string, error) {
			i, _ := strconv.Atoi(x.Instance().InstanceID)
			text := resultOf(step(x, "P", calls[i].until(3), every(8*time.Second)))
			return &text, nil
		})
		_, stop := b.workOn(b.NewWorker(), fns)
		for i := range calls {
			b.start(strconv.Itoa(i), "O", nil)
		}
		time.Sleep(8 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		b.work(fns)
		for i := range calls {
			b.wantOutput(strconv.Itoa(i), history.Completed, "done")
		}
		b.wantNothingLeft()
	})
}

// The timer of a poll and the clock of its worker may differ.
func TestPoll_IsNotRepeatedIfTheClockIsSetBack(t *testing.T) {
	bubble(t, func(b *bench) {
		var l pollLog
		var back atomic.Int64
		b.work(polling(&l, 3, time.Second), func(c *dispatch.Config) {
			c.Now = func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }
		})
		b.start("i", "O", nil)
		time.Sleep(500 * time.Millisecond)
		back.Store(int64(300 * time.Millisecond))
		b.wantOutput("i", history.Completed, "done")
		l.want(t, "1@0s 2@1s 3@2.3s")
	})
}

// If a suspension arrives during a call, the poll must not make its next call.
func TestPoll_LeavesMemoryIfItsInstanceIsSuspendedDuringACall(t *testing.T) {
	bubble(t, func(b *bench) {
		l := pollLog{began: time.Now()}
		call := l.until(3)
		d := b.dispatcher(one(func(x *replay.Execution, _ *string) (*string, error) {
			text := resultOf(step(x, "P", func(ctx context.Context) (*string, error) {
				result, err := call(ctx)
				time.Sleep(5 * time.Second) // real time: it runs in a bubble
				return result, err
			}, every(8*time.Second)))
			return &text, nil
		}))
		b.start("i", "O", nil)
		time.Sleep(time.Second)
		b.send("i", &history.ExecutionSuspended{})
		time.Sleep(time.Minute)
		for what, n := range d.InUse() {
			if n != 0 {
				t.Errorf("in use: %d %s", n, what)
			}
		}
		b.send("i", &history.ExecutionResumed{})
		b.wantOutput("i", history.Completed, "done")
		l.want(t, "1@0s 8@1m1s")
	})
}
