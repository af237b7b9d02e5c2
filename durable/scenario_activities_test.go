package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/google/go-cmp/cmp"
)

func TestScenario_ActivityThatSucceedsAtItsSecondAttemptRunsTwice(t *testing.T) {
	t.Parallel()
	main := func(ctx *durable.Context, n int) (int, error) {
		return durable.CallActivity(ctx, plusOne, n, durable.RetryPolicy{MaxAttempts: 4, FirstInterval: time.Second}).Await()
	}
	hub := durabletest.New(t, durable.Orchestrator("Main", main), durable.Activity("PlusOne", plusOne))
	attempts := 0
	durabletest.Stub(hub, plusOne, func(_ context.Context, n int) (int, error) {
		if attempts++; attempts < 2 {
			return 0, errors.New("not yet")
		}
		return n + 1, nil
	})
	if out, err := durabletest.Run(hub, main, 1); err != nil || out != 2 {
		t.Errorf("got %d, %v, want 2", out, err)
	}
	if attempts != 2 || hub.Elapsed() != time.Second {
		t.Errorf("%d attempts in %v, want 2 in 1s", attempts, hub.Elapsed())
	}
}

func TestScenario_LastAttemptFailsWithTheErrorOfTheActivity(t *testing.T) {
	t.Parallel()
	read := func(context.Context, string) (string, error) { return "", fmt.Errorf("read: %w", fs.ErrNotExist) }
	main := func(ctx *durable.Context, name string) (string, error) {
		_, err := durable.CallActivity(ctx, read, name, durable.RetryPolicy{MaxAttempts: 1, FirstInterval: time.Second}).Await()
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("another error: %w", err)
		}
		return "not there", nil
	}
	hub := durabletest.New(t, durable.Orchestrator("Main", main), durable.Activity("Read", read), durable.ErrorValue("NotExist", fs.ErrNotExist))
	if out, err := durabletest.Run(hub, main, "a"); err != nil || out != "not there" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestScenario_PredicateDecidesByTheInnerFailure(t *testing.T) {
	t.Parallel()
	busy := errors.New("busy")
	save := func(_ context.Context, reason string) (int, error) {
		if reason == "busy" {
			return 0, fmt.Errorf("save: %w", busy)
		}
		return 0, errors.New(reason)
	}
	main := func(ctx *durable.Context, reason string) (int, error) {
		return durable.CallActivity(ctx, save, reason, durable.RetryPolicy{
			MaxAttempts: 2, FirstInterval: time.Second, Handle: func(err error) bool { return errors.Is(err, busy) },
		}).Await()
	}
	for reason, want := range map[string]int{"busy": 2, "full": 1} {
		hub := durabletest.New(t, durable.Orchestrator("Main", main), durable.Activity("Save", save), durable.ErrorValue("Busy", busy))
		if _, err := durabletest.Run(hub, main, reason); err == nil {
			t.Errorf("%s: the orchestration did not fail", reason)
		}
		if got := len(durabletest.Calls(hub, save)); got != want {
			t.Errorf("%s: %d attempts, want %d", reason, got, want)
		}
	}
}

// Null and empty properties of a failure must be preserved.
func TestScenario_PropertiesOfAFailureKeepNullAndEmpty(t *testing.T) {
	t.Parallel()
	fail := func(_ context.Context, _ durable.Void) (int, error) {
		return 0, &formError{Field: new(""), Rule: nil, Limit: 7}
	}
	child := func(ctx *durable.Context, _ durable.Void) (int, error) {
		return durable.CallActivity(ctx, fail, durable.Void{}).Await()
	}
	main := func(ctx *durable.Context, _ durable.Void) (string, error) {
		_, err := durable.CallSubOrchestrator(ctx, child, durable.Void{}).Await()
		form, ok := errors.AsType[*formError](err)
		if !ok || form.Field == nil || *form.Field != "" || form.Rule != nil || form.Limit != 7 {
			return "", fmt.Errorf("another error: %w", err)
		}
		return "as it was", nil
	}
	hub := durabletest.New(t, durable.Orchestrator("Main", main), durable.Orchestrator("Child", child),
		durable.Activity("Fail", fail), durable.ErrorType[*formError]("FormError"))
	if out, err := durabletest.Run(hub, main, durable.Void{}); err != nil || out != "as it was" {
		t.Errorf("got %q, %v", out, err)
	}
}

type formError struct {
	Field, Rule *string
	Limit       int
}

func (*formError) Error() string { return "the form is not filled in" }

func TestScenario_HundredActivitiesAreReturnedInCompletionOrder(t *testing.T) {
	t.Parallel()
	const n = 100
	wait := func(_ context.Context, i int) (int, error) { return i, nil }
	main := func(ctx *durable.Context, _ durable.Void) ([]int, error) {
		tasks := make([]*durable.Task[int], n)
		for i := range tasks {
			tasks[i] = durable.CallActivity(ctx, wait, i)
		}
		var order []int
		for task := range durable.AsCompleted(ctx, tasks...) {
			i, err := task.Await()
			if err != nil {
				return nil, err
			}
			order = append(order, i)
		}
		return order, nil
	}
	hub := durabletest.New(t, durable.Orchestrator("Main", main), durable.Activity("Wait", wait))
	durabletest.Stub(hub, wait, func(ctx context.Context, i int) (int, error) {
		durabletest.Spend(ctx, time.Duration(n-i)*time.Second) // the last activity completes first
		return i, nil
	})
	out, err := durabletest.Run(hub, main, durable.Void{})
	if err != nil {
		t.Fatal(err)
	}
	for place, i := range out {
		if i != n-1-place {
			t.Fatalf("activity %d is result %d: %v", i, place, out)
		}
	}
	if calls := durabletest.Calls(hub, wait); len(out) != n || len(calls) != n {
		t.Errorf("%d results of %d calls, want %d", len(out), len(calls), n)
	}
}

// Some of many parallel children fail. The other children must complete, and all
// failures must be reported in the order of the calls.
func TestScenario_FailuresAmongManyParallelCallsAreAllReported(t *testing.T) {
	t.Parallel()
	const n = 1000
	child := func(_ *durable.Context, i int) (int, error) {
		if i%400 == 399 {
			return 0, fmt.Errorf("child %d: no", i)
		}
		return i, nil
	}
	main := func(ctx *durable.Context, _ durable.Void) (string, error) {
		tasks := make([]*durable.Task[int], n)
		for i := range tasks {
			tasks[i] = durable.CallSubOrchestrator(ctx, child, i)
		}
		values, err := durable.AwaitAll(ctx, tasks...)
		sum := 0
		for _, v := range values {
			sum += v
		}
		return fmt.Sprintf("%d of %d\n%v", sum, len(values), err), nil
	}
	hub := durabletest.New(t, durable.Orchestrator("Main", main), durable.Orchestrator("Child", child))
	const want = "498302 of 1000\n" +
		"Sub-orchestration 'Child' (#399) failed with an unhandled exception: child 399: no\n" +
		"Sub-orchestration 'Child' (#799) failed with an unhandled exception: child 799: no"
	if out, err := durabletest.Run(hub, main, durable.Void{}); err != nil || out != want {
		t.Errorf("got %s, %v\nwant %s", out, err, want)
	}
}

func TestScenario_RetriesOfAChildAreExhausted(t *testing.T) {
	t.Parallel()
	child := func(*durable.Context, int) (int, error) { return 0, errors.New("closed") }
	main := func(ctx *durable.Context, n int) (int, error) {
		return durable.CallSubOrchestrator(ctx, child, n, durable.RetryPolicy{MaxAttempts: 3, FirstInterval: time.Minute}).Await()
	}
	hub := durabletest.New(t, durable.Orchestrator("Main", main), durable.Orchestrator("Child", child))
	i := durabletest.Start(hub, main, 1)
	if _, err := i.Wait(); err == nil || !strings.Contains(err.Error(), "Sub-orchestration 'Child' (#4) failed with an unhandled exception: closed") {
		t.Errorf("got %v", err)
	}
	children := make(map[string]bool)
	for _, e := range i.History() {
		if e, ok := e.(*history.SubOrchestrationInstanceCreated); ok {
			children[e.InstanceID] = true
		}
	}
	if len(children) != 3 || hub.Elapsed() != 2*time.Minute {
		t.Errorf("children %v in %v, want 3 in 2m", children, hub.Elapsed())
	}
}

// A program that decodes a JSON object as raw members preserves members that it does
// not know.
func TestScenario_UnknownMembersOfAnObjectArePreserved(t *testing.T) {
	t.Parallel()
	stamp := func(_ context.Context, in map[string]json.RawMessage) (map[string]json.RawMessage, error) {
		in["stamped"] = json.RawMessage("true")
		return in, nil
	}
	main := func(ctx *durable.Context, in map[string]json.RawMessage) (map[string]json.RawMessage, error) {
		return durable.CallActivity(ctx, stamp, in).Await()
	}
	hub := durabletest.New(t, durable.Orchestrator("Main", main), durable.Activity("Stamp", stamp))
	i := durabletest.Start(hub, main, map[string]json.RawMessage{"a": json.RawMessage(`{"n":1e2,"list":[null]}`)})
	if _, err := i.Wait(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(new(`{"a":{"n":1e2,"list":[null]},"stamped":true}`), i.State().Output); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}
