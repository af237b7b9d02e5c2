package dispatch_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

// countDown continues as new until its input is 0.
func countDown(x *replay.Execution, input *string) (*string, error) {
	n := decode[int](input)
	if n == 0 {
		return encode("done"), nil
	}
	return nil, x.ContinueAsNew(encode(n - 1))
}

func TestContinueAsNew_RunsThousandsOfGenerationsInConstantMemory(t *testing.T) {
	bubble(t, func(b *bench) {
		var least, most uint64
		b.work(one(func(x *replay.Execution, input *string) (*string, error) {
			if n := decode[int](input); n%1000 == 0 {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				if least == 0 {
					least = m.HeapAlloc
				}
				most = max(most, m.HeapAlloc)
			}
			return countDown(x, input)
		}))
		b.start("i", "O", 10_000)
		b.wantOutput("i", history.Completed, `"done"`)
		if grown := int64(most) - int64(least); grown > 2<<20 {
			t.Errorf("the heap grew by %d bytes during 10,000 generations", grown)
		}
		if got, want := len(b.Commits()), 10_000/dispatch.MaxGenerations+1; got != want {
			t.Errorf("%d checkpoints, want %d", got, want)
		}
		if n := len(b.events("i")); n > 10 {
			t.Errorf("the history has %d events", n)
		}
	})
}

func TestContinueAsNew_NeverRunsAGenerationForTheFirstTimeInReplay(t *testing.T) {
	for _, change := range []func(*dispatch.Config){func(*dispatch.Config) {}, extendedSessions} {
		bubble(t, func(b *bench) {
			fresh := make(map[int]int)
			b.work(one(func(x *replay.Execution, input *string) (*string, error) {
				if !x.IsReplaying() {
					fresh[decode[int](input)]++
				}
				return countDown(x, input)
			}), change)
			n := 3*dispatch.MaxGenerations + 5
			b.start("i", "O", n)
			b.wantOutput("i", history.Completed, `"done"`)
			for i := range n + 1 {
				if fresh[i] != 1 {
					t.Errorf("generation with input %d ran %d times outside replay, want 1", i, fresh[i])
				}
			}
		})
	}
}

func TestContinueAsNew_ALoopThatNeverWaitsCanBeTerminated(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(one(func(x *replay.Execution, input *string) (*string, error) {
			time.Sleep(time.Millisecond) // forbidden in an orchestrator; here it lets virtual time pass
			return nil, x.ContinueAsNew(input)
		}))
		b.start("i", "O", 1)
		time.Sleep(10 * time.Second)
		b.send("i", &history.ExecutionTerminated{Reason: new("enough")})
		time.Sleep(10 * time.Second)
		b.wantOutput("i", history.Terminated, "enough")
	})
}

func TestContinueAsNew_ALoopThatNeverWaitsCanBeSuspended(t *testing.T) {
	for _, change := range []func(*dispatch.Config){func(*dispatch.Config) {}, extendedSessions} {
		bubble(t, func(b *bench) {
			var runs atomic.Int64
			runsPerSecond := testshare.Amount(1000, 100)
			b.work(one(func(x *replay.Execution, input *string) (*string, error) {
				time.Sleep(time.Second / time.Duration(runsPerSecond))
				if runs.Add(1) > int64(30*runsPerSecond) {
					return encode("done"), nil
				}
				return nil, x.ContinueAsNew(input)
			}), change)
			b.start("i", "O", 1)
			time.Sleep(10 * time.Second)
			b.send("i", &history.ExecutionSuspended{})
			time.Sleep(10 * time.Second)
			before := runs.Load()
			time.Sleep(10 * time.Second)
			if s, n := b.state("i"), runs.Load()-before; s.Status != history.Suspended || n != 0 {
				t.Errorf("instance is %v and ran %d generations meanwhile, want it Suspended", s.Status, n)
			}
			b.send("i", &history.ExecutionResumed{})
			b.wantOutput("i", history.Completed, `"done"`)
		})
	}
}

// A generation is suspended before it runs, and the event that it waits for has arrived
// already. Further events must not make it run.
func TestContinueAsNew_StaysSuspendedWhenMessagesArrive(t *testing.T) {
	for _, terminated := range []bool{false, true} {
		for _, change := range []func(*dispatch.Config){func(*dispatch.Config) {}, extendedSessions} {
			bubble(t, func(b *bench) {
				var ended atomic.Int64
				b.work(one(func(x *replay.Execution, input *string) (*string, error) {
					n := decode[int](input) + 1
					waitEvent(x, "go")
					if time.Sleep(time.Second); n == 3 { // forbidden in an orchestrator; here it lets messages arrive together
						ended.Add(1)
						return encode("done"), nil
					}
					return nil, x.ContinueAsNew(encode(n))
				}), change)
				b.start("i", "O", 0)
				time.Sleep(5 * time.Second)
				b.send("i", &history.EventRaised{Name: "go"})
				b.send("i", &history.EventRaised{Name: "go"})
				b.send("i", &history.ExecutionSuspended{})
				for range 4 {
					time.Sleep(10 * time.Second)
					b.send("i", &history.EventRaised{Name: "go"})
				}
				time.Sleep(10 * time.Second)
				if s := b.state("i"); s.Status != history.Suspended {
					t.Errorf("the instance is %v, want it Suspended", s.Status)
				}
				if terminated {
					b.send("i", &history.ExecutionTerminated{Reason: new("enough")})
					b.wantOutput("i", history.Terminated, "enough")
					return
				}
				b.send("i", &history.ExecutionResumed{})
				b.wantOutput("i", history.Completed, `"done"`)
			})
		}
	}
}

// The message that wakes a generation may arrive together with a suspension. The decisions of
// the generation then wait, also in every replay.
func TestContinueAsNew_CanBeSuspendedWhileItIsWoken(t *testing.T) {
	for _, change := range []func(*dispatch.Config){func(*dispatch.Config) {}, extendedSessions} {
		bubble(t, func(b *bench) {
			b.work(functions{
				activities: map[string]activity{"A": sayHello},
				orchestrators: map[string]replay.Code{"O": func(x *replay.Execution, input *string) (*string, error) {
					n := decode[int](input) + 1
					if n == dispatch.MaxGenerations {
						time.Sleep(time.Second) // forbidden in an orchestrator; here it lets messages arrive together
					}
					if n <= dispatch.MaxGenerations {
						return nil, x.ContinueAsNew(encode(n))
					}
					if _, err := callActivity(x, "A", "first"); err != nil {
						return nil, err
					}
					return callActivity(x, "A", "second")
				}},
			}, change)
			b.start("i", "O", 0)
			time.Sleep(time.Second / 2)
			b.send("i", &history.ExecutionSuspended{})
			time.Sleep(10 * time.Second)
			b.send("i", &history.EventRaised{Name: "whatever"})
			time.Sleep(10 * time.Second)
			const suspended = "OrchestratorStarted ExecutionStarted OrchestratorCompleted " +
				"OrchestratorStarted ExecutionSuspended GenericEvent OrchestratorCompleted " +
				"OrchestratorStarted EventRaised OrchestratorCompleted"
			if got := b.types("i"); got != suspended {
				t.Errorf("the history is\n%s, want\n%s", got, suspended)
			}
			b.send("i", &history.ExecutionResumed{})
			b.wantOutput("i", history.Completed, `"Hello second!"`)
		})
	}
}

func TestContinueAsNew_StopsWithTheWorker(t *testing.T) {
	bubble(t, func(b *bench) {
		loop := one(func(x *replay.Execution, input *string) (*string, error) {
			time.Sleep(30 * time.Millisecond)
			return countDown(x, input)
		})
		stop := b.work(loop)
		b.start("i", "O", 90)
		time.Sleep(time.Second) // during the first work item
		start := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("stopping took %v", took)
		}
		if n := len(b.Commits()); n != 1 {
			t.Errorf("%d checkpoints, want 1", n)
		}
		b.work(loop)
		b.wantOutput("i", history.Completed, `"done"`)
	})
}

func TestContinueAsNew_CarriesUnreadEventsOver(t *testing.T) {
	for _, change := range []func(*dispatch.Config){func(*dispatch.Config) {}, extendedSessions} {
		bubble(t, func(b *bench) {
			b.work(one(func(x *replay.Execution, input *string) (*string, error) {
				sum := decode[int](input) + decode[int](waitEvent(x, "add").Input)
				if sum >= 15 {
					return encode(sum), nil
				}
				return nil, x.ContinueAsNew(encode(sum))
			}), change)
			b.start("i", "O", 0)
			time.Sleep(time.Second)
			for i := range 6 { // all at once: five generations leave some unread
				b.send("i", &history.EventRaised{Name: "add", Input: encode(i)})
			}
			b.wantOutput("i", history.Completed, "15")
		})
	}
}

func TestContinueAsNew_SendsTheMessagesOfEveryGeneration(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(functions{orchestrators: map[string]replay.Code{
			"O": func(x *replay.Execution, input *string) (*string, error) {
				x.SendEvent("sink", "n", input)
				return countDown(x, input)
			},
			"Sink": func(x *replay.Execution, _ *string) (*string, error) {
				sum := 0
				for range 251 {
					sum += decode[int](waitEvent(x, "n").Input)
				}
				return encode(sum), nil
			},
		}})
		b.start("sink", "Sink", nil)
		b.start("i", "O", 250)
		b.wantOutput("i", history.Completed, `"done"`)
		b.wantOutput("sink", history.Completed, fmt.Sprint(250*251/2))
	})
}

func TestContinueAsNew_CommitsBeforeItHoldsTooManyMessages(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(one(func(x *replay.Execution, input *string) (*string, error) {
			for range dispatch.MaxGenerationMessages / 2 {
				x.SendEvent("nobody", "n", nil)
			}
			return countDown(x, input)
		}))
		b.start("i", "O", 6)
		b.wantOutput("i", history.Completed, `"done"`)
		for _, c := range b.Commits() {
			if n := len(c.Checkpoint.Messages); n > dispatch.MaxGenerationMessages+1 {
				t.Errorf("a checkpoint has %d messages", n)
			}
		}
		synctest.Wait()
	})
}

func TestContinueAsNew_DiscardsResultsOfThePreviousGeneration(t *testing.T) {
	for _, change := range []func(*dispatch.Config){func(*dispatch.Config) {}, extendedSessions} {
		bubble(t, func(b *bench) {
			b.work(one(func(x *replay.Execution, input *string) (*string, error) {
				if decode[int](input) == 0 {
					begin(x, "Hello", "nobody waits for it")
					return nil, x.ContinueAsNew(encode(1))
				}
				sleepFor(x, time.Minute)
				return callActivity(x, "Hello", "second")
			}), change)
			b.start("i", "O", 0)
			b.wantOutput("i", history.Completed, `"Hello second!"`)
			if n := b.log.count("discarded a message"); n != 1 {
				t.Errorf("%d messages were discarded, want 1:\n%s", n, b.log)
			}
		})
	}
}

func TestContinueAsNew_KeepsTheCustomStatusWithinACheckpoint(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(one(func(x *replay.Execution, input *string) (*string, error) {
			if n := decode[int](input); n == 0 {
				x.SetCustomStatus(new(`"from the first"`))
			}
			if n := decode[int](input); n < 3 {
				return nil, x.ContinueAsNew(encode(n + 1))
			}
			return waitEvent(x, "never").Input, nil
		}))
		b.start("i", "O", 0)
		time.Sleep(time.Second)
		if s := b.state("i").CustomStatus; s == nil || *s != `"from the first"` {
			t.Errorf("custom status is %v", s)
		}
	})
}
