package durable

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// RetryPolicy defines how a failed activity or sub-orchestration is retried.
//
// Applies to: [CallActivity], [CallHTTP], [Map], [CallSubOrchestrator].
//
//	policy := durable.RetryPolicy{MaxAttempts: 4, FirstInterval: 5 * time.Second, Coefficient: 2}
//	receipt, err := durable.CallActivity(ctx, Charge, order, policy).Await()
//
// The delays are durable timers. The task's error is the error of the last attempt.
//
// Errors marked with [NonRetryable] are not retried. If the policy is invalid, nothing
// is scheduled and the returned task has already completed with an error.
type RetryPolicy struct {
	// MaxAttempts is the maximum number of attempts, including the first one; at least
	// 1.
	MaxAttempts int

	// FirstInterval is the delay after the first attempt; above zero.
	FirstInterval time.Duration

	// Coefficient is the ratio of each delay to the previous one; at least 1. Zero means
	// 1.
	Coefficient float64

	// MaxInterval is the maximum delay; at least FirstInterval. Zero means 6 days, or
	// FirstInterval if that is longer.
	MaxInterval time.Duration

	// RetryTimeout stops retries if an attempt fails this long after the start of the
	// first attempt. Zero means no limit.
	RetryTimeout time.Duration

	// Handle reports whether to retry after an error, which is a *[TaskFailedError]. Nil
	// means always. It must be deterministic.
	Handle func(error) bool
}

// maxIntervalDefault is the extension's default (RetryOptions.cs,
// DefaultMaxRetryinterval).
const maxIntervalDefault = 6 * 24 * time.Hour

func (p RetryPolicy) applyActivity(o *activityOptions)                 { o.retry = &p }
func (p RetryPolicy) applySubOrchestration(o *subOrchestrationOptions) { o.retry = &p }

// withDefaults returns a copy of p in which zero fields are set to their defaults.
func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.Coefficient == 0 {
		p.Coefficient = 1
	}
	if p.MaxInterval == 0 {
		p.MaxInterval = max(maxIntervalDefault, p.FirstInterval)
	}
	return p
}

// validate returns an error that names the first invalid field of p, after
// withDefaults.
func (p RetryPolicy) validate() error {
	switch {
	case p.MaxAttempts < 1:
		return fmt.Errorf("durable: RetryPolicy.MaxAttempts is %d, must be at least 1", p.MaxAttempts)
	case p.FirstInterval <= 0:
		return fmt.Errorf("durable: RetryPolicy.FirstInterval is %v, must be above 0", p.FirstInterval)
	case !(p.Coefficient >= 1) || math.IsInf(p.Coefficient, 0): // the negation catches NaN
		return fmt.Errorf("durable: RetryPolicy.Coefficient is %v, must be at least 1", p.Coefficient)
	case p.MaxInterval < p.FirstInterval:
		return fmt.Errorf("durable: RetryPolicy.MaxInterval is %v, must be at least FirstInterval, %v", p.MaxInterval, p.FirstInterval)
	case p.RetryTimeout < 0:
		return fmt.Errorf("durable: RetryPolicy.RetryTimeout is %v, must not be below 0", p.RetryTimeout)
	}
	return nil
}

// next returns the delay after a failed attempt, or false if the retries end
// (DurableTask.Core/RetryInterceptor.cs, Invoke and ComputeNextDelay). Attempts are
// counted from 1, and elapsed is the time since the start of the first one.
//
//  1. Handle and RetryTimeout are evaluated after the last attempt too.
//  2. After the last attempt the delay is 0. DurableTask schedules this timer for
//     compatibility with the histories of an early version.
func (p RetryPolicy) next(attempt int, elapsed time.Duration, err *TaskFailedError) (wait time.Duration, ok bool) {
	switch {
	case err.NonRetryable,
		p.Handle != nil && !p.Handle(err),
		p.RetryTimeout > 0 && elapsed >= p.RetryTimeout:
		return 0, false
	case attempt >= p.MaxAttempts:
		return 0, true
	}
	d := float64(p.FirstInterval) * math.Pow(p.Coefficient, float64(attempt-1))
	if d >= float64(p.MaxInterval) {
		return p.MaxInterval, true
	}
	return time.Duration(d), true
}

// withRetries calls start for the first attempt, and again for each retry of the policy. It
// returns the task of all attempts.
func withRetries[O any](ctx *Context, p *RetryPolicy, start func(*replay.Future)) *Task[O] {
	if p == nil {
		return newTask[O](start)
	}
	policy := p.withDefaults()
	if err := policy.validate(); err != nil {
		return completedTask[O](ctx, err)
	}
	x := ctx.x
	firstStart := x.Now()
	task := newTask[O](start)
	x.Retry(&task.f, func(last *replay.Future) *replay.Future {
		for attempt := 1; ; attempt++ {
			wait, ok := policy.next(attempt, x.Now().Sub(firstStart), taskFailure(ctx.registry, last))
			if !ok {
				return last
			}
			timer := new(replay.Future)
			x.CreateTimer(timer, x.Now().Add(wait))
			next := replay.Attempt{Of: &task.f, Number: attempt + 1, Most: policy.MaxAttempts, After: last.Event()}
			x.AwaitAttempt(timer, next)
			if attempt == policy.MaxAttempts {
				return last
			}
			last = new(replay.Future)
			start(last)
			if x.AwaitAttempt(last, next); !last.HasFailed() {
				return last
			}
		}
	})
	return task
}

// NonRetryable marks an error of an activity or a sub-orchestration as permanent. No
// [RetryPolicy] retries it, in any language. The marked error has the type and the text
// of err. NonRetryable(nil) returns nil.
func NonRetryable(err error) error {
	if err == nil {
		return nil
	}
	return &nonRetryableError{err}
}

type nonRetryableError struct{ error }

func (e *nonRetryableError) Unwrap() error { return e.error }

// OnlyMarks tells replay.FailureOf to ignore the type of this error.
func (e *nonRetryableError) OnlyMarks() {}

// isNonRetryable reports whether NonRetryable marked err or an error that it wraps.
func isNonRetryable(err error) bool {
	_, ok := errors.AsType[*nonRetryableError](err)
	return ok
}
