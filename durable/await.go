package durable

import (
	"context"
	"errors"
	"iter"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// AwaitAll waits until all tasks are complete, and returns their values in the
// order of the tasks. The error joins those of all tasks that failed, in the
// same order; their values are zero.
func AwaitAll[T any](tasks ...*Task[T]) ([]T, error) {
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

// AwaitAny waits until one of the tasks is complete, and returns the one that
// was first. Its Await then returns at once:
//
//	switch durable.AwaitAny(ctx, approval, deadline) {
//	case approval:
//		decision, err := approval.Await()
//
// The other tasks go on and may be awaited later. A task that waits for an
// external event and was not first receives none until it is awaited again, so
// that it takes no event away from others; an event that comes in between is
// kept for the next Wait.
func AwaitAny(ctx *Context, tasks ...Awaitable) Awaitable {
	futures := make([]*replay.Future, len(tasks))
	for i, t := range tasks {
		if t == nil {
			ctx.x.Refuse("AwaitAny", "durable: AwaitAny was given a nil task")
		}
		futures[i] = t.future()
	}
	return tasks[ctx.x.AwaitAny(futures)]
}

// AsCompleted returns the tasks in the order in which they complete, and waits
// for each. It ends when all were returned. If the loop is left before that,
// the other tasks are as those that were not first in [AwaitAny].
//
//	for t := range durable.AsCompleted(ctx, tasks...) {
//		v, err := t.Await() // complete
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

// Map calls an activity for each input, at most limit at a time, and returns
// the results in the order of the inputs. A limit of zero or less is none. As in
// [AwaitAll], all of them are called, whether some fail or not, and the error
// joins those of all that failed.
func Map[I, O any](ctx *Context, activity func(context.Context, I) (O, error), in []I, limit int, opts ...ActivityOption) ([]O, error) {
	tasks := make([]*Task[O], len(in))
	begin := func(i int) { tasks[i] = CallActivity(ctx, activity, in[i], opts...) }
	if limit <= 0 || limit >= len(in) {
		for i := range in {
			begin(i)
		}
		return AwaitAll(tasks...)
	}
	c := ctx.x.Collect(nil)
	defer c.Stop()
	for i := range in {
		if i >= limit {
			c.Next()
		}
		begin(i)
		c.Add(tasks[i].future())
	}
	return AwaitAll(tasks...)
}

// Go runs f as a branch of the orchestrator, and returns its result as a task.
// Branches take turns, in an order that is the same in every replay: one runs
// until it awaits something. They may therefore share variables without locks.
//
// A branch begins when the caller next awaits something. When the orchestrator
// returns, its branches end where they wait. A panic in a branch fails the
// orchestration.
func Go[T any](ctx *Context, f func() (T, error)) *Task[T] {
	t := new(Task[T])
	ctx.x.Branch(&t.f, func() {
		t.value, t.err = f()
		t.resolved = true
	})
	return t
}
