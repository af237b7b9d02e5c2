package durable

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// StepOption configures a [Step] or a [Poll]. [RetryPolicy], [Tries], [AttemptTimeout] and
// [AtMostOnce] return or implement it.
type StepOption interface{ applyStep(*stepOptions) }

type stepOptions struct {
	retry      *RetryPolicy
	tries      int
	pause      time.Duration
	timeout    time.Duration
	atMostOnce bool
}

// Step runs f in the worker that runs the orchestrator, and records the result of f in
// the history. Use it for short work: unlike an activity, f needs no registration and no
// message.
//
//	receipt, err := durable.Step(ctx, "charge", func(ctx context.Context) (Receipt, error) {
//		return bank.Charge(ctx, order)
//	}).Await()
//
// The result is recorded as JSON, and Await returns the decoded value. If f returns an
// error or panics, the task's error is a *[TaskFailedError].
//
// A step runs at least once: if the worker stops before the result is recorded, f runs
// again. The code after Await runs only when the result is recorded. A step with a
// recorded result does not run again, with one exception. A process that was paused for
// longer than its lease does not know the results that other processes recorded meanwhile.
// It may run those steps again; the second results are discarded. The IdempotencyKey in
// [ActivityInfo] is the same for all runs of a step.
//
// The function f may do I/O, and may read the variables of the orchestrator. It must not
// change them, because a replay does not run f. It must not make durable calls. Its
// context ends when the orchestration ends, continues as new or is terminated, and when
// the worker stops.
//
// In a history a step looks like an activity of its name. While instances run, you can
// turn an activity into a step, or a step into an activity. If the name or an option is
// invalid, f does not run, and the returned task has already completed with an error.
func Step[T any](ctx *Context, name string, f func(context.Context) (T, error), opts ...StepOption) *Task[T] {
	return runStep(ctx, "Step", name, f, nil, opts)
}

// runStep decides the step of the given call, with a schedule if it is a poll. F is nil if the caller's
// function is nil.
func runStep[T any](ctx *Context, call, name string, f func(context.Context) (T, error), schedule *replay.PollSchedule, opts []StepOption) *Task[T] {
	ctx.x.ReportProgress()
	o := stepOptions{tries: 1}
	for _, opt := range opts {
		opt.applyStep(&o)
	}
	if err := o.validate(call, name, f == nil); err != nil {
		return completedTask[T](ctx, err)
	}
	run := stepFunc(ctx.registry, name, f, o)
	attempt, first := 0, 0
	return withRetries[T](ctx, o.retry, func(f *replay.Future) {
		attempt++
		step := &replay.RunStep{Name: name, First: first, Attempt: attempt, AtMostOnce: o.atMostOnce, Poll: schedule, Func: run}
		ctx.x.RunStep(f, step)
		first = step.First
	})
}

// stepFunc returns the function of a step on encoded results.
func stepFunc[T any](r *Registry, name string, f func(context.Context) (T, error), o stepOptions) dispatch.StepFunc {
	return func(ctx context.Context) (*string, error) {
		out, err := tryStep(ctx, f, o)
		switch {
		case errors.Is(err, dispatch.ErrPollAgain):
			return nil, dispatch.ErrPollAgain
		case err != nil:
			return nil, r.errors.describe(err)
		}
		result, err := encode(out)
		if err != nil {
			return nil, fmt.Errorf("encode result of step %s: %w", name, err)
		}
		return result, nil
	}
}

// tryStep calls f until it succeeds, for the configured number of attempts.
func tryStep[T any](ctx context.Context, f func(context.Context) (T, error), o stepOptions) (out T, err error) {
	for try := 1; ; try++ {
		out, err = callStep(dispatch.WithTry(ctx, try, o.tries), f, o.timeout)
		if err == nil || try >= o.tries || isNonRetryable(err) || errors.Is(err, dispatch.ErrPollAgain) {
			return out, err
		}
		if !dispatch.PauseStep(ctx, o.pause) {
			return out, err
		}
	}
}

// callStep makes one attempt.
func callStep[T any](ctx context.Context, f func(context.Context) (T, error), timeout time.Duration) (T, error) {
	if timeout > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the attempt took longer than %v: %w", timeout, ErrTimeout))
		defer cancel()
		ctx = limited
	}
	out, err := f(ctx)
	return out, replay.LimitDepth(err)
}

// validate returns an error that describes the first invalid argument of a step.
func (o *stepOptions) validate(call, name string, isNil bool) error {
	kind := strings.ToLower(call)
	switch {
	case strings.TrimSpace(name) == "":
		return fmt.Errorf("durable: %s was called without a name", call)
	case isNil:
		return fmt.Errorf("durable: %s %s has no function", kind, name)
	case o.tries < 1, o.pause < 0:
		return fmt.Errorf("durable: Tries(%d, %v) of %s %s is invalid; want at least 1 attempt and a pause of at least 0", o.tries, o.pause, kind, name)
	case o.tries > 1 && o.pause > maxTries/time.Duration(o.tries-1):
		return fmt.Errorf("durable: Tries(%d, %v) of %s %s pauses for more than %v in all; use a RetryPolicy", o.tries, o.pause, kind, name, maxTries)
	case o.timeout < 0:
		return fmt.Errorf("durable: AttemptTimeout(%v) of %s %s is negative", o.timeout, kind, name)
	}
	return nil
}

// maxTries is the maximum total pause between attempts in memory.
const maxTries = 10 * time.Second

type triesOption struct {
	n     int
	pause time.Duration
}

func (t triesOption) applyStep(o *stepOptions) { o.tries, o.pause = t.n, t.pause }

// Tries returns a [StepOption] that repeats a failed step in memory: at most n attempts
// with a pause between two of them. The pauses must not exceed 10 seconds in all. Only
// the result of the last attempt is recorded. After a crash the attempts start over.
//
// Errors marked with [NonRetryable] and panics are not repeated. For longer waits use a
// [RetryPolicy]; with both, each attempt of the policy has n attempts in memory.
func Tries(n int, pause time.Duration) StepOption { return triesOption{n, pause} }

type attemptTimeout time.Duration

func (t attemptTimeout) applyStep(o *stepOptions) { o.timeout = time.Duration(t) }

// AttemptTimeout returns a [StepOption] that ends the context of each attempt at a step
// after d. The function must return then. Zero means no limit.
func AttemptTimeout(d time.Duration) StepOption { return attemptTimeout(d) }

type stepFlag int

func (stepFlag) applyStep(o *stepOptions) { o.atMostOnce = true }

// AtMostOnce is a [StepOption] for steps that must not run twice. It records the start
// of the step before the function runs, which takes one more write. If the worker stops
// before the result is recorded, the step fails with [ErrOutcomeUnknown]. A rewind of
// the instance runs the step again.
const AtMostOnce stepFlag = 1

// ErrOutcomeUnknown means that the process of an [AtMostOnce] step ended before it
// recorded the result. The function may have run.
var ErrOutcomeUnknown = errors.New("the outcome of the step is unknown")
