package durable_test

import (
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/google/go-cmp/cmp"
)

type limitError struct{ limit int }

func (e *limitError) Error() string { return fmt.Sprint("over ", e.limit) }

type rudeError struct{}

func (rudeError) Error() string { panic("no words") }

// cyclicError wraps itself, directly or as one of several errors.
type cyclicError struct{}

func (e *cyclicError) Error() string { return "cyclic" }
func (e *cyclicError) Unwrap() error { return e }

type cyclicErrors struct{}

func (e *cyclicErrors) Error() string   { return "cyclic" }
func (e *cyclicErrors) Unwrap() []error { return []error{nil, e, e} }

// nested returns an error that wraps n errors, one inside the other.
func nested(n int) error {
	err := error(&limitError{7})
	for range n {
		err = fmt.Errorf("%w", err)
	}
	return err
}

func TestInstance_FailsWithTheErrorThatTheOrchestratorReturns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		err           error
		wantType, msg string
	}{
		{"plain", errDeclined, "error", "card declined"},
		{"wrapped", fmt.Errorf("pay: %w", fmt.Errorf("charge: %w", &limitError{5})), "*durable_test.limitError", "pay: charge: over 5"},
		{"joined", errors.Join(errDeclined, &limitError{1}), "*durable_test.limitError", "card declined\nover 1"},
		{"Error method panics", rudeError{}, "durable_test.rudeError", "an error of type durable_test.rudeError, whose Error method panicked: no words"},
		{"wraps itself", &cyclicError{}, "error", "cyclic"},
		{"wraps itself twice", fmt.Errorf("a: %w", &cyclicErrors{}), "error", "a: cyclic"},
		{"of maximum depth", nested(999), "*durable_test.limitError", "over 7"},
		{"too deep", nested(1000), "error", "over 7"},
		{"non-ASCII text", errors.New("zu groß 😀"), "error", "zu groß 😀"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := stage(t, func(*durable.Context, durable.Void) (string, error) { return "ignored", c.err })
			s.Start(nil)
			want := &history.FailureDetails{ErrorType: c.wantType, ErrorMessage: c.msg}
			if diff := cmp.Diff(s.End().Failure, want); diff != "" {
				t.Errorf("failure (-got +want):\n%s", diff)
			}
			if got := s.Output(history.Failed); got != c.msg {
				t.Errorf("result %q, want %q", got, c.msg)
			}
		})
	}
}

// In DurableTask.Core/TaskOrchestrationContext.cs, FailOrchestration, the reason is the
// exception's message. For a TaskFailedException it is the reason of the event
// (HandleTaskFailedEvent, HandleSubOrchestrationInstanceFailedEvent).
func TestInstance_FailsWithTheReasonOfTheReturnedTaskError(t *testing.T) {
	t.Parallel()
	const sentence = "Task 'Count' (#0) failed with an unhandled exception: no funds"
	for _, c := range []struct {
		name         string
		hand         func(error) error
		reason, text string
	}{
		{"as it is", func(err error) error { return err }, "no funds", sentence},
		{"marked", durable.NonRetryable, "no funds", sentence},
		{"joined with nothing", func(err error) error { return errors.Join(nil, err) }, "no funds", sentence},
		{"wrapped", func(err error) error { return fmt.Errorf("charge: %w", err) }, "charge: " + sentence, "charge: " + sentence},
		{"joined with another", func(err error) error { return errors.Join(err, errors.New("b")) }, sentence + "\nb", sentence + "\nb"},
		{"replaced", func(error) error { return errors.New("other") }, "other", "other"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
				n, err := durable.CallActivity(ctx, count, "a").Await()
				return n, c.hand(err)
			})
			s.Start(nil)
			s.Episode(failed(0, "no funds"))
			if got := s.Output(history.Failed); got != c.reason {
				t.Errorf("failed with %q, want %q", got, c.reason)
			}
			if got := s.End().Failure.ErrorMessage; got != c.text {
				t.Errorf("the message is %q, want %q", got, c.text)
			}
		})
	}
}

func TestInstance_FailsWithThePanicAndItsStack(t *testing.T) {
	t.Parallel()
	var nilMap map[string]int
	for _, c := range []struct {
		name          string
		f             func()
		wantType, msg string
	}{
		{"text", func() { panic("boom") }, "panic", "panic: boom"},
		{"an error", func() { panic(&limitError{3}) }, "*durable_test.limitError", "panic: over 3"},
		{"an error that wraps itself", func() { panic(&cyclicError{}) }, "error", "panic: cyclic"},
		{"a runtime error", func() { nilMap["a"] = 1 }, "runtime.plainError", "panic: assignment to entry in nil map"},
		{"nil", func() { panic(nil) }, "*runtime.PanicNilError", "panic: panic called with nil argument"}, //nolint:govet // the subject of this test
		{"Goexit", runtime.Goexit, "*durable.UsageError", "durable: the orchestrator called runtime.Goexit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
				ctx.Sleep(0)
				c.f()
				return "", nil
			})
			s.Compare = false // comparing with a replay removes the stack
			s.Start(nil)
			s.Episode(fired(0))
			wantFailure(t, s, c.msg)
			f := s.End().Failure
			if f.ErrorType != c.wantType && !(c.name == "a runtime error" && strings.HasPrefix(f.ErrorType, "runtime.")) {
				t.Errorf("type %q, want %q", f.ErrorType, c.wantType)
			}
			if f.StackTrace == nil || !strings.Contains(*f.StackTrace, "failure_test.go") {
				t.Errorf("the stack does not contain failure_test.go: %v", f.StackTrace)
			}
		})
	}
}

func TestInstance_KeepsItsDecisionsBeforeAPanic(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		durable.CallActivity(ctx, count, "a")
		panic("boom")
	})
	wantActions(t, s.Start(nil), `0 task Count ["a"]`, "1 Failed panic: boom")
}

func TestInstance_FailsOnInvalidInputOrOutput(t *testing.T) {
	t.Parallel()
	s := stage(t, func(*durable.Context, int) (string, error) { t.Error("the orchestrator ran"); return "", nil })
	s.Start("seven")
	wantFailure(t, s, "decode input of orchestrator Main: as int: json: cannot unmarshal string into Go value of type int")

	out := stage(t, func(*durable.Context, durable.Void) (func(), error) { return func() {}, nil })
	out.Start(nil)
	wantFailure(t, out, "encode output of orchestrator Main: json: unsupported type: func()")
}

// While the orchestrator is unwound, recover in a deferred call must return nil, and
// durable calls must be rejected.
func TestInstance_RunsDeferredCallsWhenItIsUnloaded(t *testing.T) {
	t.Parallel()
	var got []string
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		task := durable.CallActivity(ctx, count, "a")
		defer func() { got = append(got, "first") }()
		defer func() {
			defer func() {
				got = append(got, fmt.Sprint(recover()))
			}()
			_, err := durable.CallActivity(ctx, count, "release").Await()
			t.Error("a durable call in a deferred call returned", err)
		}()
		defer func() { got = append(got, fmt.Sprint(recover())) }()
		_, err := task.Await()
		t.Error("resumed", err)
		return "", err
	})
	s.Compare = false
	s.Start(nil)
	s.Evict()
	want := []string{
		"<nil>",
		"durable: CallActivity was called by a deferred call of an orchestrator that has ended or is being unloaded from memory; " +
			"make durable calls before returning, and compensate where an error is handled",
		"first",
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("deferred calls saw (-got +want):\n%s", diff)
	}
}

func TestInstance_DurableCallsInDeferredCallsWorkWhenItReturns(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		defer func() {
			if _, err := durable.CallActivity(ctx, count, "release").Await(); err != nil {
				t.Error(err)
			}
		}()
		ctx.Sleep(0)
		return "end", nil
	})
	s.Start(nil)
	wantActions(t, s.Episode(fired(0)), `1 task Count ["release"]`)
	wantActions(t, s.Episode(done(1, "1")), `2 Completed "end"`)
}

func TestInstance_OrchestratorCanRecoverItsOwnPanic(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (out string, err error) {
		defer func() {
			out = fmt.Sprint("recovered ", recover())
			_, err = durable.CallActivity(ctx, count, "clean up").Await()
		}()
		panic("boom")
	})
	s.Start(nil)
	s.Episode(done(0, "1"))
	wantOutput(t, s, `"recovered boom"`)
}

const outside = "was called outside of its orchestrator; a Context and its tasks are for the orchestrator's own code, " +
	"which must start no goroutines: use durable.Go for concurrent branches and activities for work that blocks"

// panicOf returns the panic value of f.
func panicOf(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

// endOf runs f on a new goroutine. It returns the value that recover returns there, and
// whether f returned.
func endOf(f func()) (recovered any, returned bool) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { recovered = recover() }()
		f()
		returned = true
	}()
	<-ended
	return recovered, returned
}

func TestContext_EndsOtherGoroutinesThatMakeDurableCalls(t *testing.T) {
	t.Parallel()
	self := func(*durable.Context, int) (int, error) { return 0, nil }
	for name, f := range map[string]func(*durable.Context, *durable.Task[int]){
		"CallActivity": func(ctx *durable.Context, _ *durable.Task[int]) { durable.CallActivity(ctx, count, "") },
		"Timer":        func(ctx *durable.Context, _ *durable.Task[int]) { ctx.Timer(0) },
		"Wait":         func(ctx *durable.Context, _ *durable.Task[int]) { number.Wait(ctx) },
		"Await":        func(_ *durable.Context, task *durable.Task[int]) { _, _ = task.Await() },
		"AwaitAny":     func(ctx *durable.Context, task *durable.Task[int]) { durable.AwaitAny(ctx, task) },
		"AsCompleted": func(ctx *durable.Context, task *durable.Task[int]) {
			durable.AsCompleted(ctx, task)(func(*durable.Task[int]) bool { return true })
		},
		"Go": func(ctx *durable.Context, _ *durable.Task[int]) {
			durable.Go(ctx, func() (int, error) { return 0, nil })
		},
		"SetCustomStatus": func(ctx *durable.Context, _ *durable.Task[int]) { ctx.SetCustomStatus(make(chan int)) },
		"NewUUID":         func(ctx *durable.Context, _ *durable.Task[int]) { ctx.NewUUID() },
		"ContinueAsNew":   func(ctx *durable.Context, _ *durable.Task[int]) { _, _ = durable.ContinueAsNew(ctx, self, 0) },
		"LockEntities":    func(ctx *durable.Context, _ *durable.Task[int]) { durable.LockEntities(ctx) },
	} {
		for _, when := range []string{"during its turn", "while it waits", "after its end"} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				var leaked *durable.Context
				var open *durable.Task[int]
				ends := func() {
					if v, returned := endOf(func() { f(leaked, open) }); v != nil || returned {
						t.Errorf("the goroutine panicked with %v, returned: %v", v, returned)
					}
				}
				s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
					leaked, open = ctx, durable.CallActivity(ctx, count, "a")
					if when == "during its turn" {
						ends()
					}
					return durable.CallActivity(ctx, count, "b").Await()
				})
				s.Compare = false
				s.Start(nil)
				if when == "while it waits" {
					ends()
				}
				if when != "during its turn" {
					s.Episode(done(1, "1"))
				}
				if when == "after its end" {
					ends()
					wantOutput(t, s, "1")
					return
				}
				wantFailure(t, s, "durable: "+name+" "+outside)
			})
		}
	}
}

func TestContext_RejectsCallsFromAnotherCoroutine(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		next, stop := iter.Pull(func(yield func(int) bool) {
			ctx.Sleep(0)
			yield(1)
		})
		defer stop()
		n, _ := next()
		return n, nil
	})
	s.Start(nil)
	wantFailure(t, s, "durable: Timer "+outside)
}

func TestContext_RejectsATaskOfAnotherInstance(t *testing.T) {
	t.Parallel()
	var foreign *durable.Task[int]
	other := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		foreign = durable.CallActivity(ctx, count, "a")
		return foreign.Await()
	})
	other.Compare = false
	other.Start(nil)
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) { return foreign.Await() })
	s.Start(nil)
	wantFailure(t, s, "durable: Await was called outside of its orchestrator")
	s = stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		durable.AwaitAny(ctx, ctx.Timer(0), foreign)
		return 0, nil
	})
	s.Start(nil)
	wantFailure(t, s, "AwaitAny was given a task of another orchestration")
}
