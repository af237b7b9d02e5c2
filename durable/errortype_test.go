package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
	"github.com/google/go-cmp/cmp"
)

type declinedError struct {
	Code  string  `json:"code"`
	Cents float64 `json:"cents,omitempty"`
}

func (e *declinedError) Error() string { return "declined: " + e.Code }

// wordError is an error whose JSON is not an object.
type wordError string

func (e wordError) Error() string { return "word " + string(e) }

var errSoldOut = errors.New("sold out")

func namedErrors() []*durable.Registration {
	return []*durable.Registration{
		durable.ErrorType[*declinedError]("Declined"),
		durable.ErrorType[wordError]("Word"),
		durable.ErrorValue("SoldOut", errSoldOut),
	}
}

// recordedFailure returns the failure that an orchestrator records if it returns err. The
// registry contains names.
func recordedFailure(t *testing.T, err error, names ...*durable.Registration) *history.FailureDetails {
	t.Helper()
	r := authors(names...)
	r.Add(durable.Orchestrator("Main", func(*durable.Context, durable.Void) (int, error) { return 0, err }))
	s := stageOf(t, r)
	s.Start(nil)
	return s.End().Failure
}

func TestErrorType_IsRecordedWithItsNameAndFields(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		err  error
		want *history.FailureDetails
	}{
		{"a type", &declinedError{"insufficient", 7.5}, &history.FailureDetails{
			ErrorType: "Declined", ErrorMessage: "declined: insufficient",
			Properties: map[string]string{"code": `"insufficient"`, "cents": "7.5"},
		}},
		{"wrapped", fmt.Errorf("pay: %w", fmt.Errorf("charge: %w", &declinedError{Code: "x"})), &history.FailureDetails{
			ErrorType: "Declined", ErrorMessage: "pay: charge: declined: x", Properties: map[string]string{"code": `"x"`},
		}},
		{"not a JSON object", wordError("a"), &history.FailureDetails{
			ErrorType: "Word", ErrorMessage: "word a", Properties: map[string]string{"value": `"a"`},
		}},
		{"a value", fmt.Errorf("reserve: %w", errSoldOut), &history.FailureDetails{ErrorType: "SoldOut", ErrorMessage: "reserve: sold out"}},
		{"joined", errors.Join(errDeclined, errSoldOut), &history.FailureDetails{ErrorType: "SoldOut", ErrorMessage: "card declined\nsold out"}},
		{"not retryable", durable.NonRetryable(&declinedError{Code: "x"}), &history.FailureDetails{
			ErrorType: "Declined", ErrorMessage: "declined: x", Properties: map[string]string{"code": `"x"`}, IsNonRetriable: true,
		}},
		{"of the standard library", context.DeadlineExceeded, &history.FailureDetails{
			ErrorType: "context.DeadlineExceeded", ErrorMessage: "context deadline exceeded",
		}},
		{"without a type", fmt.Errorf("a: %w, %w", errors.New("b"), errDeclined), &history.FailureDetails{
			ErrorType: "error", ErrorMessage: "a: b, card declined",
		}},
		{"of a type without a name", fmt.Errorf("a: %w", &limitError{1}), &history.FailureDetails{
			ErrorType: "*durable_test.limitError", ErrorMessage: "a: over 1",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(recordedFailure(t, c.err, namedErrors()...), c.want); diff != "" {
				t.Errorf("failure (-got +want):\n%s", diff)
			}
		})
	}
}

// caught returns the error that an orchestrator gets from an activity that failed with
// f.
func caught(t *testing.T, f *history.FailureDetails) (err error) {
	t.Helper()
	r := authors(namedErrors()...)
	r.Add(durable.Orchestrator("Main", func(ctx *durable.Context, _ durable.Void) (int, error) {
		_, err = durable.CallActivity(ctx, count, "a").Await()
		return 0, nil
	}))
	s := stageOf(t, r)
	s.Compare = false
	s.Start(nil)
	s.Episode(&history.TaskFailed{Header: history.NewHeader(replaytest.Epoch), TaskScheduledID: 0, Reason: &f.ErrorMessage, Failure: f})
	return err
}

func TestErrorType_IsFoundByErrorsAsAndIs(t *testing.T) {
	t.Parallel()
	err := caught(t, &history.FailureDetails{
		ErrorType: "Declined", ErrorMessage: "declined", Properties: map[string]string{"code": `"x"`, "cents": "2", "more": "[1]"},
	})
	declined, ok := errors.AsType[*declinedError](err)
	if !ok || *declined != (declinedError{"x", 2}) {
		t.Errorf("found %+v in %v", declined, err)
	}
	if word, ok := errors.AsType[wordError](caught(t, &history.FailureDetails{ErrorType: "Word", Properties: map[string]string{"value": `"a"`}})); !ok || word != "a" {
		t.Errorf("got %q", string(word))
	}
	if err := caught(t, &history.FailureDetails{ErrorType: "SoldOut"}); !errors.Is(err, errSoldOut) || errors.Is(err, errDeclined) {
		t.Errorf("%v; want an error that matches only errSoldOut", err)
	}
	if err := caught(t, &history.FailureDetails{ErrorType: "durable.ErrTimeout"}); !errors.Is(err, durable.ErrTimeout) {
		t.Errorf("%v does not match ErrTimeout", err)
	}

	// A failure that caused another one, two levels down.
	err = caught(t, &history.FailureDetails{ErrorType: "App.Outer", ErrorMessage: "outer", InnerFailure: &history.FailureDetails{
		ErrorType: "App.Inner", ErrorMessage: "inner", InnerFailure: &history.FailureDetails{ErrorType: "Declined", Properties: map[string]string{"code": `"deep"`}},
	}})
	if declined, ok := errors.AsType[*declinedError](err); !ok || declined.Code != "deep" {
		t.Errorf("found %+v in %v", declined, err)
	}

	// An error whose properties cannot be decoded is an ordinary failure.
	for _, properties := range []map[string]string{{"code": "7"}, {"code": "{"}} {
		err := caught(t, &history.FailureDetails{ErrorType: "Declined", ErrorMessage: "declined", Properties: properties})
		if _, ok := errors.AsType[*declinedError](err); ok || err.Error() != "Task 'Count' (#0) failed with an unhandled exception: declined" {
			t.Errorf("got %v from properties %v", err, properties)
		}
	}
}

// An error passes from an activity through a sub-orchestration to its parent.
func TestErrorType_IsPreservedThroughSeveralInstances(t *testing.T) {
	pay := func(context.Context, string) (string, error) {
		return "", fmt.Errorf("pay: %w", &declinedError{"limit", 100})
	}
	child := func(ctx *durable.Context, _ durable.Void) (string, error) {
		_, err := durable.CallActivity(ctx, pay, "x").Await()
		return "", fmt.Errorf("child: %w", err)
	}
	main := func(ctx *durable.Context, _ durable.Void) (string, error) {
		_, err := durable.CallSubOrchestrator(ctx, child, durable.Void{}).Await()
		var declined *declinedError
		if !errors.As(err, &declined) {
			return "", fmt.Errorf("the error is not in the chain: %w", err)
		}
		return "", err
	}
	r := durable.NewRegistry(namedErrors()...)
	r.Add(durable.Orchestrator("Main", main), durable.Orchestrator("Child", child), durable.Activity("Pay", pay))
	runMain(t, r, main, func(t *testing.T, h *memhub.Hub, _ *durable.Client, i *durable.Instance[string]) {
		if _, err := i.Wait(t.Context()); err == nil {
			t.Fatal("the instance did not fail")
		}
		events, err := h.History(t.Context(), "main")
		if err != nil {
			t.Fatal(err)
		}
		var failure *history.FailureDetails
		for _, e := range events {
			if e, ok := e.(*history.ExecutionCompleted); ok {
				failure = e.Failure
			}
		}
		types := ""
		for ; failure != nil; failure = failure.InnerFailure {
			types += failure.ErrorType + " "
		}
		if want := "*durable.TaskFailedError *durable.TaskFailedError Declined "; types != want {
			t.Errorf("error types %q, want %q", types, want)
		}
	})
}

// If errors.Is or errors.As finds an error in the result of an activity, they also find
// it in the orchestrator, in its parent and after Wait.
func TestErrorValue_IsFoundAnywhereInTheErrorTree(t *testing.T) {
	for name, fail := range map[string]func() error{
		"an Is method":            func() error { _, err := os.Open("/no/such/file"); return err },
		"joined first":            func() error { return errors.Join(fs.ErrNotExist, errDeclined) },
		"joined last":             func() error { return errors.Join(errDeclined, errSoldOut, &declinedError{Code: "x"}, fs.ErrNotExist) },
		"joined and wrapped":      func() error { return fmt.Errorf("%w and %w", errSoldOut, fmt.Errorf("a: %w", fs.ErrNotExist)) },
		"wrapped by a named type": func() error { return &wrapping{declinedError{Code: "x"}, syscall.ENOENT} },
		"the tenth of the same":   func() error { return errors.Join(append(slices.Repeat([]error{errSoldOut}, 9), fs.ErrNotExist)...) },
	} {
		t.Run(name, func(t *testing.T) {
			act := func(context.Context, string) (string, error) { return "", fail() }
			child := func(ctx *durable.Context, _ durable.Void) (string, error) {
				a, b := durable.CallActivity(ctx, sold, "x"), durable.CallActivity(ctx, act, "x")
				_, err := durable.AwaitAll(ctx, a, b)
				if !errors.Is(err, fs.ErrNotExist) {
					return "", fmt.Errorf("the error is not in the chain: %w", errDeclined)
				}
				return "", err
			}
			main := func(ctx *durable.Context, _ durable.Void) (string, error) {
				return durable.CallSubOrchestrator(ctx, child, durable.Void{}).Await()
			}
			r := durable.NewRegistry(append(namedErrors(), durable.ErrorValue("NotExist", fs.ErrNotExist), durable.ErrorType[*wrapping]("Wrapping"))...)
			r.Add(durable.Orchestrator("Main", main), durable.Orchestrator("Child", child), durable.Activity("Act", act), durable.Activity("Sold", sold))
			runMain(t, r, main, func(t *testing.T, _ *memhub.Hub, _ *durable.Client, i *durable.Instance[string]) {
				_, err := i.Wait(t.Context())
				if !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, errSoldOut) {
					t.Errorf("after Wait: %v", err)
				}
				if failed, ok := errors.AsType[*durable.OrchestrationFailedError](err); !ok || failed.Failure == nil {
					t.Errorf("after Wait: %#v", err)
				}
			})
		})
	}
}

// An error tree is recorded as one chain that .NET can decode. Each failure occurs
// once, and the chain shares no memory with the original failures.
func TestErrorType_RecordsATreeAsOneChainOfBoundedLength(t *testing.T) {
	t.Parallel()
	nest := func(what string, deep int) (f *history.FailureDetails) {
		for i := range deep {
			f = &history.FailureDetails{ErrorType: "T", ErrorMessage: fmt.Sprint(what, deep-i), InnerFailure: f}
		}
		return f
	}
	task := func(what string, deep int) error {
		return &durable.TaskFailedError{Type: "T", Message: what, Inner: nest(what, deep)}
	}
	var named, tasks []error
	for i := range 20 {
		named = append(named, &declinedError{Code: fmt.Sprint(i)})
		tasks = append(tasks, task(fmt.Sprint("t", i), 7))
	}
	for name, c := range map[string]struct {
		err  error
		want int // inner failures of the first one
	}{
		"one named error":                 {&wrapping{err: errors.New("x")}, 0},
		"wrapped by a named error":        {&wrapping{err: errDeclined}, 0},
		"many named errors":               {errors.Join(named...), 8},
		"equal failures":                  {errors.Join(errSoldOut, task("a", 2), task("a", 2), errSoldOut, errSoldOut), 4},
		"a named error that wraps a task": {&wrapping{err: task("a", 2)}, 3},
		"joined errors that wrap tasks":   {errors.Join(&wrapping{err: task("a", 2)}, &wrapping{err: task("b", 2)}), 7},
		"many tasks with inner failures":  {errors.Join(tasks...), 32},
		"a very long chain":               {errors.Join(errSoldOut, task("a", 100)), 32},
	} {
		f := recordedFailure(t, c.err, append(namedErrors(), durable.ErrorType[*wrapping]("Wrapping"))...)
		length := 0
		for f = f.InnerFailure; f != nil; f = f.InnerFailure {
			length++
		}
		if length != c.want {
			t.Errorf("%s: %d inner failures, want %d", name, length, c.want)
		}
	}

	shared := nest("shared", 2)
	recordedFailure(t, errors.Join(errSoldOut, &durable.TaskFailedError{Type: "T", Message: "a", Inner: shared}, task("b", 3)), namedErrors()...)
	if diff := cmp.Diff(nest("shared", 2), shared); diff != "" {
		t.Errorf("the original failure has changed (-want +got):\n%s", diff)
	}
}

func sold(context.Context, string) (string, error) { return "", errSoldOut }

// wrapping is a named error that wraps another error.
type wrapping struct {
	declinedError
	err error
}

func (w *wrapping) Unwrap() error { return w.err }

func TestErrorType_PanicsOnInvalidRegistrations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		call func()
		want string
	}{
		{"no name", func() { durable.ErrorType[*declinedError](" ") }, "durable: error *durable_test.declinedError has no name"},
		{"an interface", func() { durable.ErrorType[error]("E") }, `durable: error "E": error is an interface; use a concrete type`},
		{"no error", func() { durable.ErrorValue("E", nil) }, `durable: error "E": <nil> is nil or not comparable`},
		{"two errors with one name", func() {
			durable.NewRegistry(durable.ErrorType[*declinedError]("E"), durable.ErrorValue("e", errSoldOut))
		}, `durable: error names "E" and "e"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if got := fmt.Sprint(recover()); !strings.HasPrefix(got, c.want) {
					t.Errorf("panicked with %q, want %q", got, c.want)
				}
			}()
			c.call()
		})
	}
}

// The properties have the format of .NET's exception properties provider.
func TestErrorType_AcceptsPropertiesOfOtherLanguages(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal("zu groß")
	if err != nil {
		t.Fatal(err)
	}
	got := caught(t, &history.FailureDetails{ErrorType: "Declined", Properties: map[string]string{"code": string(text), "cents": "null"}})
	if declined, ok := errors.AsType[*declinedError](got); !ok || declined.Code != "zu groß" || declined.Cents != 0 {
		t.Errorf("got %+v", declined)
	}
}

// Histories contain the names of the engine's errors, so the names must not change.
func TestEngineErrors_KeepTheirNamesAndAreFoundByErrorsAs(t *testing.T) {
	echo := func(_ context.Context, s string) (string, error) { return s, nil }
	runs := 0
	fickle := func(ctx *durable.Context, _ durable.Void) (string, error) {
		if runs++; runs > 1 {
			ctx.Sleep(time.Second)
		}
		return durable.CallActivity(ctx, echo, "x").Await()
	}
	main := func(ctx *durable.Context, _ durable.Void) (string, error) {
		_, err := durable.CallSubOrchestrator(ctx, fickle, durable.Void{}).Await()
		failed, _ := errors.AsType[*durable.TaskFailedError](err)
		diverged, ok := errors.AsType[*durable.NonDeterminismError](err)
		if !ok || failed.Type != "*durable.NonDeterminismError" || !strings.HasPrefix(diverged.Message, "Non-Deterministic workflow detected: ") {
			return "", fmt.Errorf("the child's failure is %w", err)
		}
		durable.AwaitAny(ctx)
		return "", nil
	}
	r := durable.NewRegistry(durable.Orchestrator("Main", main), durable.Orchestrator("Fickle", fickle), durable.Activity("Echo", echo))
	synctest.Test(t, func(t *testing.T) {
		h := memhub.New()
		defer run(t, h, r, durable.Config{ExtendedSessionIdle: -1})() // without sessions every episode replays
		i, err := durable.Start(t.Context(), durable.NewClient(h, r), main, durable.Void{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = i.Wait(t.Context())
		failed, _ := errors.AsType[*durable.OrchestrationFailedError](err)
		misused, ok := errors.AsType[*durable.UsageError](err)
		if !ok || failed.Failure.ErrorType != "*durable.UsageError" || misused.Message != failed.Failure.ErrorMessage || !strings.HasPrefix(misused.Message, "durable: AwaitAny was called without tasks") {
			t.Errorf("got %v with %+v, want a UsageError", err, misused)
		}
		if _, ok := errors.AsType[*durable.NonDeterminismError](err); ok {
			t.Errorf("%v contains the error of the child", err)
		}
	})
}
