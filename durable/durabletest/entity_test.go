package durabletest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/google/go-cmp/cmp"
)

// A Stock is an entity: the number of items of one kind.
type Stock struct {
	Left int         `json:"left"`
	At   []time.Time `json:"at,omitempty"` // times of changes
}

var errSoldOut = errors.New("sold out")

func (s *Stock) Put(ctx *durable.EntityContext, n int) (int, error) {
	s.Left += n
	s.At = append(s.At, ctx.Now())
	return s.Left, nil
}

func (s *Stock) Take(ctx *durable.EntityContext, n int) (int, error) {
	s.Left -= n
	if s.Left < 0 {
		return 0, errSoldOut
	}
	s.At = append(s.At, ctx.Now())
	if s.Left == 0 {
		if _, err := durable.StartFrom(ctx, Reorder, ctx.ID().Key, durable.InstanceID("reorder")); err != nil {
			return 0, err
		}
	}
	return s.Left, nil
}

const shoes = durable.EntityKey[Stock]("shoes")

// Reorder adds 100 items to the stock an hour later.
func Reorder(ctx *durable.Context, item string) (string, error) {
	durable.SignalFrom(ctx, durable.EntityKey[Stock](item), (*Stock).Put, 100, durable.SignalAfter(time.Hour))
	return item, nil
}

// Buy takes n items and returns the number of items left.
func Buy(ctx *durable.Context, n int) (int, error) {
	return durable.CallEntity(ctx, shoes, (*Stock).Take, n).Await()
}

// HoldUntil locks the stock until the event arrives.
func HoldUntil(ctx *durable.Context, event durable.Event[int]) (int, error) {
	unlock := durable.LockEntities(ctx, shoes)
	defer unlock()
	return event.Wait(ctx).Await()
}

func shop() []*durable.Registration {
	return []*durable.Registration{
		durable.Orchestrator("Reorder", Reorder), durable.Orchestrator("Buy", Buy), durable.Orchestrator("HoldUntil", HoldUntil),
		durable.Entity("Stock", durable.Op("put", (*Stock).Put), durable.Op("take", (*Stock).Take)),
		durable.ErrorValue("SoldOut", errSoldOut),
	}
}

func TestHub_PerformsOperationsOfEntities(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, shop()...)
	if _, exists := durabletest.State(hub, shoes); exists {
		t.Error("the entity exists before its first operation")
	}
	durabletest.Signal(hub, shoes, (*Stock).Put, 5)
	if left, err := durabletest.Run(hub, Buy, 3); left != 2 || err != nil {
		t.Errorf("got %d, %v, want 2 left", left, err)
	}
	i := durabletest.Start(hub, Buy, 3)
	if _, err := i.Wait(); err == nil || !errors.As(err, new(*durable.OrchestrationFailedError)) {
		t.Errorf("got %v, want an error: sold out", err)
	}
	if s, exists := durabletest.State(hub, shoes); s.Left != 2 || len(s.At) != 2 || !exists {
		t.Errorf("state %+v; the failed operation must not change it", s)
	}
}

// Compensate fails. In its last episode it returns n items, raises the buyer's event and starts a
// reorder.
func Compensate(ctx *durable.Context, n int) (string, error) {
	ctx.Sleep(time.Hour)
	durable.SignalFrom(ctx, shoes, (*Stock).Put, n)
	durable.CallSubOrchestrator(ctx, Reorder, "boots", durable.InstanceID("reorder"))
	if err := durable.Event[int]("Done").RaiseFrom(ctx, "buyer", n); err != nil {
		return "", err
	}
	return "", errSoldOut
}

func TestWait_RunsAllWorkDueAtTheEnd(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"Run", "Wait"} {
		hub := durabletest.New(t, append(shop(), durable.Orchestrator("Compensate", Compensate))...)
		buyer := durabletest.Start(hub, HoldUntil, durable.Event[int]("Done"), durable.InstanceID("buyer"))
		var err error
		if way == "Run" {
			_, err = durabletest.Run(hub, Compensate, 5)
		} else {
			_, err = durabletest.Start(hub, Compensate, 5).Wait()
		}
		if err == nil {
			t.Errorf("%s: the orchestrator did not fail", way)
		}
		if s, _ := durabletest.State(hub, shoes); s.Left != 5 {
			t.Errorf("%s: the entity has %d items, want 5", way, s.Left)
		}
		if got := buyer.Status(); got != history.Completed {
			t.Errorf("%s: the instance that waits for the event is %v, want Completed", way, got)
		}
		if got := durabletest.InstanceOf[string](hub, "reorder").Status(); got != history.Completed {
			t.Errorf("%s: the child is %v, want Completed", way, got)
		}
		if hub.Elapsed() != time.Hour {
			t.Errorf("%s: it took %v, want 1h", way, hub.Elapsed())
		}
	}
}

func TestHub_RunsEntitiesInVirtualTime(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, shop()...)
	durabletest.Signal(hub, shoes, (*Stock).Put, 3, durable.SignalAfter(10*24*time.Hour))
	hub.Advance(10*24*time.Hour - time.Second)
	if _, exists := durabletest.State(hub, shoes); exists {
		t.Error("the signal came early")
	}
	hub.Advance(time.Second)
	if _, err := durabletest.Run(hub, Buy, 3); err != nil {
		t.Fatal(err)
	}
	if item, err := durabletest.InstanceOf[string](hub, "reorder").Wait(); item != "shoes" || err != nil {
		t.Errorf("the entity started an orchestration that returned %q, %v", item, err)
	}
	hub.Advance(time.Hour)
	s, _ := durabletest.State(hub, shoes)
	begin := time.Date(2000, 1, 11, 0, 0, 0, 0, time.UTC)
	if diff := cmp.Diff(s, Stock{Left: 100, At: []time.Time{begin, begin, begin.Add(time.Hour)}}); diff != "" {
		t.Errorf("state (-got +want):\n%s", diff)
	}
}

// An operation gives a time in milliseconds to time.Unix, which expects seconds. This is about the
// year 32,000.
func TestHub_RunsAnEntityAfterAnOperationThatChoseATooLateTime(t *testing.T) {
	t.Parallel()
	plan := func(s *Stock, ctx *durable.EntityContext, _ int) (int, error) {
		_, err := durable.StartFrom(ctx, Reorder, "shoes", durable.StartAt(time.Unix(ctx.Now().UnixMilli(), 0)))
		return 0, err
	}
	hub := durabletest.New(t, shop()...)
	durabletest.Signal(hub, shoes, (*Stock).Put, 3)
	durabletest.StubOperation(hub, (*Stock).Take, plan)
	durabletest.Signal(hub, shoes, (*Stock).Take, 1)
	durabletest.Signal(hub, shoes, (*Stock).Put, 4)
	if s, _ := durabletest.State(hub, shoes); s.Left != 7 {
		t.Errorf("%d items are left, want 7", s.Left)
	}
}

func TestHub_GrantsALockToOneInstanceAtATime(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, shop()...)
	done := durable.Event[int]("Done")
	durabletest.Signal(hub, shoes, (*Stock).Put, 9)
	first := durabletest.Start(hub, HoldUntil, done, durable.InstanceID("first"))
	second := durabletest.Start(hub, HoldUntil, done, durable.InstanceID("second"))
	buyer := durabletest.Start(hub, Buy, 1)
	hub.Advance(time.Hour)
	durabletest.Raise(second, done, 2) // it does not hold the lock yet
	if got := fmt.Sprint(first.Status(), second.Status(), buyer.Status()); got != "Running Running Running" {
		t.Errorf("%s, want that the second and the buyer wait for the first", got)
	}
	durabletest.Raise(first, done, 1)
	for i, want := range map[*durabletest.Instance[int]]int{first: 1, second: 2, buyer: 8} {
		if got, err := i.Wait(); got != want || err != nil {
			t.Errorf("%s: %d, %v, want %d", i.ID, got, err, want)
		}
	}
}

func TestStubOperation_ReplacesTheOperation(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, shop()...)
	durabletest.StubOperation(hub, (*Stock).Take, func(s *Stock, ctx *durable.EntityContext, n int) (int, error) {
		s.Left = 42
		return n * 10, nil
	})
	if left, err := durabletest.Run(hub, Buy, 3); left != 30 || err != nil {
		t.Errorf("got %d, %v, want the stub's result 30", left, err)
	}
	if s, _ := durabletest.State(hub, shoes); s.Left != 42 {
		t.Errorf("state %+v, want the stub's state 42", s)
	}
	contains(t, fails(t, func(t durabletest.TB) {
		hub := durabletest.New(t, functions...)
		durabletest.StubOperation(hub, (*Stock).Take, (*Stock).Take)
	}), "no entity has durabletest_test.Stock as its state", "pass its Entity to New")
}

func TestHub_DetectsNonDeterministicEntityCalls(t *testing.T) {
	t.Parallel()
	times := 0
	fickle := func(ctx *durable.Context, _ durable.Void) (int, error) {
		times++
		return durable.CallEntity(ctx, shoes, (*Stock).Put, times).Await()
	}
	contains(t, fails(t, func(t durabletest.TB) {
		hub := durabletest.New(t, append(shop(), durable.Orchestrator("Fickle", fickle))...)
		_, _ = durabletest.Run(hub, fickle, durable.Void{})
	}), `orchestrator "Fickle" is not deterministic`,
		`first run: a call of operation put with input 1 to entity "@stock@shoes"`, `replay:    a call of operation put with input 2 to entity "@stock@shoes"`)
}

func TestWait_ReportsWhichInstancesWaitForAnEntity(t *testing.T) {
	t.Parallel()
	got := fails(t, func(t durabletest.TB) {
		hub := durabletest.New(t, shop()...)
		durabletest.Start(hub, HoldUntil, durable.Event[int]("Done"), durable.InstanceID("holder"))
		durabletest.Start(hub, HoldUntil, durable.Event[int]("Done"), durable.InstanceID("next"))
		hub.Advance(time.Minute)
		_, _ = durabletest.Run(hub, Buy, 1, durable.InstanceID("buyer"))
	})
	want := `durabletest: instance "buyer" cannot end: no work or timer is left. The hub's time is 2000-01-01T00:01:00Z, 1m0s after New.
  entity "@stock@shoes" is locked by "holder"; 2 more requests wait for the lock
  "buyer" of Buy, Running:
    waits for operation take of entity "@stock@shoes" (task 0), since 2000-01-01T00:01:00Z (0s ago)
  "holder" of HoldUntil, Running:
    waits for event Done, since 2000-01-01T00:00:00Z (1m0s ago)
  "next" of HoldUntil, Running:
    waits for the locks of "@stock@shoes" (task 0), since 2000-01-01T00:00:00Z (1m0s ago)
Raise the event before you wait for the instance, or at a chosen time with Hub.After.`
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("the test fails with (-got +want):\n%s", diff)
	}
}

func TestSignal_FailsForAnUnregisteredEntity(t *testing.T) {
	t.Parallel()
	unknown := durable.EntityOperation[int, int]("add")
	ctx := t.Context()
	contains(t, fails(t, func(t durabletest.TB) {
		hub := durabletest.New(t, shop()...)
		if err := unknown.Signal(ctx, hub.Client(), durable.EntityID{Name: "Unknown", Key: "1"}, 7); err != nil {
			t.Fatalf("%v", err)
		}
		hub.Advance(0)
	}), `entity "@unknown@1" got a signal for operation add with input 7`, "no entity has this name")
}
