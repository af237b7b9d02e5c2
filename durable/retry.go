package durable

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// A RetryPolicy says how something that failed is tried again. It is an
// [ActivityOption] and a [SubOrchestrationOption]:
//
//	policy := durable.RetryPolicy{MaxAttempts: 4, FirstInterval: 5 * time.Second, Coefficient: 2}
//	receipt, err := durable.CallActivity(ctx, Charge, order, policy).Await()
//
// The waits are durable timers. The error of the last attempt is the task's.
//
// What is marked by [NonRetryable] is not tried again. A policy that says what
// cannot be completes the task with an error, and nothing is begun.
type RetryPolicy struct {
	// MaxAttempts is how often it is tried, the first time included; at least 1.
	MaxAttempts int

	// FirstInterval is how long to wait after the first attempt, above zero.
	FirstInterval time.Duration

	// Coefficient is by how much each wait is longer than the one before, at
	// least 1. Zero means 1.
	Coefficient float64

	// MaxInterval is the longest wait, at least FirstInterval. Zero means 6 days.
	MaxInterval time.Duration

	// RetryTimeout ends the attempts: when one fails that long after the first
	// began, there is no other. Zero means that there is no such time.
	RetryTimeout time.Duration

	// Handle says whether to try again after an error, which is a
	// *[TaskFailedError]. Nil means always. It must do the same in every replay.
	Handle func(error) bool
}

// maxIntervalDefault is the extension's (RetryOptions.cs, DefaultMaxRetryinterval).
const maxIntervalDefault = 6 * 24 * time.Hour

func (p RetryPolicy) applyActivity(o *activityOptions)                 { o.retry = &p }
func (p RetryPolicy) applySubOrchestration(o *subOrchestrationOptions) { o.retry = &p }

// withDefaults returns a copy of p in which fields that are zero have their
// defaults.
func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.Coefficient == 0 {
		p.Coefficient = 1
	}
	if p.MaxInterval == 0 {
		p.MaxInterval = max(maxIntervalDefault, p.FirstInterval)
	}
	return p
}

// validate says which field of p, after withDefaults, cannot be.
func (p RetryPolicy) validate() error {
	switch {
	case p.MaxAttempts < 1:
		return fmt.Errorf("durable: RetryPolicy.MaxAttempts is %d, must be at least 1", p.MaxAttempts)
	case p.FirstInterval <= 0:
		return fmt.Errorf("durable: RetryPolicy.FirstInterval is %v, must be above 0", p.FirstInterval)
	case !(p.Coefficient >= 1) || math.IsInf(p.Coefficient, 0): // NaN is neither
		return fmt.Errorf("durable: RetryPolicy.Coefficient is %v, must be at least 1", p.Coefficient)
	case p.MaxInterval < p.FirstInterval:
		return fmt.Errorf("durable: RetryPolicy.MaxInterval is %v, must be at least FirstInterval, %v", p.MaxInterval, p.FirstInterval)
	case p.RetryTimeout < 0:
		return fmt.Errorf("durable: RetryPolicy.RetryTimeout is %v, must not be below 0", p.RetryTimeout)
	}
	return nil
}

// next returns how long to wait after an attempt, counted from 1, which failed
// with err when elapsed had passed since the first began; ok is false if that
// was the end (DurableTask.Core/RetryInterceptor.cs, Invoke and
// ComputeNextDelay).
//
//  1. Whether the failure may be handled and the time is up is asked after the
//     last attempt too.
//  2. After the last attempt there is a wait of no length. DurableTask has one
//     since an early version waited there for no reason, and histories must go
//     on fitting.
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

// retried begins something, and has it tried again by the policy. It returns
// the task of all attempts.
func retried[O any](ctx *Context, p *RetryPolicy, begin func(*replay.Future)) *Task[O] {
	if p == nil {
		return newTask[O](begin)
	}
	policy := p.withDefaults()
	if err := policy.validate(); err != nil {
		return endedTask[O](ctx, err)
	}
	x := ctx.x
	began := x.Now()
	task := newTask[O](begin)
	x.Retry(&task.f, func(last *replay.Future) *replay.Future {
		for attempt := 1; ; attempt++ {
			wait, ok := policy.next(attempt, x.Now().Sub(began), taskFailure(ctx.registry, last))
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
			begin(last)
			if x.AwaitAttempt(last, next); !last.HasFailed() {
				return last
			}
		}
	})
	return task
}

// NonRetryable marks err, returned by an activity or a sub-orchestration, as
// one that trying again does not help: no [RetryPolicy] does, in whichever
// language. Type and text are err's. It returns nil for nil.
func NonRetryable(err error) error {
	if err == nil {
		return nil
	}
	return &nonRetryableError{err}
}

type nonRetryableError struct{ error }

func (e *nonRetryableError) Unwrap() error { return e.error }

// OnlyMarks says that the error has no type of its own; see replay.FailureOf.
func (e *nonRetryableError) OnlyMarks() {}

// isNonRetryable reports whether NonRetryable marked err or what it wraps.
func isNonRetryable(err error) bool {
	_, ok := errors.AsType[*nonRetryableError](err)
	return ok
}
