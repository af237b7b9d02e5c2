package durable

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// Task is the future result of a durable operation of an orchestrator: an activity, a
// step, a sub-orchestration, a timer, an external event, an entity call or a branch. The
// functions that start such operations return tasks.
//
// A task belongs to the orchestrator that created it. It continues whether or not it is
// awaited. If the orchestrator returns first, the result of the task is discarded.
type Task[T any] struct {
	f        replay.Future
	call     *entityCall // nil unless the task is an entity call
	resolved bool        // value and err contain the result
	value    T
	err      error
}

// Awaitable is a *[Task] of any type.
type Awaitable interface {
	// future returns the replay future of the task. It panics if no durable call created
	// the task.
	future() *replay.Future
}

func (t *Task[T]) future() *replay.Future {
	if t == nil || t.f.Execution() == nil {
		panic(&UsageError{Message: "durable: awaited a task that was not returned by a durable call"})
	}
	return &t.f
}

// Await waits until the task is complete and returns its result. The error of a failed
// activity, sub-orchestration or entity operation is a *[TaskFailedError]. The error of
// a branch is the error that its function returned. A result that cannot be decoded as
// T is an error too.
//
// A task can be awaited several times, and by several branches.
func (t *Task[T]) Await() (T, error) {
	t.future().Await()
	if t.resolved {
		return t.value, t.err
	}
	x := t.f.Execution()
	x.ReportProgress()
	defer x.ReportProgress()
	if t.call != nil {
		t.value, t.err = entityResult[T](&t.f, t.call)
	} else {
		t.value, t.err = result[T](&t.f)
	}
	t.resolved = true
	return t.value, t.err
}

// AwaitTimeout waits like [Task.Await], but for at most d. After d the error wraps
// [ErrTimeout]; the task continues and may be awaited again. A task that waits for an
// external event receives no event until then.
//
// AwaitTimeout creates a timer unless the task is complete. If the task completes
// first, the timer remains, but the orchestrator can return without waiting for it.
func (t *Task[T]) AwaitTimeout(d time.Duration) (T, error) {
	f := t.future()
	if !f.Ready() {
		x := f.Execution()
		timer := new(replay.Future)
		x.CreateTimer(timer, x.Now().Add(d))
		if x.AwaitAny([]*replay.Future{f, timer}) == 1 {
			var zero T
			return zero, fmt.Errorf("%s is not complete after %v: %w", f, d, ErrTimeout)
		}
	}
	return t.Await()
}

// newTask returns a task whose future is started by start.
func newTask[T any](start func(*replay.Future)) *Task[T] {
	t := new(Task[T])
	start(&t.f)
	return t
}

// completedTask returns a completed task with err, or with the zero value if err is nil.
func completedTask[T any](ctx *Context, err error) *Task[T] {
	t := &Task[T]{resolved: true, err: err}
	ctx.x.MarkComplete(&t.f)
	return t
}

// result returns the result of the event that completed f.
func result[T any](f *replay.Future) (T, error) {
	var payload *string
	var zero T
	switch e := f.Event().(type) {
	case *history.TaskCompleted:
		payload = e.Result
	case *history.SubOrchestrationInstanceCompleted:
		payload = e.Result
	case *history.TaskFailed, *history.SubOrchestrationInstanceFailed:
		return zero, taskFailure(contextOf(f).registry, f)
	case *history.EventRaised:
		payload = e.Input
	}
	v, err := decode[T](payload)
	if err != nil {
		return zero, fmt.Errorf("decode result of %s: %w", f, err)
	}
	return v, nil
}

// AwaitAll waits until all tasks are complete and returns their values in the order of
// the tasks. The error joins the errors of all failed tasks, in the same order. The
// values of failed tasks are zero.
//
// A nil task fails the orchestration with a [UsageError].
func AwaitAll[T any](ctx *Context, tasks ...*Task[T]) ([]T, error) {
	if slices.Contains(tasks, nil) {
		ctx.x.PanicWithUsageError("AwaitAll", "durable: AwaitAll was given a nil task")
	}
	values := make([]T, len(tasks))
	var failed []error
	for i, t := range tasks {
		var err error
		if values[i], err = t.Await(); err != nil {
			failed = append(failed, err)
		}
	}
	return values, errors.Join(failed...)
}

// AwaitAny waits until one of the tasks is complete and returns the task that completed
// first. The Await method of that task returns immediately:
//
//	switch durable.AwaitAny(ctx, approval, deadline) {
//	case approval:
//		decision, err := approval.Await()
//	}
//
// The other tasks continue and may be awaited later. A task of an external event
// receives no event in the meantime: events complete other waiting tasks or are
// buffered. When the task is awaited again, it receives the oldest buffered event.
//
// A call without tasks, or with a nil task, fails the orchestration with a
// [UsageError].
func AwaitAny(ctx *Context, tasks ...Awaitable) Awaitable {
	futures := make([]*replay.Future, len(tasks))
	for i, t := range tasks {
		if t == nil {
			ctx.x.PanicWithUsageError("AwaitAny", "durable: AwaitAny was given a nil task")
		}
		futures[i] = t.future()
	}
	return tasks[ctx.x.AwaitAny(futures)]
}

// AsCompleted returns an iterator over the tasks in the order in which they complete.
// It waits for each task. If the loop ends early, the remaining tasks continue as after
// [AwaitAny].
//
//	for t := range durable.AsCompleted(ctx, tasks...) {
//		v, err := t.Await() // returns immediately
//	}
func AsCompleted[T any](ctx *Context, tasks ...*Task[T]) iter.Seq[*Task[T]] {
	return func(yield func(*Task[T]) bool) {
		futures := make([]*replay.Future, len(tasks))
		for i, t := range tasks {
			futures[i] = t.future()
		}
		c := ctx.x.Collect(futures)
		defer c.Stop()
		for {
			i, ok := c.Next()
			if !ok || !yield(tasks[i]) {
				return
			}
		}
	}
}

// Map calls an activity for each input and returns the results in the order of the
// inputs. At most limit calls are in flight at a time; a limit of zero or less means no
// limit. Map calls the activity for all inputs, even if some calls fail. As in
// [AwaitAll], the error joins the errors of all failed calls.
func Map[I, O any](ctx *Context, activity func(context.Context, I) (O, error), in []I, limit int, opts ...ActivityOption) ([]O, error) {
	tasks := make([]*Task[O], len(in))
	start := func(i int) { tasks[i] = CallActivity(ctx, activity, in[i], opts...) }
	if limit <= 0 || limit >= len(in) {
		for i := range in {
			start(i)
		}
		return AwaitAll(ctx, tasks...)
	}
	c := ctx.x.Collect(nil)
	defer c.Stop()
	for i := range in {
		if i >= limit {
			c.Next()
		}
		start(i)
		c.Add(tasks[i].future())
	}
	return AwaitAll(ctx, tasks...)
}

// Go runs f as a branch of the orchestrator and returns its result as a task. Branches
// take turns in an order that is the same in every replay: one branch runs until it
// awaits a task. Branches can therefore share variables without locks.
//
// A branch starts when the caller next awaits a task. When the orchestrator returns,
// waiting branches end. A panic in a branch fails the orchestration.
func Go[T any](ctx *Context, f func() (T, error)) *Task[T] {
	t := new(Task[T])
	ctx.x.Branch(&t.f, func() {
		t.value, t.err = f()
		t.resolved = true
	})
	return t
}

// RetryPolicy defines how a failed activity, step or sub-orchestration is retried.
//
// Applies to: [CallActivity], [Step], [Poll], [CallHTTP], [Map], [CallSubOrchestrator].
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

	// RetryTimeout is measured from the start of the first attempt. An attempt that fails
	// after this time is not retried. Zero means no limit.
	RetryTimeout time.Duration

	// Handle reports whether to retry after an error, which is a *[TaskFailedError]. Nil
	// means always. It must be deterministic.
	Handle func(error) bool
}

// maxIntervalDefault is the extension's default (RetryOptions.cs,
// DefaultMaxRetryinterval).
const maxIntervalDefault = 6 * 24 * time.Hour

func (p RetryPolicy) applyActivity(o *activityOptions)                 { o.retry = &p }
func (p RetryPolicy) applyStep(o *stepOptions)                         { o.retry = &p }
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
		return fmt.Errorf("durable: RetryPolicy.MaxAttempts is %d; want at least 1", p.MaxAttempts)
	case p.FirstInterval <= 0:
		return fmt.Errorf("durable: RetryPolicy.FirstInterval is %v; want more than 0", p.FirstInterval)
	case !(p.Coefficient >= 1) || math.IsInf(p.Coefficient, 0): // the negation catches NaN
		return fmt.Errorf("durable: RetryPolicy.Coefficient is %v; want at least 1", p.Coefficient)
	case p.MaxInterval < p.FirstInterval:
		return fmt.Errorf("durable: RetryPolicy.MaxInterval is %v; want at least FirstInterval, %v", p.MaxInterval, p.FirstInterval)
	case p.RetryTimeout < 0:
		return fmt.Errorf("durable: RetryPolicy.RetryTimeout is %v; want at least 0", p.RetryTimeout)
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
			next := replay.Attempt{Operation: &task.f, Number: attempt + 1, MaxAttempts: policy.MaxAttempts, PreviousFailure: last.Event()}
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

// NonRetryable marks an error of an activity, a step or a sub-orchestration as
// permanent. No [RetryPolicy] retries it, in any language. The marked error has the type
// and the text of err. NonRetryable(nil) returns nil.
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
