package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

func greet(_ *durable.Context, name string) (string, error) {
	if name == "" {
		return "", errors.New("nobody to greet")
	}
	return "Hello, " + name + "!", nil
}

// parentStage returns a stage for a parent. Its registry contains greet.
func parentStage[O any](t *testing.T, parent func(*durable.Context, durable.Void) (O, error)) *replaytest.Stage {
	t.Helper()
	return stageOf(t, authors(durable.Orchestrator("Greet", greet), durable.Orchestrator("Main", parent)))
}

func childDone(id int, result string) history.Event {
	return &history.SubOrchestrationInstanceCompleted{Header: history.NewHeader(replaytest.Epoch), TaskScheduledID: id, Result: &result}
}

func childFailed(id int, message string) history.Event {
	return &history.SubOrchestrationInstanceFailed{
		Header: history.NewHeader(replaytest.Epoch), TaskScheduledID: id, Reason: &message,
		Failure: &history.FailureDetails{ErrorType: "T", ErrorMessage: message},
	}
}

func TestCallSubOrchestrator_StartsAChildAndGetsItsResult(t *testing.T) {
	t.Parallel()
	s := parentStage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		const elsewhere = durable.OrchestratorName[int, string]("Elsewhere")
		a := durable.CallSubOrchestrator(ctx, greet, "Ada")
		b := durable.CallSubOrchestrator(ctx, greet, "Bob", durable.InstanceID("greet-bob"))
		c := elsewhere.Call(ctx, 7)
		all, err := durable.AwaitAll(ctx, a, b, c)
		return strings.Join(all, " "), err
	})
	wantActions(t, s.Start(nil), `0 child Greet  "Ada"`, `1 child Greet greet-bob "Bob"`, "2 child Elsewhere  7")
	s.Episode(childDone(1, `"b"`), childDone(0, `"a"`))
	s.Evict()
	s.Episode(childDone(2, `"c"`))
	wantOutput(t, s, `"a b c"`)
}

func TestCallSubOrchestrator_FailsWithTheFailureOfTheChild(t *testing.T) {
	t.Parallel()
	s := parentStage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		_, err := durable.CallSubOrchestrator(ctx, greet, "").Await()
		failure, ok := errors.AsType[*durable.TaskFailedError](err)
		if !ok || !failure.SubOrchestration || failure.Name != "Greet" || failure.TaskID != 0 || failure.Type != "T" || failure.Message != "nobody" {
			return "", fmt.Errorf("not the failure of the child: %w", err)
		}
		return "", err
	})
	s.Start(nil)
	s.Episode(childFailed(0, "nobody"))
	want := &history.FailureDetails{
		ErrorType: "*durable.TaskFailedError", ErrorMessage: "Sub-orchestration 'Greet' (#0) failed with an unhandled exception: nobody",
		InnerFailure: &history.FailureDetails{ErrorType: "T", ErrorMessage: "nobody"},
	}
	if diff := cmp.Diff(s.End().Failure, want); diff != "" {
		t.Errorf("failure (-got +want):\n%s", diff)
	}
}

func TestCallSubOrchestrator_RejectsInvalidCalls(t *testing.T) {
	t.Parallel()
	const parents = "call sub-orchestrator Greet: The instance ID of a sub-orchestration must be different than the instance ID of a parent orchestration."
	stranger := func(*durable.Context, string) (string, error) { return "", nil }
	for _, c := range []struct {
		name string
		call func(*durable.Context) *durable.Task[string]
		want string
	}{
		{"the parent's ID", func(ctx *durable.Context) *durable.Task[string] {
			return durable.CallSubOrchestrator(ctx, greet, "a", durable.InstanceID("abc"))
		}, parents},
		{"the parent's ID in upper case", func(ctx *durable.Context) *durable.Task[string] {
			return durable.CallSubOrchestrator(ctx, greet, "a", durable.InstanceID("ABC"))
		}, parents},
		{"an entity's ID", func(ctx *durable.Context) *durable.Task[string] {
			return durable.CallSubOrchestrator(ctx, greet, "a", durable.InstanceID("@counter@a"))
		}, "call sub-orchestrator Greet: Orchestration instance ids must not start with @."},
		{"an invalid ID", func(ctx *durable.Context) *durable.Task[string] {
			return durable.CallSubOrchestrator(ctx, greet, "a", durable.InstanceID("a/b"))
		}, `call sub-orchestrator Greet: Instance IDs must not contain /, \, #, ? or control characters; "a/b" contains '/'.`},
		{"an orchestrator that is not registered", func(ctx *durable.Context) *durable.Task[string] {
			return durable.CallSubOrchestrator(ctx, stranger, "a")
		}, "is not registered; add it to the registry with a name"},
		{"an input that cannot be encoded", func(ctx *durable.Context) *durable.Task[string] {
			return durable.OrchestratorName[chan int, string]("X").Call(ctx, make(chan int))
		}, "encode input of sub-orchestrator X: json: unsupported type: chan int"},
		{"an invalid policy", func(ctx *durable.Context) *durable.Task[string] {
			return durable.CallSubOrchestrator(ctx, greet, "a", durable.RetryPolicy{})
		}, "durable: RetryPolicy.MaxAttempts is 0; want at least 1"},
		{"a policy with FireAndForget", func(ctx *durable.Context) *durable.Task[string] {
			return durable.CallSubOrchestrator(ctx, greet, "a", durable.FireAndForget, durable.RetryPolicy{MaxAttempts: 2, FirstInterval: 1})
		}, "call sub-orchestrator Greet: a RetryPolicy has no effect with FireAndForget"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := parentStage(t, func(ctx *durable.Context, _ durable.Void) (string, error) { return c.call(ctx).Await() })
			if got := s.Start(nil); len(got) != 1 {
				t.Errorf("decided\n%s", replaytest.Describe(got))
			}
			wantFailure(t, s, c.want)
		})
	}
}

func TestCallSubOrchestrator_RetriesWithANewIDUnlessOneIsChosen(t *testing.T) {
	t.Parallel()
	policy := durable.RetryPolicy{MaxAttempts: 2, FirstInterval: time.Second}
	s := parentStage(t, func(ctx *durable.Context, _ durable.Void) ([]string, error) {
		return durable.AwaitAll(
			ctx,
			durable.CallSubOrchestrator(ctx, greet, "a", policy),
			durable.CallSubOrchestrator(ctx, greet, "b", policy, durable.InstanceID("b")))
	})
	wantActions(t, s.Start(nil), `0 child Greet  "a"`, `1 child Greet b "b"`) // the ID of the first child is e0:0
	wantActions(t, s.Episode(childFailed(0, "no"), childFailed(1, "no")), "2 timer 1s", "3 timer 1s")
	wantActions(t, s.Episode(fired(2), fired(3)), `4 child Greet  "a"`, `5 child Greet b "b"`) // now e0:4
	s.Episode(childDone(4, `"A"`), childDone(5, `"B"`))
	wantOutput(t, s, `["A","B"]`)
}

func TestCallSubOrchestrator_PassesTagsAndVersion(t *testing.T) {
	t.Parallel()
	s := parentStage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		durable.CallSubOrchestrator(ctx, greet, "a", durable.Version("2.0"), durable.Tags{"a": "1"}, durable.Tags{"b": "2"})
		task := durable.CallSubOrchestrator(ctx, greet, "b", durable.FireAndForget)
		return task.Await() // complete immediately
	})
	got := s.Start(nil)
	want := []replay.Action{
		&replay.CreateSubOrchestration{ID: 0, Name: "Greet", Version: "2.0", Input: new(`"a"`), Tags: map[string]string{"a": "1", "b": "2"}},
		&replay.CreateSubOrchestration{ID: 1, Name: "Greet", Input: new(`"b"`), Tags: map[string]string{"FireAndForget": ""}},
		&replay.Complete{ID: 2, Status: history.Completed, Result: new(`""`)},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("actions (-got +want):\n%s", diff)
	}
}

// runMain runs a worker in a bubble and starts the orchestrator main, which is
// registered as Main.
func runMain[O any](t *testing.T, r *durable.Registry, main func(*durable.Context, durable.Void) (O, error), look func(t *testing.T, h *memhub.Hub, c *durable.Client, i *durable.Instance[O])) {
	t.Helper()
	for _, sessions := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := memhub.New()
			defer run(t, h, r, durable.Config{ExtendedSessionIdle: sessionIdle(sessions)})()
			c := durable.NewClient(h, r)
			i, err := durable.Start(t.Context(), c, main, durable.Void{}, durable.InstanceID("main"), durable.Tags{"team": "blue"})
			if err != nil {
				t.Fatal(err)
			}
			look(t, h, c, i)
		})
	}
}

// Each parent returns the error of its child. The failure keeps the outermost parents and
// the error of the innermost child.
func TestSubOrchestration_FailuresOfNestedChildrenHaveABoundedLength(t *testing.T) {
	const name = durable.OrchestratorName[int, string]("Nest")
	nest := func(ctx *durable.Context, depth int) (string, error) {
		if depth == 0 {
			return "", errSoldOut
		}
		return name.Call(ctx, depth-1).Await()
	}
	main := func(ctx *durable.Context, _ durable.Void) (string, error) {
		var problems []string
		for _, c := range [][2]int{{0, 0}, {1, 1}, {31, 31}, {32, 32}, {33, 32}, {40, 32}} {
			depth, want := c[0], c[1] // number of inner failures
			_, err := name.Call(ctx, depth).Await()
			failure, ok := errors.AsType[*durable.TaskFailedError](err)
			if !ok || !errors.Is(err, errSoldOut) {
				return "", fmt.Errorf("depth %d: error %w, want %w", depth, err, errSoldOut)
			}
			got := 0
			for f := failure.Inner; f != nil; f = f.InnerFailure {
				got++
			}
			if got != want {
				problems = append(problems, fmt.Sprintf("depth %d: %d inner failures, want %d", depth, got, want))
			}
		}
		return strings.Join(problems, "; "), nil
	}
	r := durable.NewRegistry(durable.Orchestrator("Main", main), durable.Orchestrator("Nest", nest), durable.ErrorValue("SoldOut", errSoldOut))
	runMain(t, r, main, func(t *testing.T, _ *memhub.Hub, _ *durable.Client, i *durable.Instance[string]) {
		if out, err := i.Wait(t.Context()); err != nil || out != "" {
			t.Errorf("%q, %v", out, err)
		}
	})
}

func TestSubOrchestration_HasAParentIDAndInheritsTags(t *testing.T) {
	who := func(ctx *durable.Context, _ durable.Void) (string, error) {
		return fmt.Sprint(ctx.Name(), " of ", ctx.ParentInstanceID(), " with ", ctx.Tags()), nil
	}
	main := func(ctx *durable.Context, _ durable.Void) (string, error) {
		if ctx.ParentInstanceID() != "" {
			return "", errors.New("the root has a parent")
		}
		return durable.CallSubOrchestrator(ctx, who, durable.Void{}, durable.Tags{"size": "7"}).Await()
	}
	r := durable.NewRegistry(durable.Orchestrator("Main", main), durable.Orchestrator("Who", who))
	runMain(t, r, main, func(t *testing.T, _ *memhub.Hub, _ *durable.Client, i *durable.Instance[string]) {
		if out, err := i.Wait(t.Context()); err != nil || out != "Who of main with map[size:7 team:blue]" {
			t.Errorf("output %q, %v", out, err)
		}
	})
}

func TestSubOrchestration_PropagatesInnerFailures(t *testing.T) {
	broken := func(context.Context, string) (string, error) { return "", fmt.Errorf("charge: %w", &limitError{5}) }
	child := func(ctx *durable.Context, _ durable.Void) (string, error) {
		_, err := durable.CallActivity(ctx, broken, "x").Await()
		return "", fmt.Errorf("child: %w", err)
	}
	main := func(ctx *durable.Context, _ durable.Void) (string, error) {
		_, err := durable.CallSubOrchestrator(ctx, child, durable.Void{}).Await()
		failure, ok := errors.AsType[*durable.TaskFailedError](err)
		if !ok || failure.Inner == nil {
			return "", fmt.Errorf("got %w", err)
		}
		return failure.Type + "|" + failure.Message + "|" + failure.Inner.ErrorType + "|" + failure.Inner.ErrorMessage, nil
	}
	r := durable.NewRegistry(durable.Orchestrator("Main", main), durable.Orchestrator("Child", child), durable.Activity("Broken", broken))
	runMain(t, r, main, func(t *testing.T, _ *memhub.Hub, _ *durable.Client, i *durable.Instance[string]) {
		want := "*durable.TaskFailedError|child: Task 'Broken' (#0) failed with an unhandled exception: charge: over 5|*durable_test.limitError|charge: over 5"
		if out, err := i.Wait(t.Context()); err != nil || out != want {
			t.Errorf("output %q, %v\nwant %q", out, err, want)
		}
	})
}

func waitForGo(ctx *durable.Context, generation int) (string, error) {
	word, err := durable.Event[string]("Go").Wait(ctx).Await()
	if word == "again" {
		return durable.ContinueAsNew(ctx, waitForGo, generation+1)
	}
	return fmt.Sprint(word, " in generation ", generation), err
}

// A child whose ID is in use must fail in the parent. The running instance must not
// change.
func TestSubOrchestration_FailsInTheParentIfItsIDIsInUse(t *testing.T) {
	main := func(ctx *durable.Context, _ durable.Void) (string, error) {
		_, err := durable.CallSubOrchestrator(ctx, waitForGo, 50, durable.InstanceID("busy")).Await()
		var exists *provider.InstanceExistsError
		if !errors.As(err, &exists) || exists.InstanceID != "busy" || exists.Status != history.Running {
			return "", fmt.Errorf("not an InstanceExistsError for busy: %w", err)
		}
		durable.CallSubOrchestrator(ctx, waitForGo, 50, durable.InstanceID("busy"), durable.FireAndForget)
		return err.Error(), nil
	}
	r := durable.NewRegistry(durable.Orchestrator("Main", main), durable.Orchestrator("WaitForGo", waitForGo))
	for _, sessions := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := memhub.New()
			defer run(t, h, r, durable.Config{ExtendedSessionIdle: sessionIdle(sessions)})()
			c := durable.NewClient(h, r)
			busy, err := durable.Start(t.Context(), c, waitForGo, 0, durable.InstanceID("busy"))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			before, err := h.History(t.Context(), "busy")
			if err != nil {
				t.Fatal(err)
			}
			i, err := durable.Start(t.Context(), c, main, durable.Void{})
			if err != nil {
				t.Fatal(err)
			}
			want := "Sub-orchestration 'WaitForGo' (#0) failed with an unhandled exception: " +
				"An Orchestration instance with the status Running already exists. Its ID is busy."
			if out, err := i.Wait(t.Context()); err != nil || out != want {
				t.Errorf("output %q, %v\nwant %q", out, err, want)
			}
			time.Sleep(time.Minute)
			after, err := h.History(t.Context(), "busy")
			if diff := cmp.Diff(after, before); err != nil || diff != "" {
				t.Errorf("the running instance changed, %v (-after +before):\n%s", err, diff)
			}
			if err := durable.Event[string]("Go").Raise(t.Context(), c, "busy", "done"); err != nil {
				t.Error(err)
			}
			if out, err := busy.Wait(t.Context()); err != nil || out != "done in generation 0" {
				t.Errorf("the running instance ended with %q, %v", out, err)
			}
			if n := h.Pending(); n != 0 {
				t.Errorf("%d messages are left", n)
			}
		})
	}
}

func TestSubOrchestration_RetriesUntilItsIDIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		main := func(ctx *durable.Context, _ durable.Void) (string, error) {
			return durable.CallSubOrchestrator(ctx, greet, "Ada", durable.InstanceID("busy"),
				durable.RetryPolicy{MaxAttempts: 100, FirstInterval: time.Minute}).Await()
		}
		h := memhub.New()
		r := durable.NewRegistry(durable.Orchestrator("Main", main), durable.Orchestrator("WaitForGo", waitForGo), durable.Orchestrator("Greet", greet))
		defer run(t, h, r, durable.Config{})()
		c := durable.NewClient(h, r)
		if _, err := durable.Start(t.Context(), c, waitForGo, 0, durable.InstanceID("busy")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		i, err := durable.Start(t.Context(), c, main, durable.Void{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(150 * time.Second)
		if err := durable.Event[string]("Go").Raise(t.Context(), c, "busy", "done"); err != nil {
			t.Fatal(err)
		}
		if out, err := i.Wait(t.Context()); err != nil || out != "Hello, Ada!" {
			t.Errorf("output %q, %v", out, err)
		}
	})
}

// After a crash of the worker, the start of a child may be redelivered. It belongs to
// the same child, even if the child has continued as new.
func TestSubOrchestration_RunsOnceIfItsStartIsRedelivered(t *testing.T) {
	main := func(ctx *durable.Context, _ durable.Void) (string, error) {
		return durable.CallSubOrchestrator(ctx, waitForGo, 0, durable.InstanceID("child")).Await()
	}
	r := durable.NewRegistry(durable.Orchestrator("Main", main), durable.Orchestrator("WaitForGo", waitForGo))
	runMain(t, r, main, func(t *testing.T, h *memhub.Hub, c *durable.Client, i *durable.Instance[string]) {
		time.Sleep(time.Second)
		var start provider.TaskMessage
		for _, commit := range h.Commits() {
			for _, m := range commit.Checkpoint.Messages {
				if m.Event.Type() == history.TypeExecutionStarted {
					start = m
				}
			}
		}
		send := func() {
			if err := h.Send(t.Context(), start); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		raise := func(word string) {
			if err := durable.Event[string]("Go").Raise(t.Context(), c, "child", word); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		send()
		raise("again")
		send()
		raise("done")
		send()
		if out, err := i.Wait(t.Context()); err != nil || out != "done in generation 1" {
			t.Errorf("output %q, %v", out, err)
		}
		if s, err := c.Status(t.Context(), "child", durable.Fetch{Output: true}); err != nil || *s.Output != `"done in generation 1"` {
			t.Errorf("child is %+v, %v", s, err)
		}
		if n := h.Pending(); n != 0 {
			t.Errorf("%d messages are left", n)
		}
	})
}

func TestSubOrchestration_RunsIndependentlyWithFireAndForget(t *testing.T) {
	main := func(ctx *durable.Context, _ durable.Void) (string, error) {
		return durable.CallSubOrchestrator(ctx, waitForGo, 0, durable.InstanceID("child"), durable.FireAndForget).Await()
	}
	r := durable.NewRegistry(durable.Orchestrator("Main", main), durable.Orchestrator("WaitForGo", waitForGo))
	runMain(t, r, main, func(t *testing.T, h *memhub.Hub, c *durable.Client, i *durable.Instance[string]) {
		if out, err := i.Wait(t.Context()); err != nil || out != "" {
			t.Errorf("output %q, %v", out, err)
		}
		if err := durable.Event[string]("Go").Raise(t.Context(), c, "child", "done"); err != nil {
			t.Fatal(err)
		}
		if out, err := durable.InstanceOf[string](c, "child").Wait(t.Context()); err != nil || out != "done in generation 0" {
			t.Errorf("the child ended with %q, %v", out, err)
		}
		for _, commit := range h.Commits() {
			for _, m := range commit.Checkpoint.Messages {
				if m.Target.InstanceID == "main" {
					t.Errorf("the parent received %v", m.Event.Type())
				}
			}
		}
	})
}

func TestSubOrchestration_FailsInTheParentIfItIsTerminated(t *testing.T) {
	main := func(ctx *durable.Context, _ durable.Void) (string, error) {
		_, err := durable.CallSubOrchestrator(ctx, waitForGo, 0, durable.InstanceID("child")).Await()
		return err.Error(), nil
	}
	r := durable.NewRegistry(durable.Orchestrator("Main", main), durable.Orchestrator("WaitForGo", waitForGo))
	runMain(t, r, main, func(t *testing.T, _ *memhub.Hub, c *durable.Client, i *durable.Instance[string]) {
		time.Sleep(time.Second)
		if err := c.Terminate(t.Context(), "child", "enough"); err != nil {
			t.Fatal(err)
		}
		want := "Sub-orchestration 'WaitForGo' (#0) failed with an unhandled exception: enough"
		if out, err := i.Wait(t.Context()); err != nil || out != want {
			t.Errorf("output %q, %v", out, err)
		}
	})
}

func TestOrchestratorName_StartsWithoutARegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hello = durable.OrchestratorName[string, string]("Greet")
		h := memhub.New()
		defer run(t, h, durable.NewRegistry(durable.Orchestrator("Greet", greet)), durable.Config{})()
		c := durable.NewClient(h, nil)
		i, err := hello.Start(t.Context(), c, "Ada", durable.InstanceID("i"))
		if err != nil {
			t.Fatal(err)
		}
		if out, err := i.Wait(t.Context()); err != nil || out != "Hello, Ada!" || i.ID != "i" {
			t.Errorf("instance %s: output %q, %v", i.ID, out, err)
		}
		if _, err := durable.OrchestratorName[chan int, int]("X").Start(t.Context(), c, nil); err == nil || !strings.Contains(err.Error(), "encode input of orchestrator X") {
			t.Errorf("got %v", err)
		}
	})
}
