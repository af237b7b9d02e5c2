package durable

import (
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// A Task is the result, to come, of something durable that an orchestrator
// began: an activity, a sub-orchestration, a timer, an external event or a
// branch. Tasks are made by the functions that begin such things.
//
// A task belongs to the orchestrator that began it. It goes on whether it is
// awaited or not; when the orchestrator returns, its result is dropped.
type Task[T any] struct {
	f        replay.Future
	call     *entityCall // nil if it is not the call of an entity
	resolved bool        // value and err hold the result
	value    T
	err      error
}

// An Awaitable is a *[Task] of any type.
type Awaitable interface {
	// future returns the part of the task that can be waited for. It panics if
	// there is none.
	future() *replay.Future
}

func (t *Task[T]) future() *replay.Future {
	if t == nil || t.f.Execution() == nil {
		panic(&UsageError{Sentence: "durable: a task was awaited that no durable call returned"})
	}
	return &t.f
}

// Await waits until the task is complete and returns its result. The error is
// a *[TaskFailedError] if an activity, a sub-orchestration or an operation of an
// entity failed, and what the branch's function returned for a branch. A result that is no JSON of a T
// is an error too.
//
// A task can be awaited again, and by several branches.
func (t *Task[T]) Await() (T, error) {
	t.future().Await()
	if t.resolved {
		return t.value, t.err
	}
	x := t.f.Execution()
	x.Progressed()
	defer x.Progressed()
	if t.call != nil {
		t.value, t.err = answerOf[T](&t.f, t.call)
	} else {
		t.value, t.err = result[T](&t.f)
	}
	t.resolved = true
	return t.value, t.err
}

// AwaitTimeout is [Task.Await] for at most d. When d has passed, the error
// wraps [ErrTimeout]; the task goes on, and may be awaited again. A task that
// waits for an external event receives none in between.
//
// It creates a timer unless the task is complete. The timer stays when the
// task is first, and does not keep the orchestrator from returning.
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

// newTask returns a task for begin to make something of.
func newTask[T any](begin func(*replay.Future)) *Task[T] {
	t := new(Task[T])
	begin(&t.f)
	return t
}

// endedTask returns a task that is complete, with err or the zero value.
func endedTask[T any](ctx *Context, err error) *Task[T] {
	t := &Task[T]{resolved: true, err: err}
	ctx.x.Completed(&t.f)
	return t
}

// result returns what the event says that completed f.
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
