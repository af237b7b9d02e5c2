package dispatch_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/google/go-cmp/cmp"
)

// blocks are ways to block until released is closed. Channels replace select {}, which the test
// could not release at its end.
var blocks = map[string]func(released <-chan struct{}){
	"a channel": func(released <-chan struct{}) { <-released },
	"a select of two channels": func(released <-chan struct{}) {
		select {
		case <-released:
		case <-make(chan struct{}):
		}
	},
	"a wait for goroutines": func(released <-chan struct{}) {
		var group sync.WaitGroup
		group.Go(func() { <-released })
		group.Wait()
	},
	"a read": func(released <-chan struct{}) {
		r, w := io.Pipe()
		go func() { <-released; _ = w.Close() }()
		_, _ = r.Read(make([]byte, 1))
	},
}

// A blocker is an orchestrator "O" that blocks after an activity while stuck is set.
type blocker struct {
	stuck    atomic.Bool
	runs     atomic.Int64
	released chan struct{}
}

func newBlocker() *blocker {
	k := &blocker{released: make(chan struct{})}
	k.stuck.Store(true)
	return k
}

func (k *blocker) functions(block func(<-chan struct{})) functions {
	fns := one(func(x *replay.Execution, _ *string) (*string, error) {
		if _, err := callActivity(x, "Hello", "x"); err != nil {
			return nil, err
		}
		n := k.runs.Add(1)
		if k.stuck.Load() {
			block(k.released)
		}
		return callActivity(x, "Hello", fmt.Sprint("run ", n))
	})
	fns.orchestrators["HelloSeq"] = helloSequence
	return fns
}

func TestStall_HoldsTheInstanceUntilItIsSuspendedAndResumed(t *testing.T) {
	for name, block := range blocks {
		for _, way := range bothWays {
			t.Run(name+"/"+way.name, func(t *testing.T) {
				bubble(t, func(b *bench) {
					k := newBlocker()
					var waiting dispatch.BlockedFunctions
					stop := b.work(k.functions(block), way.change, func(c *dispatch.Config) { c.Blocked = &waiting })
					began := time.Now()
					b.start("i", "O", nil)
					time.Sleep(time.Hour)
					if n := k.runs.Load(); n != 1 {
						t.Errorf("the code ran %d times, want 1\n%s", n, b.log)
					}
					if s := b.state("i"); s.Status != history.Running {
						t.Errorf("the instance is %v", s.Status)
					}
					want := []dispatch.BlockedFunction{
						{Kind: "orchestrator", Name: "O", Stalled: true, Since: began.Add(31*time.Second + 100*time.Millisecond), Instances: []string{"i"}},
					}
					if diff := cmp.Diff(want, waiting.All(time.Now())); diff != "" {
						t.Errorf("held back (-want +got):\n%s", diff)
					}
					b.start("other", "HelloSeq", nil)
					b.wantOutput("other", history.Completed, `["Hello Tokyo!","Hello Seattle!","Hello London!"]`)

					k.stuck.Store(false)
					b.send("i", &history.ExecutionSuspended{})
					time.Sleep(time.Second)
					if s := b.state("i"); s.Status != history.Suspended {
						t.Errorf("the instance is %v a second after it was suspended", s.Status)
					}
					b.send("i", &history.ExecutionResumed{})
					b.wantOutput("i", history.Completed, `"Hello run 2!"`)
					if all := waiting.All(time.Now()); len(all) != 0 {
						t.Errorf("still held back: %v", all)
					}
					close(k.released)
					synctest.Wait()
					if n := b.log.count("its decisions are discarded"); n != 1 {
						t.Errorf("the late return was logged %d times, want 1:\n%s", n, b.log)
					}
					b.wantOutput("i", history.Completed, `"Hello run 2!"`)
					if err := stop(); err != nil {
						t.Error(err)
					}
					b.wantNothingLeft()
				})
			})
		}
	}
}

// These cannot block in a bubble: synctest does not wait for a mutex or an endless loop.
func TestStall_GivesUpAMutexAndAnEndlessLoop(t *testing.T) {
	var over atomic.Bool
	var mutex sync.Mutex
	for name, block := range map[string]func(<-chan struct{}){
		"a mutex": func(<-chan struct{}) { mutex.Lock(); mutex.Unlock() }, //nolint:staticcheck // it waits
		"an endless loop": func(<-chan struct{}) {
			for !over.Load() {
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, k := newBench(t), newBlocker()
			mutex.Lock()
			stop := b.work(k.functions(block), func(c *dispatch.Config) { c.StallTimeout = 300 * time.Millisecond })
			b.start("i", "O", nil)
			patience.Until(t, "the orchestrator is abandoned", func() bool { return b.log.count("orchestrator was abandoned") == 1 })
			b.send("i", &history.ExecutionTerminated{Reason: new("enough")})
			patience.Until(t, "it is terminated", func() bool { return b.state("i").Status == history.Terminated })
			over.Store(true)
			mutex.Unlock()
			patience.Until(t, "the code has returned", func() bool { return b.log.count("its decisions are discarded") == 1 })
			over.Store(false)
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestStall_LetsAnInstanceBeTerminatedAndSuspended(t *testing.T) {
	for _, way := range bothWays {
		t.Run(way.name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				k := newBlocker()
				defer close(k.released)
				b.work(k.functions(blocks["a channel"]), way.change)
				for _, id := range []string{"early", "late", "suspended"} {
					b.start(id, "O", nil)
				}
				time.Sleep(5 * time.Second)
				b.send("early", &history.ExecutionTerminated{Reason: new("enough")})
				time.Sleep(27 * time.Second) // abandoned after 30 s, redelivered a second later
				if s := b.state("early"); s.Status != history.Terminated {
					t.Errorf("an instance that was terminated before it was abandoned is %v\n%s", s.Status, b.log)
				}
				time.Sleep(time.Hour)
				b.send("late", &history.ExecutionTerminated{Reason: new("enough")})
				b.send("suspended", &history.ExecutionSuspended{})
				time.Sleep(time.Second)
				if s := b.state("late"); s.Status != history.Terminated {
					t.Errorf("the instance is %v a second after it was terminated", s.Status)
				}
				if s := b.state("suspended"); s.Status != history.Suspended {
					t.Errorf("the instance is %v a second after it was suspended", s.Status)
				}
				b.start("more", "O", nil) // the process stops running a function after three stalls
				time.Sleep(time.Hour)
				if n := k.runs.Load(); n != 3 || b.log.count("orchestrator disabled") != 1 {
					t.Errorf("the code ran %d times, want 3\n%s", n, b.log)
				}
				// A resume event runs the code of its instance and permits the function again.
				b.send("suspended", &history.ExecutionResumed{})
				time.Sleep(time.Hour)
				if n := k.runs.Load(); n != 5 {
					t.Errorf("the code ran %d times, want 5: 3, and once more for two instances", n)
				}
			})
		})
	}
}

func TestStall_FreesTheSlotAndLetsTheWorkerStop(t *testing.T) {
	for _, way := range bothWays {
		t.Run(way.name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				k := newBlocker()
				defer close(k.released)
				stop := b.work(k.functions(blocks["a channel"]), way.change, func(c *dispatch.Config) { c.MaxConcurrentOrchestrators = 2 })
				for i := range 5 {
					b.start(fmt.Sprint("i", i), "O", nil)
				}
				b.start("other", "HelloSeq", nil)
				b.wantOutput("other", history.Completed, `["Hello Tokyo!","Hello Seattle!","Hello London!"]`)
				began := time.Now()
				if err := stop(); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > 7*time.Second {
					t.Errorf("stopping took %v", took)
				}
			})
		})
	}
}

func TestStall_AStallWhileTheWorkerStopsIsNotRemembered(t *testing.T) {
	bubble(t, func(b *bench) {
		k := newBlocker()
		defer close(k.released)
		stop := b.work(k.functions(blocks["a channel"]))
		b.start("i", "O", nil)
		time.Sleep(time.Second)
		began := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took <= 5*time.Second || took > 6*time.Second {
			t.Errorf("stopping took %v, want the shutdown timeout of 5 s and at most a second", took)
		}
		k.stuck.Store(false)
		b.work(k.functions(blocks["a channel"]))
		b.wantOutput("i", history.Completed, `"Hello run 2!"`)
	})
}

func TestStall_OfADeferredCallEndsTheSession(t *testing.T) {
	bubble(t, func(b *bench) {
		released := make(chan struct{})
		defer close(released)
		var stuck atomic.Bool
		stuck.Store(true)
		b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
			defer func() {
				if stuck.Load() {
					<-released
				}
			}()
			return waitEvent(x, "go").Input, nil
		}), extendedSessions)
		b.start("i", "O", nil)
		time.Sleep(65 * time.Second) // idle for 30 s, abandoned after 30 s more
		if n := b.log.count("orchestrator was abandoned"); n != 1 {
			t.Errorf("the orchestrator was abandoned %d times, want 1\n%s", n, b.log)
		}
		stuck.Store(false)
		b.send("i", &history.EventRaised{Name: "go", Input: encode("now")})
		b.wantOutput("i", history.Completed, `"now"`)
	})
}

func TestStall_ProgressPreventsAStall(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
			for range 20 {
				time.Sleep(20 * time.Second)
				x.NewGUID()
			}
			time.Sleep(20 * time.Second)
			x.ReportProgress() // for example when a large value is encoded
			time.Sleep(20 * time.Second)
			return nil, nil
		}))
		b.start("i", "O", nil)
		b.wantOutput("i", history.Completed, "<nil>")
		if n := b.log.count("was abandoned"); n != 0 {
			t.Errorf("the orchestrator was abandoned:\n%s", b.log)
		}
	})
}

func TestStall_ALoopUntilATaskIsReadyIsAStall(t *testing.T) {
	bubble(t, func(b *bench) {
		var over atomic.Bool
		b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
			f := new(replay.Future)
			x.WaitEvent(f, "go")
			for !f.Ready() && !over.Load() {
				time.Sleep(time.Second)
			}
			return nil, nil
		}))
		b.start("i", "O", nil)
		time.Sleep(time.Minute)
		over.Store(true)
		time.Sleep(time.Minute)
		if n := b.log.count("its decisions are discarded"); n != 1 || b.state("i").Status != history.Pending {
			t.Errorf("the instance is %v and was abandoned %d times:\n%s", b.state("i").Status, n, b.log)
		}
	})
}

// A tick that arrives late says nothing about the orchestrator, because the process did not
// run.
func TestWatchdog_CountsOnlyTicksThatArriveOnTime(t *testing.T) {
	bubble(t, func(b *bench) {
		w := dispatch.NewWatched(dispatch.DefaultTicks)
		for range 1000 {
			w.Tick(60 * time.Millisecond)
		}
		if w.IsAbandoned() {
			t.Error("late ticks counted")
		}
		for i := range dispatch.DefaultTicks {
			if w.IsAbandoned() {
				t.Errorf("abandoned after %d ticks", i)
			}
			w.Tick(40 * time.Millisecond)
		}
		if !w.IsAbandoned() {
			t.Error("ticks on time did not count")
		}
		w.End()
	})
}

func TestWatchdog_LogsOneStackForManyInstancesOfAFunction(t *testing.T) {
	bubble(t, func(b *bench) {
		k := newBlocker()
		defer close(k.released)
		b.work(k.functions(blocks["a read"]))
		for i := range 5 {
			b.start(fmt.Sprint("i", i), "O", nil)
		}
		time.Sleep(20 * time.Second)
		if n := b.log.count("orchestrator does not yield"); n != 5 {
			t.Errorf("%d reports, want 5:\n%s", n, b.log)
		}
		if n := b.log.count("io.(*Pipe"); n == 0 {
			t.Errorf("the log has no stack:\n%s", b.log)
		}
		stacks := 0
		for line := range strings.Lines(b.log.String()) {
			if strings.Contains(line, "stack=") {
				stacks++
			}
		}
		if stacks != 1 {
			t.Errorf("%d stacks, want 1:\n%s", stacks, b.log)
		}
	})
}
