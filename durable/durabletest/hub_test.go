package durabletest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/google/go-cmp/cmp"
)

func TestRun_ReturnsTheOutput(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, functions...)
	got, err := durabletest.Run(hub, PlaceOrder, Order{ID: "42", Cents: 999})
	if got != "c-42" || err != nil {
		t.Errorf("got %q, %v, want c-42", got, err)
	}
	if hub.Elapsed() != 0 {
		t.Errorf("took %v, want no time", hub.Elapsed())
	}
}

func TestStub_ReplacesAnActivity(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, functions...)
	durabletest.Stub(hub, Charge, func(context.Context, Order) (string, error) { return "", errors.New("card declined") })
	_, err := durabletest.Run(hub, PlaceOrder, Order{ID: "42", Cents: 999})
	failed, ok := errors.AsType[*durable.OrchestrationFailedError](err)
	if !ok || failed.Status != history.Failed || !strings.Contains(err.Error(), "charge card: ") || !strings.Contains(err.Error(), "card declined") {
		t.Errorf("got %v, want an error: card declined", err)
	}
	if diff := cmp.Diff(durabletest.Calls(hub, Release), []string{"r-42"}); diff != "" {
		t.Errorf("calls of Release (-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(durabletest.Calls(hub, Charge), []Order{{"42", 999}}); diff != "" {
		t.Errorf("calls of Charge (-got +want):\n%s", diff)
	}
	// A new stub replaces the previous one immediately.
	durabletest.Stub(hub, Charge, func(context.Context, Order) (string, error) { return "paid", nil })
	if got, err := durabletest.Run(hub, PlaceOrder, Order{ID: "43"}); got != "paid" || err != nil {
		t.Errorf("got %q, %v, want paid", got, err)
	}
}

func TestStubName_ReplacesAnUnregisteredActivity(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, functions...)
	durabletest.StubName(hub, Carry, func(_ context.Context, o Order) (string, error) { return "carried " + o.ID, nil })
	if got, err := durabletest.Run(hub, ShipOrder, Order{ID: "1"}); got != "carried 1" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if diff := cmp.Diff(durabletest.CallsName(hub, Carry), []Order{{ID: "1"}}); diff != "" {
		t.Errorf("calls (-got +want):\n%s", diff)
	}
}

func TestStub_MayEndTheTest(t *testing.T) {
	t.Parallel()
	got := fails(t, func(t durabletest.TB) {
		hub := durabletest.New(t, functions...)
		durabletest.Stub(hub, Charge, func(context.Context, Order) (string, error) {
			t.Fatalf("Charge must not be called")
			return "", nil
		})
		_, _ = durabletest.Run(hub, PlaceOrder, Order{})
	})
	if got != "Charge must not be called" {
		t.Errorf("got %q", got)
	}
}

func TestActivities_RunInTheOrderInWhichTheyWereScheduled(t *testing.T) {
	t.Parallel()
	for range 5 {
		hub := durabletest.New(t, functions...)
		durabletest.Stub(hub, CopyFile, func(ctx context.Context, f string) (int64, error) {
			if info, ok := durable.ActivityInfoFrom(ctx); !ok || info.Name != "CopyFile" || info.InstanceID != "instance-1" {
				t.Errorf("info is %+v, %v", info, ok)
			}
			return int64(len(f)), nil
		})
		if n, err := durabletest.Run(hub, Backup, "/"); n != 6 || err != nil {
			t.Errorf("got %d, %v, want 6", n, err)
		}
		if diff := cmp.Diff(durabletest.Calls(hub, CopyFile), []string{"a", "bb", "ccc"}); diff != "" {
			t.Errorf("calls (-got +want):\n%s", diff)
		}
	}
}

func TestSpend_LetsActivitiesTakeTimeConcurrently(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, functions...)
	durabletest.Stub(hub, CopyFile, func(ctx context.Context, f string) (int64, error) {
		durabletest.Spend(ctx, time.Duration(4-len(f))*time.Minute)
		return int64(len(f)), nil
	})
	i := durabletest.Start(hub, Backup, "/")
	if n, err := i.Wait(); n != 6 || err != nil {
		t.Errorf("got %d, %v, want 6", n, err)
	}
	if hub.Elapsed() != 3*time.Minute {
		t.Errorf("took %v, want 3m", hub.Elapsed())
	}
	var order []int
	for _, e := range i.History() {
		if e, ok := e.(*history.TaskCompleted); ok && e.TaskScheduledID > 0 {
			order = append(order, e.TaskScheduledID)
			if want := time.Duration(4-e.TaskScheduledID) * time.Minute; e.Timestamp.Sub(hub.Now().Add(-hub.Elapsed())) != want {
				t.Errorf("task %d completed at %v, want after %v", e.TaskScheduledID, e.Timestamp, want)
			}
		}
	}
	if want := []int{3, 2, 1}; !slices.Equal(order, want) {
		t.Errorf("tasks completed in order %v, want %v", order, want)
	}
}

func TestSpend_PanicsOutsideAnActivity(t *testing.T) {
	t.Parallel()
	defer func() {
		if v := recover(); v == nil {
			t.Error("did not panic")
		}
	}()
	durabletest.Spend(t.Context(), time.Second)
}

func TestTime_PassesWithTimersOnly(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, functions...)
	looks := 0
	durabletest.Stub(hub, JobDone, func(context.Context, string) (bool, error) {
		looks++
		return looks == 200, nil
	})
	watch := Watch{"j", 7 * 24 * time.Hour, hub.Now().AddDate(100, 0, 0)}
	if done, err := durabletest.Run(hub, Monitor, watch); !done || err != nil {
		t.Errorf("got %v, %v, want done", done, err)
	}
	if want := 199 * 7 * 24 * time.Hour; hub.Elapsed() != want {
		t.Errorf("took %v, want %v", hub.Elapsed(), want)
	}
}

func TestAfter_CallsTheFunctionAtItsTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		after time.Duration
		want  string
		took  time.Duration
	}{
		{"at once", 0, "approved by ana", 0},
		{"long before the deadline", time.Hour, "approved by ana", time.Hour},
		{"a moment before the deadline", 72*time.Hour - 1, "approved by ana", 72*time.Hour - 1},
		{"at the deadline", 72 * time.Hour, "escalated 42", 72 * time.Hour},
		{"too late", 73 * time.Hour, "escalated 42", 72 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			hub := durabletest.New(t, functions...)
			i := durabletest.Start(hub, Approve, Order{ID: "42"})
			hub.After(c.after, func() { durabletest.Raise(i, Approval, Decision{true, "ana"}) })
			if got, err := i.Wait(); got != c.want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
			if hub.Elapsed() != c.took {
				t.Errorf("took %v, want %v", hub.Elapsed(), c.took)
			}
		})
	}
}

func TestAfter_CallsFunctionsInOrder(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, functions...)
	var got []string
	at := func(d time.Duration, what string) { hub.After(d, func() { got = append(got, what) }) }
	at(2*time.Second, "c")
	at(time.Second, "a")
	at(2*time.Second, "d")
	at(time.Second, "b")
	at(time.Hour, "never")
	hub.After(time.Second, func() { at(0, "b2") })
	hub.Advance(2 * time.Second)
	if want := []string{"a", "b", "b2", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestInstance_AcceptsRequests(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, functions...)
	i := durabletest.Start(hub, Approve, Order{ID: "42"}, durable.InstanceID("order-42"))
	if i.ID != "order-42" || i.Status() != history.Running || i.CustomStatus() != `"waiting for approval"` {
		t.Errorf("%s is %s, %s", i.ID, i.Status(), i.CustomStatus())
	}
	i.Suspend("audit")
	if i.Status() != history.Suspended {
		t.Errorf("status is %s, want Suspended", i.Status())
	}
	durabletest.Raise(i, Approval, Decision{false, "bo"})
	hub.Advance(time.Hour)
	if i.Status() != history.Suspended {
		t.Errorf("status is %s, want Suspended", i.Status())
	}
	i.Resume("audited")
	if got, err := i.Wait(); got != "refused by bo" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if s := i.State(); *s.Input != `{"id":"42","cents":0}` || *s.Output != `"refused by bo"` || !s.CompletedAt.Equal(hub.Now()) {
		t.Errorf("state is %+v", s)
	}

	other := durabletest.Start(hub, Approve, Order{ID: "43"})
	other.Terminate("no longer wanted")
	_, err := other.Wait()
	if failed, ok := errors.AsType[*durable.OrchestrationFailedError](err); !ok || failed.Status != history.Terminated || *failed.Output != "no longer wanted" {
		t.Errorf("got %v, want an error: terminated", err)
	}
}

func TestAdvance_StopsAtTheGivenTime(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, functions...)
	i := durabletest.Start(hub, Approve, Order{ID: "42"})
	hub.Advance(72*time.Hour - 1)
	if i.Status() != history.Running {
		t.Errorf("status is %s just before the deadline", i.Status())
	}
	hub.Advance(1)
	if i.Status() != history.Completed {
		t.Errorf("status is %s at the deadline", i.Status())
	}
	hub.AdvanceTo(time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC))
	if got := hub.Now().Weekday(); got != time.Thursday {
		t.Errorf("the hub's time is %s", got)
	}
}

func TestClient_StartsAndRaises(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, functions...)
	ctx, c := t.Context(), hub.Client()
	started, err := durable.Start(ctx, c, Approve, Order{ID: "7"}, durable.InstanceID("seven"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := durable.Start(ctx, c, Approve, Order{ID: "7"}, durable.InstanceID("seven")); err == nil {
		t.Error("two instances have the same ID")
	}
	// The hub has not run since the start, so the event arrives together with the start.
	if err := Approval.Raise(ctx, c, started.ID, Decision{true, "ana"}); err != nil {
		t.Fatal(err)
	}
	if got, err := durabletest.InstanceOf[string](hub, "seven").Wait(); got != "approved by ana" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if err := Approval.Raise(ctx, c, started.ID, Decision{}); !errors.Is(err, durable.ErrInstanceEnded) {
		t.Errorf("got %v, want ErrInstanceEnded", err)
	}
}

func TestHistory_IsTheSameInEveryRun(t *testing.T) {
	t.Parallel()
	run := func() []history.Event {
		hub := durabletest.New(t, functions...)
		i := durabletest.Start(hub, Approve, Order{ID: "42"})
		if _, err := i.Wait(); err != nil {
			t.Error(err)
		}
		return i.History()
	}
	if diff := cmp.Diff(run(), run()); diff != "" {
		t.Errorf("two runs differ:\n%s", diff)
	}
}

func TestHub_WorksInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := durabletest.New(t, functions...)
		began := time.Now()
		if !began.Equal(hub.Now()) {
			t.Errorf("the hub's time is %v, the bubble's %v", hub.Now(), began)
		}
		if got, err := durabletest.Run(hub, Approve, Order{ID: "42"}); got != "escalated 42" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		durabletest.Start(hub, Decide, durable.Void{}) // still waiting when the test ends
		if time.Since(began) != 0 {
			t.Errorf("%v of the bubble's time have passed", time.Since(began))
		}
	})
}

func TestHub_RunsManyGenerationsAndManyTasks(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, durable.Orchestrator("Count", count))
	if n, err := durabletest.Run(hub, count, 0); n != 3000 || err != nil {
		t.Errorf("got %d, %v, want 3000", n, err)
	}
	wide := durabletest.New(t, functions...)
	durabletest.Stub(wide, ListFiles, func(context.Context, string) ([]string, error) { return make([]string, 2000), nil })
	durabletest.Stub(wide, CopyFile, func(context.Context, string) (int64, error) { return 1, nil })
	if n, err := durabletest.Run(wide, Backup, ""); n != 2000 || err != nil {
		t.Errorf("got %d, %v, want 2000", n, err)
	}
}

func count(ctx *durable.Context, n int) (int, error) {
	if n == 3000 {
		return n, nil
	}
	return durable.ContinueAsNew(ctx, count, n+1)
}
