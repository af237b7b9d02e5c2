package dispatch_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// counted returns an orchestrator "O" that ends after two events. The function runs returns how
// often its code was started for an instance.
func counted() (fns functions, runs func(id string) int) {
	var mu sync.Mutex
	counts := make(map[string]int)
	fns = one(func(x *replay.Execution, _ *string) (*string, error) {
		mu.Lock()
		counts[x.Instance().InstanceID]++
		mu.Unlock()
		waitEvent(x, "go")
		waitEvent(x, "go")
		return nil, nil
	})
	return fns, func(id string) int {
		mu.Lock()
		defer mu.Unlock()
		return counts[id]
	}
}

func TestExtendedSession_ContinuesWithoutReplay(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*dispatch.Config)
		want   int
	}{
		{"off", func(*dispatch.Config) {}, 3},
		{"on", extendedSessions, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				fns, runs := counted()
				b.work(fns, test.change)
				b.start("i", "O", nil)
				for range 2 {
					time.Sleep(20 * time.Second) // idle for less than 30 s each, and longer in total
					b.send("i", &history.EventRaised{Name: "go"})
				}
				b.wantOutput("i", history.Completed, "<nil>")
				if got := runs("i"); got != test.want {
					t.Errorf("the code ran %d times, want %d", got, test.want)
				}
			})
		})
	}
}

func TestExtendedSession_EndsWhenNoMessageArrives(t *testing.T) {
	bubble(t, func(b *bench) {
		fns, runs := counted()
		b.work(fns, extendedSessions)
		b.start("i", "O", nil)
		time.Sleep(29 * time.Second)
		b.send("i", &history.EventRaised{Name: "go"}) // still in memory
		time.Sleep(31 * time.Second)
		b.send("i", &history.EventRaised{Name: "go"}) // unloaded
		b.wantOutput("i", history.Completed, "<nil>")
		if got := runs("i"); got != 2 {
			t.Errorf("the code ran %d times, want 2", got)
		}
	})
}

// Eight instances continue in turn on a worker with five slots. One slot is for fetching, and one
// for the other instances. Of the three sessions that could stay, one may end for an instance that
// has just arrived and is not idle yet.
func TestExtendedSessions_EndForOtherInstances(t *testing.T) {
	for name, test := range map[string]struct {
		passes   time.Duration // between two messages
		min, max int           // number of instances that stay in memory
	}{
		"lately": {time.Millisecond, 2, 4}, "long ago": {time.Second, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				fns, runs := counted()
				b.work(fns, extendedSessions, func(c *dispatch.Config) { c.MaxConcurrentOrchestrators = 5 })
				id := func(i int) string { return fmt.Sprint("i", i) }
				for i := range 8 {
					b.start(id(i), "O", nil)
					time.Sleep(test.passes)
				}
				for range 2 {
					for i := range 8 {
						b.send(id(i), &history.EventRaised{Name: "go"})
						time.Sleep(test.passes)
					}
				}
				kept := 0
				for i := range 8 {
					b.wantOutput(id(i), history.Completed, "<nil>")
					if runs(id(i)) == 1 {
						kept++
					}
				}
				if kept < test.min || kept > test.max {
					t.Errorf("%d instances were kept in memory, want %d to %d", kept, test.min, test.max)
				}
			})
		})
	}
}

// A DurableTask worker with one slot keeps its instance in memory, and other instances wait.
func TestExtendedSessions_FreeTheOnlySlotOfAWorker(t *testing.T) {
	bubble(t, func(b *bench) {
		fns, _ := counted()
		fns.orchestrators["HelloSeq"] = helloSequence
		b.work(fns, extendedSessions, func(c *dispatch.Config) { c.MaxConcurrentOrchestrators = 1 })
		b.start("waits", "O", nil)
		time.Sleep(time.Second)
		b.start("i", "HelloSeq", nil)
		time.Sleep(time.Second)
		if s := b.state("i"); s.Status != history.Completed {
			t.Errorf("instance is %v after a second, want Completed", s.Status)
		}
	})
}

func TestExtendedSession_ReleasesTheInstanceWhenTheWorkerStops(t *testing.T) {
	bubble(t, func(b *bench) {
		fns, _ := counted()
		stop := b.work(fns, extendedSessions)
		b.start("i", "O", nil)
		time.Sleep(time.Second)
		start := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("stopping took %v", took)
		}
	})
}

func TestExtendedSession_LetsANewInstanceTakeTheID(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(one(func(x *replay.Execution, input *string) (*string, error) {
			if decode[string](input) == "first" {
				waitEvent(x, "never")
			}
			return input, nil
		}), extendedSessions)
		b.start("i", "O", "first")
		time.Sleep(time.Second)
		b.startEvent(&history.ExecutionStarted{
			Header:   history.NewHeader(time.Now()),
			Instance: history.OrchestrationInstance{InstanceID: "i", ExecutionID: "the second"},
			Name:     "O", Input: encode("second"),
		})
		b.wantOutput("i", history.Completed, `"second"`)
		if got := b.state("i").Instance.ExecutionID; got != "the second" {
			t.Errorf("the execution is %q", got)
		}
	})
}
