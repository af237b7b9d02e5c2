package durable_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

// A plant has functions that fail until they are mended.
type plant struct {
	mended   atomic.Bool
	attempts atomic.Int32
	steady   atomic.Int32 // runs of what always works
}

func (p *plant) fragile(_ context.Context, part string) (string, error) {
	time.Sleep(time.Second) // what works is done before
	p.attempts.Add(1)
	if !p.mended.Load() {
		return "", errors.New(part + " is broken")
	}
	return part, nil
}

func (p *plant) sturdy(_ context.Context, part string) (string, error) {
	p.steady.Add(1)
	return part, nil
}

func (p *plant) slow(ctx context.Context, part string) (string, error) {
	time.Sleep(time.Minute)
	return p.sturdy(ctx, part)
}

const signal = durable.Event[string]("Signal")

func (p *plant) waits(ctx *durable.Context, _ string) (string, error) {
	return signal.Wait(ctx).Await()
}

// family starts a child, which starts a child, which waits.
func (p *plant) family(ctx *durable.Context, generations int) (string, error) {
	if generations == 0 {
		return signal.Wait(ctx).Await()
	}
	return durable.CallSubOrchestrator(ctx, p.family, generations-1, ctx.InstanceID()+"+").Await()
}

func (p *plant) assembles(ctx *durable.Context, part string) (string, error) {
	frame, err := durable.CallActivity(ctx, p.sturdy, "frame").Await()
	if err != nil {
		return "", err
	}
	engine, err := durable.CallActivity(ctx, p.fragile, part).Await()
	return frame + " with " + engine, err
}

func (p *plant) retries(ctx *durable.Context, part string) (string, error) {
	return durable.CallActivity(ctx, p.fragile, part, durable.RetryPolicy{MaxAttempts: 3, FirstInterval: time.Minute}).Await()
}

func (p *plant) catches(ctx *durable.Context, part string) (string, error) {
	if _, err := durable.CallActivity(ctx, p.fragile, part).Await(); err != nil {
		if _, err := durable.CallActivity(ctx, p.sturdy, "alarm").Await(); err != nil {
			return "", err
		}
	}
	return durable.CallActivity(ctx, p.fragile, part).Await()
}

func (p *plant) fansOut(ctx *durable.Context, part string) ([]string, error) {
	tasks := []*durable.Task[string]{
		durable.CallActivity(ctx, p.sturdy, "a"), durable.CallActivity(ctx, p.fragile, part), durable.CallActivity(ctx, p.sturdy, "c"),
	}
	for _, task := range tasks {
		if _, err := task.Await(); err != nil {
			return nil, err // whatever the others come to
		}
	}
	return durable.AwaitAll(ctx, tasks...)
}

func (p *plant) outruns(ctx *durable.Context, part string) ([]string, error) {
	fast, slow := durable.CallActivity(ctx, p.fragile, part), durable.CallActivity(ctx, p.slow, "slow")
	if _, err := fast.Await(); err != nil {
		return nil, err
	}
	return durable.AwaitAll(ctx, fast, slow)
}

func (p *plant) delegates(ctx *durable.Context, part string) (string, error) {
	one := durable.CallSubOrchestrator(ctx, p.assembles, part, ctx.InstanceID()+"-1")
	two := durable.CallSubOrchestrator(ctx, p.retries, part)
	first, err := one.Await()
	if err != nil {
		return "", err
	}
	second, err := two.Await()
	return first + ", " + second, err
}

func (p *plant) registry() *durable.Registry {
	return durable.NewRegistry(
		durable.Activity("Fragile", p.fragile), durable.Activity("Sturdy", p.sturdy), durable.Activity("Slow", p.slow),
		durable.Orchestrator("Waits", p.waits), durable.Orchestrator("Family", p.family), durable.Orchestrator("Assembles", p.assembles),
		durable.Orchestrator("Retries", p.retries), durable.Orchestrator("Catches", p.catches), durable.Orchestrator("FansOut", p.fansOut),
		durable.Orchestrator("Delegates", p.delegates), durable.Orchestrator("Outruns", p.outruns),
	)
}

// works runs f in a bubble with a hub, a worker and a client, with extended
// sessions and without.
func works(t *testing.T, f func(t *testing.T, p *plant, c *durable.Client)) {
	t.Helper()
	for _, sessions := range []bool{false, true} {
		t.Run(fmt.Sprint("sessions ", sessions), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, p := memhub.New(), new(plant)
				defer run(t, h, p.registry(), durable.Config{ExtendedSessions: sessions})()
				f(t, p, durable.NewClient(h, p.registry()))
			})
		})
	}
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func statusNow(t testing.TB, c *durable.Client, id durable.InstanceID) history.RuntimeStatus {
	t.Helper()
	synctest.Wait()
	s, err := c.Status(t.Context(), id, provider.Fetch{})
	if err != nil {
		t.Fatal(err)
	}
	return s.Status
}

func TestSuspend_HoldsEventsUntilTheInstanceIsResumed(t *testing.T) {
	works(t, func(t *testing.T, p *plant, c *durable.Client) {
		i := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.waits, ""))
		synctest.Wait()
		if err := i.Suspend(t.Context(), "hold"); err != nil {
			t.Fatal(err)
		}
		if s := statusNow(t, c, i.ID); s != history.Suspended {
			t.Errorf("it is %v, want Suspended", s)
		}
		if err := i.RaiseEvent(t.Context(), "signal", []byte(`"go"`)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if s := statusNow(t, c, i.ID); s != history.Suspended {
			t.Errorf("after the event it is %v, want Suspended", s)
		}
		if err := i.Suspend(t.Context(), "again"); err == nil || errors.Is(err, durable.ErrInstanceEnded) {
			t.Errorf("suspended twice: %v, want that it is suspended", err)
		}
		if err := i.Resume(t.Context(), "on"); err != nil {
			t.Fatal(err)
		}
		if out, err := i.Wait(t.Context()); err != nil || out != "go" {
			t.Errorf("%q, %v; want go", out, err)
		}
	})
}

// The texts are those of the extension's DurableClient.cs and HttpApiHandler.cs.
func TestInstanceStateError_SaysWhatCannotBeDoneAndWhy(t *testing.T) {
	works(t, func(t *testing.T, p *plant, c *durable.Client) {
		running := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.waits, "", durable.InstanceID("r")))
		ended := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.assembles, "", durable.InstanceID("e")))
		nobody := durable.InstanceOf[string](c, "nobody")
		_, _ = ended.Wait(t.Context())
		purge := func(ctx context.Context, i *durable.Instance[string]) error {
			_, err := i.Purge(ctx)
			return err
		}
		for _, tt := range []struct {
			i    *durable.Instance[string]
			do   func(ctx context.Context, i *durable.Instance[string]) error
			want durable.InstanceStateError
			text string
		}{
			{
				running, func(ctx context.Context, i *durable.Instance[string]) error { return i.Resume(ctx, "") },
				durable.InstanceStateError{InstanceID: "r", Operation: "resume", Status: history.Running},
				"Cannot resume the orchestration instance r because instance is in the Running state.",
			},
			{
				ended, func(ctx context.Context, i *durable.Instance[string]) error { return i.Suspend(ctx, "") },
				durable.InstanceStateError{InstanceID: "e", Operation: "suspend", Status: history.Failed},
				"Cannot suspend the orchestration instance e because instance is in the Failed state.",
			},
			{
				ended, func(ctx context.Context, i *durable.Instance[string]) error { return i.Terminate(ctx, "") },
				durable.InstanceStateError{InstanceID: "e", Operation: "terminate", Status: history.Failed},
				"Cannot terminate the orchestration instance e because instance is in the Failed state.",
			},
			{
				ended, func(ctx context.Context, i *durable.Instance[string]) error { return i.RaiseEvent(ctx, "E", nil) },
				durable.InstanceStateError{InstanceID: "e", Operation: "raise event E", Status: history.Failed},
				"Cannot raise event E for orchestration instance e because instance is in Failed state",
			},
			{
				running, func(ctx context.Context, i *durable.Instance[string]) error { return i.Rewind(ctx, "") },
				durable.InstanceStateError{InstanceID: "r", Operation: "rewind", Status: history.Running},
				`This orchestration has status Running, but only orchestrations in the "Failed" state can be rewound.`,
			},
			{
				running, purge,
				durable.InstanceStateError{InstanceID: "r", Operation: "purge", Status: history.Running},
				"Only orchestrations in a terminal state can be purged, but the orchestration with instance ID r has status Running",
			},
		} {
			err := tt.do(t.Context(), tt.i)
			state, ok := errors.AsType[*durable.InstanceStateError](err)
			if !ok || *state != tt.want || state.Error() != tt.text {
				t.Errorf("%s: %v, want %s", tt.want.Operation, err, tt.text)
			}
			if got := errors.Is(err, durable.ErrInstanceEnded); got != (tt.i == ended) {
				t.Errorf("%s: that it is ErrInstanceEnded is %v", tt.want.Operation, got)
			}
			if err := tt.do(t.Context(), nobody); !errors.Is(err, durable.ErrInstanceNotFound) {
				t.Errorf("%s of nobody: %v, want ErrInstanceNotFound", tt.want.Operation, err)
			}
		}
	})
}

func TestTerminate_RecursivelyEndsAllGenerations(t *testing.T) {
	works(t, func(t *testing.T, p *plant, c *durable.Client) {
		i := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.family, 3, durable.InstanceID("f")))
		other := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.waits, "", durable.InstanceID("g")))
		synctest.Wait()
		if err := i.Terminate(t.Context(), "enough", durable.Recursive); err != nil {
			t.Fatal(err)
		}
		for _, id := range []durable.InstanceID{"f", "f+", "f++", "f+++"} {
			if s := statusNow(t, c, id); s != history.Terminated {
				t.Errorf("%s is %v, want Terminated", id, s)
			}
		}
		if s := statusNow(t, c, other.ID); s != history.Running {
			t.Errorf("another instance is %v", s)
		}
		if err := i.Terminate(t.Context(), "more", durable.Recursive); !errors.Is(err, durable.ErrInstanceEnded) {
			t.Errorf("all have ended: %v, want ErrInstanceEnded", err)
		}
	})
}

func TestTerminate_RecursivelyFindsTheChildrenOfOneThatHasEnded(t *testing.T) {
	works(t, func(t *testing.T, p *plant, c *durable.Client) {
		i := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.family, 2, durable.InstanceID("f")))
		synctest.Wait()
		if err := i.Terminate(t.Context(), "alone"); err != nil {
			t.Fatal(err)
		}
		if s := statusNow(t, c, "f+"); s != history.Running {
			t.Errorf("the child is %v, want Running: it goes on", s)
		}
		if err := i.Terminate(t.Context(), "all", durable.Recursive); err != nil {
			t.Fatal(err)
		}
		for _, id := range []durable.InstanceID{"f+", "f++"} {
			if s := statusNow(t, c, id); s != history.Terminated {
				t.Errorf("%s is %v, want Terminated", id, s)
			}
		}
	})
}

func TestTerminate_RecursivelyWaitsNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(plant)
		c := durable.NewClient(memhub.New(), p.registry()) // nobody works
		i := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.waits, ""))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := i.Terminate(ctx, "", durable.Recursive); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want that the time is over", err)
		}
	})
}

func TestRewind_DoesAgainWhatFailedAndOnlyThat(t *testing.T) {
	for _, tt := range []struct {
		name          string
		start         func(ctx context.Context, p *plant, c *durable.Client) (durable.InstanceID, error)
		output        string
		first, second int32 // runs of the fragile activity before and after
		steady        int32 // of the other, in all
	}{
		{
			"an activity", func(ctx context.Context, p *plant, c *durable.Client) (durable.InstanceID, error) {
				i, err := durable.Start(ctx, c, p.assembles, "motor")
				return i.ID, err
			}, `"frame with motor"`, 1, 1, 1,
		},
		{
			"the last attempt of a retry", func(ctx context.Context, p *plant, c *durable.Client) (durable.InstanceID, error) {
				i, err := durable.Start(ctx, c, p.retries, "motor")
				return i.ID, err
			}, `"motor"`, 3, 1, 0,
		},
		{
			"what failed after a failure that was caught", func(ctx context.Context, p *plant, c *durable.Client) (durable.InstanceID, error) {
				i, err := durable.Start(ctx, c, p.catches, "motor")
				return i.ID, err
			}, `"motor"`, 2, 1, 1,
		},
		{
			"one of many", func(ctx context.Context, p *plant, c *durable.Client) (durable.InstanceID, error) {
				i, err := durable.Start(ctx, c, p.fansOut, "b")
				return i.ID, err
			}, `["a","b","c"]`, 1, 1, 2,
		},
		{
			"what was under way and whose result nobody took", func(ctx context.Context, p *plant, c *durable.Client) (durable.InstanceID, error) {
				i, err := durable.Start(ctx, c, p.outruns, "motor")
				return i.ID, err
			}, `["motor","slow"]`, 1, 1, 3,
		},
		{
			"what failed in children", func(ctx context.Context, p *plant, c *durable.Client) (durable.InstanceID, error) {
				i, err := durable.Start(ctx, c, p.delegates, "motor")
				return i.ID, err
			}, `"frame with motor, motor"`, 4, 2, 1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			works(t, func(t *testing.T, p *plant, c *durable.Client) {
				id, err := tt.start(t.Context(), p, c)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				if s := statusNow(t, c, id); s != history.Failed || p.attempts.Load() != tt.first {
					t.Fatalf("it is %v after %d runs, want Failed after %d", s, p.attempts.Load(), tt.first)
				}
				for range 2 { // the second time it is mended
					before := p.attempts.Load()
					if err := c.Rewind(t.Context(), id, "try again"); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Hour)
					if n := p.attempts.Load() - before; n != tt.second {
						t.Errorf("%d runs after the rewind, want %d", n, tt.second)
					}
					if !p.mended.Load() {
						if s := statusNow(t, c, id); s != history.Failed {
							t.Fatalf("it is %v after a rewind that mended nothing, want Failed", s)
						}
					}
					p.mended.Store(true)
				}
				s, err := c.Status(t.Context(), id, provider.Fetch{Output: true})
				if err != nil || s.Status != history.Completed || *s.Output != tt.output {
					t.Errorf("%v with %v, %v; want Completed with %s", s.Status, *s.Output, err, tt.output)
				}
				if n := p.steady.Load(); n != tt.steady {
					t.Errorf("what worked ran %d times, want %d", n, tt.steady)
				}
			})
		})
	}
}

func TestRestart_TakesOverWhatTheInstanceWasStartedWith(t *testing.T) {
	works(t, func(t *testing.T, p *plant, c *durable.Client) {
		i := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.assembles, "motor", durable.InstanceID("first"),
			durable.Version("1.0"), durable.Tags{"team": "a"}))
		_, _ = i.Wait(t.Context())
		p.mended.Store(true)

		fresh := must[*durable.Instance[string]](t)(i.Restart(t.Context()))
		if out, err := fresh.Wait(t.Context()); err != nil || out != "frame with motor" || fresh.ID == i.ID {
			t.Errorf("%q, %v by %s", out, err, fresh.ID)
		}
		s := must[*provider.InstanceState](t)(fresh.Status(t.Context(), provider.Fetch{}))
		if s.Version != "1.0" || !maps.Equal(s.Tags, map[string]string{"team": "a"}) {
			t.Errorf("version %q and tags %v", s.Version, s.Tags)
		}
		same := must[*durable.Instance[string]](t)(i.Restart(t.Context(), i.ID, durable.Version("2.0"), durable.Tags{"try": "2"}))
		if out, err := same.Wait(t.Context()); err != nil || out != "frame with motor" || same.ID != i.ID {
			t.Errorf("%q, %v by %s", out, err, same.ID)
		}
		s = must[*provider.InstanceState](t)(same.Status(t.Context(), provider.Fetch{}))
		if s.Version != "2.0" || !maps.Equal(s.Tags, map[string]string{"team": "a", "try": "2"}) || s.Generation != 1 {
			t.Errorf("version %q, tags %v, generation %d", s.Version, s.Tags, s.Generation)
		}

		live := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.waits, ""))
		if _, err := live.Restart(t.Context(), live.ID); err == nil {
			t.Error("a live instance was replaced")
		} else if _, ok := errors.AsType[*provider.InstanceExistsError](err); !ok {
			t.Errorf("error %v, want that it exists", err)
		}
		if _, err := c.Restart(t.Context(), "nobody"); !errors.Is(err, durable.ErrInstanceNotFound) {
			t.Errorf("error %v, want ErrInstanceNotFound", err)
		}
	})
}

func allIDs(t testing.TB, c *durable.Client, q provider.Query) []string {
	t.Helper()
	var ids []string
	for s, err := range c.All(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.Instance.InstanceID)
	}
	return ids
}

func TestPurge_RemovesAFamilyOnlyIfAllOfItHaveEnded(t *testing.T) {
	works(t, func(t *testing.T, p *plant, c *durable.Client) {
		i := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.family, 2, durable.InstanceID("f")))
		_ = must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.waits, "", durable.InstanceID("other")))
		synctest.Wait()
		if err := i.Terminate(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_, err := i.Purge(t.Context(), durable.Recursive)
		if state, ok := errors.AsType[*durable.InstanceStateError](err); !ok || state.InstanceID != "f+" {
			t.Errorf("error %v, want that f+ has not ended", err)
		}
		if diff := cmp.Diff([]string{"f", "f+", "f++", "other"}, allIDs(t, c, provider.Query{})); diff != "" {
			t.Errorf("instances (-want +got):\n%s", diff)
		}
		if err := i.Terminate(t.Context(), "", durable.Recursive); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if result, err := i.Purge(t.Context(), durable.Recursive); err != nil || result.Instances != 3 {
			t.Errorf("%+v, %v; want 3 instances purged", result, err)
		}
		if diff := cmp.Diff([]string{"other"}, allIDs(t, c, provider.Query{})); diff != "" {
			t.Errorf("instances (-want +got):\n%s", diff)
		}
	})
}

func TestPurgeMany_RemovesWhatTheFilterSelectsAndHasEnded(t *testing.T) {
	works(t, func(t *testing.T, p *plant, c *durable.Client) {
		start := func(n int) {
			for i := range n {
				id := durable.InstanceID(fmt.Sprintf("%d-a%d", time.Now().Hour(), i))
				_ = must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.assembles, "", id))
			}
			_ = must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.waits, "", durable.InstanceID(fmt.Sprintf("%d-w", time.Now().Hour()))))
		}
		began := time.Now()
		start(2)
		time.Sleep(time.Hour)
		p.mended.Store(true)
		start(3)
		time.Sleep(time.Hour)
		for _, tt := range []struct {
			name   string
			filter durable.PurgeFilter
			want   int
		}{
			{"only statuses that have not ended", durable.PurgeFilter{Statuses: []history.RuntimeStatus{history.Running, history.Pending}}, 0},
			{"another orchestrator", durable.PurgeFilter{Name: "Waits"}, 0},
			{"before all", durable.PurgeFilter{CreatedTo: began.Add(-time.Second)}, 0},
			{"a prefix", durable.PurgeFilter{IDPrefix: fmt.Sprintf("%d-a1", began.Hour())}, 1},
			{"a status and others", durable.PurgeFilter{Statuses: []history.RuntimeStatus{history.Failed, history.Running}}, 1},
			{"a name and a time", durable.PurgeFilter{Name: "Assembles", CreatedFrom: began.Add(time.Minute)}, 3},
			{"all", durable.PurgeFilter{}, 0},
		} {
			if result, err := c.PurgeMany(t.Context(), tt.filter); err != nil || result.Instances != tt.want {
				t.Errorf("%s: %+v, %v; want %d", tt.name, result, err, tt.want)
			}
		}
		if left := allIDs(t, c, provider.Query{}); len(left) != 2 {
			t.Errorf("left are %v, want the two that wait", left)
		}
	})
}

// failingHub cannot purge some instances, and lists two at a time.
type failingHub struct {
	*memhub.Hub
	failing func(id string) bool
}

func (h failingHub) Purge(ctx context.Context, id string) error {
	if h.failing(id) {
		return errors.New("the disk is full")
	}
	return h.Hub.Purge(ctx, id)
}

func (h failingHub) Instances(ctx context.Context, q provider.Query) (*provider.Page, error) {
	q.PageSize = 2
	return h.Hub.Instances(ctx, q)
}

func TestPurgeMany_GoesOnAfterAFailureAndTellsOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(plant)
		h := failingHub{memhub.New(), func(id string) bool { return id == "b" }}
		defer run(t, h, p.registry(), durable.Config{})()
		c := durable.NewClient(h, p.registry())
		for _, id := range []durable.InstanceID{"a", "b", "c", "d", "e"} {
			_ = must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.assembles, "", id))
		}
		time.Sleep(time.Minute)
		result, err := c.PurgeMany(t.Context(), durable.PurgeFilter{})
		if err == nil || err.Error() != "purge instances: instance b: the disk is full" || result.Instances != 4 {
			t.Errorf("%+v, %v; want 4 purged and one that failed", result, err)
		}
		if diff := cmp.Diff([]string{"b"}, allIDs(t, c, provider.Query{})); diff != "" {
			t.Errorf("instances (-want +got):\n%s", diff)
		}
	})
}

func TestAll_ReadsPageByPageAsFarAsItIsAskedTo(t *testing.T) {
	t.Parallel()
	p := new(plant)
	h := &watchedPages{Hub: memhub.New()}
	c := durable.NewClient(h, p.registry())
	for i := range 5 {
		_ = must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.waits, "", durable.InstanceID(fmt.Sprint("i", i))))
	}
	if got := allIDs(t, c, provider.Query{PageSize: 2}); !slices.Equal(got, []string{"i0", "i1", "i2", "i3", "i4"}) || h.pages != 3 {
		t.Errorf("%v on %d pages, want 5 on 3", got, h.pages)
	}
	h.pages = 0
	for s, err := range c.All(t.Context(), provider.Query{PageSize: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		if s.Instance.InstanceID == "i1" {
			break
		}
	}
	if h.pages != 1 {
		t.Errorf("%d pages were read, want 1", h.pages)
	}
	h.err = errors.New("out of order")
	n := 0
	for s, err := range c.All(t.Context(), provider.Query{}) {
		if n++; s != nil || !errors.Is(err, h.err) {
			t.Errorf("%v, %v; want the error", s, err)
		}
	}
	if n != 1 {
		t.Errorf("the error came %d times", n)
	}
}

type watchedPages struct {
	*memhub.Hub
	pages int
	err   error
}

func (h *watchedPages) Instances(ctx context.Context, q provider.Query) (*provider.Page, error) {
	if h.pages++; h.err != nil {
		return nil, h.err
	}
	return h.Hub.Instances(ctx, q)
}

func TestStartAt_LetsTheInstanceWait(t *testing.T) {
	works(t, func(t *testing.T, p *plant, c *durable.Client) {
		p.mended.Store(true)
		began := time.Now()
		i := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.assembles, "motor", durable.StartAt(began.Add(30*24*time.Hour))))
		time.Sleep(29 * 24 * time.Hour)
		if s := statusNow(t, c, i.ID); s != history.Pending {
			t.Errorf("a day before it is %v, want Pending", s)
		}
		if _, err := i.Wait(t.Context()); err != nil || time.Since(began) < 30*24*time.Hour {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		now := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.assembles, "motor", durable.StartAt(began)))
		if s := must[*provider.InstanceState](t)(now.Status(t.Context(), provider.Fetch{})); !s.ScheduledAt.IsZero() {
			t.Errorf("a time that has passed is kept: %v", s.ScheduledAt)
		}
	})
}

// minimalHub has none of the optional interfaces.
type minimalHub struct{ provider.Client }

func TestClient_SaysWhatAHubCannotDo(t *testing.T) {
	works(t, func(t *testing.T, p *plant, _ *durable.Client) {
		h := memhub.New()
		defer run(t, h, p.registry(), durable.Config{})()
		c := durable.NewClient(minimalHub{h}, p.registry())
		i := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.assembles, ""))
		_, _ = i.Wait(t.Context())
		if _, err := i.Purge(t.Context()); !errors.Is(err, durable.ErrNotSupported) {
			t.Errorf("purge: %v, want ErrNotSupported", err)
		}
		if err := i.Rewind(t.Context(), ""); !errors.Is(err, durable.ErrNotSupported) {
			t.Errorf("rewind: %v, want ErrNotSupported", err)
		}
		if _, err := c.PurgeMany(t.Context(), durable.PurgeFilter{}); !errors.Is(err, durable.ErrNotSupported) {
			t.Errorf("purge many: %v, want ErrNotSupported", err)
		}
	})
}
