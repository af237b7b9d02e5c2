package durable

import (
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// Task is the future result of a durable operation of an orchestrator: an activity, a
// sub-orchestration, a timer, an external event, an entity call or a branch. The
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
		panic(&UsageError{Sentence: "durable: awaited a task that was not returned by a durable call"})
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
	x.Progressed()
	defer x.Progressed()
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
	ctx.x.Completed(&t.f)
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
