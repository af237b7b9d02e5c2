package durable_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
)

// The stage runs each episode in memory and by a replay from the start, and fails the
// test if the results differ.
func TestHistoryLength_IsTheSameInEveryReplay(t *testing.T) {
	t.Parallel()
	type extent struct{ Length, Size int }
	s := stage(t, func(ctx *durable.Context, _ durable.Void) ([]extent, error) {
		var all []extent
		look := func() { all = append(all, extent{ctx.HistoryLength(), ctx.HistorySize()}) }
		look()
		task := durable.CallActivity(ctx, count, "a")
		look()
		if _, err := task.Await(); err != nil {
			return nil, err
		}
		look()
		event := durable.Event[string]("E").Wait(ctx)
		if _, err := event.AwaitTimeout(time.Hour); err != nil {
			return nil, err
		}
		look()
		ctx.Sleep(0)
		return all, nil
	})
	lengths := func() int { return len(s.History) }
	s.Start(nil)
	afterStart := lengths()
	s.Episode(done(0, "12345678"))
	afterTask := lengths()
	s.Evict()
	s.Episode(raised("e", `"0123456789"`))
	s.Episode(fired(2))
	// The history has two events when the orchestrator starts: the start of the episode
	// and of the execution. The action is the third one. Later values include the end of
	// the previous episode, and the start and the messages of the current one.
	sizes := []int{len("Main"), len("Main"), len("Main12345678"), len(`Main12345678e"0123456789"`)}
	want := ""
	for i, n := range []int{2, 3, afterStart + 2, afterTask + 2} {
		want += fmt.Sprintf(`,{"Length":%d,"Size":%d}`, n, 128*n+sizes[i])
	}
	wantOutput(t, s, "["+want[1:]+"]")
}

func TestHistoryLength_StartsAgainWithEachGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := memhub.New()
		r := authors(durable.Orchestrator("Grow", grow))
		defer run(t, h, r, durable.Config{})()
		i, err := durable.Start(t.Context(), durable.NewClient(h, r), grow, 0)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := i.Wait(t.Context()); err != nil || out != 3 {
			t.Errorf("output is %d generations, %v; want 3", out, err)
		}
		for _, c := range h.Commits() {
			for _, e := range c.Checkpoint.NewEvents {
				if id := e.Head().EventID; id > 30 {
					t.Errorf("action %d in one generation, want at most 30", id)
				}
			}
		}
	})
}

func grow(ctx *durable.Context, generation int) (int, error) {
	for ctx.HistoryLength() < 100 {
		if _, err := durable.CallActivity(ctx, count, "a").Await(); err != nil {
			return 0, err
		}
	}
	if generation == 3 {
		return generation, nil
	}
	return durable.ContinueAsNew(ctx, grow, generation+1)
}

// See MaxOrchestrationAction_MaxReached in the tests of the DurableTask extension.
func TestMaxOrchestrationActions_EndsAnEndlessLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := memhub.New()
		loop := func(ctx *durable.Context, n int) (string, error) {
			ctx.SetCustomStatus("looping")
			for i := range n {
				switch i % 4 {
				case 0:
					if _, err := durable.CallActivity(ctx, count, "a").Await(); err != nil {
						return "", err
					}
				case 1:
					ctx.Sleep(time.Second)
				case 2:
					if err := durable.Event[int]("E").RaiseFrom(ctx, "nobody", 1); err != nil {
						return "", err
					}
				default:
					durable.CallSubOrchestrator(ctx, greet, "a", durable.FireAndForget)
				}
			}
			return "done", nil
		}
		r := authors(durable.Orchestrator("Loop", loop), durable.Orchestrator("Greet", greet))
		defer run(t, h, r, durable.Config{MaxOrchestrationActions: 7})()
		c := durable.NewClient(h, r)
		for n, want := range map[int]string{
			7: "",
			8: "*durable.UsageError: Maximum amount of orchestration actions (7) has been reached. This value can be configured in host.json file as MaxOrchestrationActions.",
		} {
			i, err := durable.Start(t.Context(), c, loop, n)
			if err != nil {
				t.Fatal(err)
			}
			out, err := i.Wait(t.Context())
			if want == "" && (err != nil || out != "done") || want != "" && (err == nil || !strings.HasSuffix(err.Error(), want)) {
				t.Errorf("%d actions: %q, %v", n, out, err)
			}
			s, err := i.Status(t.Context(), durable.Fetch{Output: true})
			if err != nil || s.CustomStatus == nil || *s.CustomStatus != `"looping"` {
				t.Errorf("%d actions: state %+v, %v, want its custom status", n, s, err)
			}
		}
	})
}

// The legs of a long timer do not count as actions of the orchestrator.
func TestMaxOrchestrationActions_DoesNotStopALongTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := memhub.New()
		long := func(ctx *durable.Context, _ durable.Void) (string, error) {
			ctx.Sleep(60 * 24 * time.Hour)
			return "slept", nil
		}
		r := authors(durable.Orchestrator("Long", long))
		defer run(t, h, r, durable.Config{MaxOrchestrationActions: 1})()
		i, err := durable.Start(t.Context(), durable.NewClient(h, r), long, durable.Void{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(61 * 24 * time.Hour)
		if out, err := i.Wait(t.Context()); err != nil || out != "slept" {
			t.Errorf("output %q, %v", out, err)
		}
	})
}
