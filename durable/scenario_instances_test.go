package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
)

func TestScenario_EventForAChildCompletesItsParent(t *testing.T) {
	t.Parallel()
	const answer = durable.Event[bool]("Answer")
	child := func(ctx *durable.Context, _ durable.Void) (string, error) {
		yes, err := answer.Wait(ctx).AwaitTimeout(5 * time.Minute)
		if err != nil || !yes {
			return "Refused", err
		}
		return "Approved", nil
	}
	main := func(ctx *durable.Context, _ durable.Void) (string, error) {
		return durable.CallSubOrchestrator(ctx, child, durable.Void{}, durable.InstanceID("the child")).Await()
	}
	hub := durabletest.New(t, durable.Orchestrator("Main", main), durable.Orchestrator("Child", child))
	i := durabletest.Start(hub, main, durable.Void{})
	hub.Advance(5 * time.Second)
	durabletest.Raise(durabletest.InstanceOf[string](hub, "the child"), answer, true)
	if out, err := i.Wait(); err != nil || out != "Approved" || hub.Elapsed() != 5*time.Second {
		t.Errorf("got %q, %v after %v", out, err, hub.Elapsed())
	}
}

func TestScenario_FourEventsBeforeTheStartAndOneAfterwards(t *testing.T) {
	t.Parallel()
	const item = durable.Event[int]("Item")
	batch := func(ctx *durable.Context, n int) (items []int, _ error) {
		for range n {
			i, err := item.Wait(ctx).Await()
			if err != nil {
				return nil, err
			}
			items = append(items, i)
		}
		return items, nil
	}
	hub := durabletest.New(t, durable.Orchestrator("Batch", batch))
	i := durabletest.Start(hub, batch, 5, durable.StartAt(hub.Now().Add(time.Hour)))
	for n := range 4 {
		durabletest.Raise(i, item, n)
	}
	if s := i.Status(); s != history.Pending {
		t.Errorf("status before the start time is %v, want Pending", s)
	}
	hub.Advance(2 * time.Hour)
	if s := i.Status(); s != history.Running {
		t.Errorf("status after four events is %v, want Running", s)
	}
	durabletest.Raise(i, item, 4)
	if out, err := i.Wait(); err != nil || fmt.Sprint(out) != "[0 1 2 3 4]" {
		t.Errorf("got %v, %v", out, err)
	}
}

// tree contains a root, branches that wait, and leaves that call an activity after a
// delay.
type tree struct{ touched atomic.Int32 }

func (tr *tree) touch(context.Context, durable.Void) (durable.Void, error) {
	tr.touched.Add(1)
	return durable.Void{}, nil
}

func (tr *tree) leaf(ctx *durable.Context, _ durable.Void) (durable.Void, error) {
	ctx.Sleep(4 * time.Second)
	return durable.CallActivity(ctx, tr.touch, durable.Void{}).Await()
}

func (tr *tree) branch(ctx *durable.Context, _ durable.Void) (durable.Void, error) {
	return durable.CallSubOrchestrator(ctx, tr.leaf, durable.Void{}, ctx.InstanceID()+"-leaf").Await()
}

func (tr *tree) root(ctx *durable.Context, n int) (int, error) {
	tasks := make([]*durable.Task[durable.Void], n)
	for i := range tasks {
		tasks[i] = durable.CallSubOrchestrator(ctx, tr.branch, durable.Void{}, durable.InstanceID(fmt.Sprint("branch", i)))
	}
	all, err := durable.AwaitAll(ctx, tasks...)
	return len(all), err
}

func TestScenario_TreeIsTerminatedWithOrWithoutItsBranches(t *testing.T) {
	for _, c := range []struct {
		name    string
		options []durable.TerminateOption
		touched int32
		leaf    history.RuntimeStatus
	}{
		{"alone", nil, 5, history.Completed},
		{"recursively", []durable.TerminateOption{durable.Recursive}, 0, history.Terminated},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, tr := memhub.New(), new(tree)
				r := durable.NewRegistry(durable.Orchestrator("Root", tr.root), durable.Orchestrator("Branch", tr.branch),
					durable.Orchestrator("Leaf", tr.leaf), durable.Activity("Touch", tr.touch))
				defer run(t, h, r, durable.Config{})()
				client := durable.NewClient(h, r)
				i := must[*durable.Instance[int]](t)(durable.Start(t.Context(), client, tr.root, 5))
				time.Sleep(2 * time.Second)
				if err := i.Terminate(t.Context(), "enough", c.options...); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := tr.touched.Load(); n != c.touched {
					t.Errorf("%d leaves ran their activity, want %d", n, c.touched)
				}
				for id, want := range map[durable.InstanceID]history.RuntimeStatus{i.ID: history.Terminated, "branch3-leaf": c.leaf} {
					if got := statusNow(t, client, id); got != want {
						t.Errorf("%s is %v, want %v", id, got, want)
					}
				}
			})
		})
	}
}

// Terminating a parent must not change a completed child. A grandchild that was not
// awaited is terminated only recursively.
func TestScenario_CompletedChildStaysCompleted(t *testing.T) {
	t.Parallel()
	const never = durable.Event[int]("Never")
	loose := func(ctx *durable.Context, _ durable.Void) (int, error) { return never.Wait(ctx).Await() }
	child := func(ctx *durable.Context, _ durable.Void) (int, error) {
		durable.CallSubOrchestrator(ctx, loose, durable.Void{}, durable.InstanceID("loose"))
		return 1, nil
	}
	main := func(ctx *durable.Context, _ durable.Void) (int, error) {
		if _, err := durable.CallSubOrchestrator(ctx, child, durable.Void{}, durable.InstanceID("child")).Await(); err != nil {
			return 0, err
		}
		return never.Wait(ctx).Await()
	}
	for _, recursive := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := durable.NewRegistry(durable.Orchestrator("Main", main), durable.Orchestrator("Child", child), durable.Orchestrator("Loose", loose))
			h := memhub.New()
			defer run(t, h, r, durable.Config{})()
			c := durable.NewClient(h, r)
			i := must[*durable.Instance[int]](t)(durable.Start(t.Context(), c, main, durable.Void{}))
			synctest.Wait()
			var options []durable.TerminateOption
			wantLoose := history.Running
			if recursive {
				options, wantLoose = append(options, durable.Recursive), history.Terminated
			}
			if err := i.Terminate(t.Context(), "enough", options...); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for id, want := range map[durable.InstanceID]history.RuntimeStatus{i.ID: history.Terminated, "child": history.Completed, "loose": wantLoose} {
				if got := statusNow(t, c, id); got != want {
					t.Errorf("recursive %v: %s is %v, want %v", recursive, id, got, want)
				}
			}
		})
	}
}

func TestScenario_TerminatedTwiceAndStartedAgain(t *testing.T) {
	withWorker(t, func(t *testing.T, p *plant, c *durable.Client) {
		p.repaired.Store(true)
		i := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.waits, "", durable.InstanceID("again")))
		synctest.Wait()
		if err := i.Terminate(t.Context(), "once"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := i.Terminate(t.Context(), "twice"); !errors.Is(err, durable.ErrInstanceEnded) {
			t.Errorf("error is %v, want ErrInstanceEnded", err)
		}
		if s := must[*durable.InstanceState](t)(i.Status(t.Context(), durable.Fetch{Output: true})); s.Output == nil || *s.Output != "once" {
			t.Errorf("output is %v, want the first reason", s.Output)
		}
		next := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.assembles, "motor", i.ID))
		if out, err := next.Wait(t.Context()); err != nil || out != "frame with motor" {
			t.Errorf("got %q, %v", out, err)
		}
		if err := next.Terminate(t.Context(), "late"); !errors.Is(err, durable.ErrInstanceEnded) {
			t.Errorf("error is %v, want ErrInstanceEnded", err)
		}
	})
}

func TestScenario_FamilyIsPurgedAlthoughAChildIsMissing(t *testing.T) {
	withWorker(t, func(t *testing.T, p *plant, c *durable.Client) {
		i := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.family, 2, durable.InstanceID("f")))
		synctest.Wait()
		if err := i.Terminate(t.Context(), "", durable.Recursive); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := c.Purge(t.Context(), "f++"); err != nil {
			t.Fatal(err)
		}
		if result, err := i.Purge(t.Context(), durable.Recursive); err != nil || result.Instances != 2 {
			t.Errorf("%+v, %v; want 2 instances purged", result, err)
		}
	})
}

func TestScenario_TagsAreKeptFromStartToEnd(t *testing.T) {
	t.Parallel()
	const signal = durable.Event[int]("Signal")
	main := func(ctx *durable.Context, _ durable.Void) (int, error) {
		if _, err := signal.Wait(ctx).Await(); err != nil {
			return 0, err
		}
		return len(ctx.Tags()["large"]), nil
	}
	large := strings.Repeat("ä", 64<<10)
	hub := durabletest.New(t, durable.Orchestrator("Main", main))
	i := durabletest.Start(hub, main, durable.Void{}, durable.Tags{"large": large})
	check := func(when string) {
		if tags := i.State().Tags; len(tags) != 1 || tags["large"] != large {
			t.Errorf("%s the instance has %d tags, the large one with %d bytes", when, len(tags), len(tags["large"]))
		}
	}
	check("while it runs")
	durabletest.Raise(i, signal, 1)
	if out, err := i.Wait(); err != nil || out != len(large) {
		t.Errorf("got %d, %v", out, err)
	}
	check("at the end")
}
