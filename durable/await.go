package durable

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// AwaitAll waits until all tasks are complete and returns their values in the order of
// the tasks. The error joins the errors of all failed tasks, in the same order. The
// values of failed tasks are zero.
//
// A nil task fails the orchestration with a [UsageError].
func AwaitAll[T any](ctx *Context, tasks ...*Task[T]) ([]T, error) {
	if slices.Contains(tasks, nil) {
		ctx.x.Refuse("AwaitAll", "durable: AwaitAll was given a nil task")
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
// The other tasks continue and may be awaited later. A task that waits for an external
// event and was not first receives no event until it is awaited again. It therefore takes
// no event from other tasks. An event that arrives in the meantime is buffered for the
// next Wait.
//
// A call without tasks, or with a nil task, fails the orchestration with a
// [UsageError].
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
