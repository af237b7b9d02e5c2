package durable

import (
	"context"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// ActivityOption configures the call of an activity. [RetryPolicy] and [Tags] implement
// it.
type ActivityOption interface{ applyActivity(*activityOptions) }

type activityOptions struct {
	retry *RetryPolicy
	tags  map[string]string
}

// CallActivity schedules an activity, which must be registered, with the input in. If
// the activity fails, the task's error is a *[TaskFailedError].
//
// If the input cannot be encoded, the activity is not registered or an option is
// invalid, nothing is scheduled. The returned task has then already completed with the
// error.
func CallActivity[I, O any](ctx *Context, activity func(context.Context, I) (O, error), in I, opts ...ActivityOption) *Task[O] {
	f, err := ctx.registry.functionOf(activityKind, activity)
	if err != nil {
		return completedTask[O](ctx, err)
	}
	return callActivity[O](ctx, f.name, in, opts)
}

// ActivityName is the wire name of an activity with the input type I and the output
// type O. Use it to call an activity that another program implements:
//
//	const Ship = durable.ActivityName[Order, Receipt]("Ship")
type ActivityName[I, O any] string

// Call schedules the activity with the input in. It behaves like [CallActivity].
func (n ActivityName[I, O]) Call(ctx *Context, in I, opts ...ActivityOption) *Task[O] {
	return callActivity[O](ctx, string(n), in, opts)
}

func callActivity[O any](ctx *Context, name string, in any, opts []ActivityOption) *Task[O] {
	ctx.x.ReportProgress()
	input, err := encodeArgument(in)
	if err != nil {
		return completedTask[O](ctx, fmt.Errorf("encode input of activity %s: %w", name, err))
	}
	if len(opts) == 0 {
		return newTask[O](func(f *replay.Future) { ctx.x.ScheduleTask(f, name, input) })
	}
	var o activityOptions
	for _, opt := range opts {
		opt.applyActivity(&o)
	}
	return withRetries[O](ctx, o.retry, func(f *replay.Future) {
		ctx.x.ScheduleTaskWith(f, &replay.ScheduleTask{Name: name, Version: string(ctx.Version()), Input: input, Tags: o.tags})
	})
}

// ActivityInfo describes the current run of an activity or a [Step]. Use it for log
// messages or to recognize repeated runs.
type ActivityInfo struct {
	InstanceID InstanceID // the orchestration that called the activity
	Name       string     // the registered name
	// TaskID is the number of the call among the orchestration's actions, from 0. For a
	// step it is the number of the first attempt.
	TaskID int
	// Attempt is the number of the run, from 1. For an activity it is above 1 if an
	// earlier run did not finish; a RetryPolicy makes new calls. For a step it counts the
	// attempts that RetryPolicy and Tries make.
	Attempt int
	Version Version // the version of the orchestration
	Tags    Tags    // the tags of the call
	// IdempotencyKey identifies the call in all hubs. It is the same for all runs of an
	// activity's call, and for all attempts at a step, also after a crash or a rewind.
	// Pass it to services that recognize repeated requests.
	IdempotencyKey string
}

// ActivityInfoFrom returns the ActivityInfo of the context of an activity or a step. For other
// contexts ok is false.
func ActivityInfoFrom(ctx context.Context) (info ActivityInfo, ok bool) {
	i, ok := dispatch.ActivityInfoFrom(ctx)
	return ActivityInfo{
		InstanceID: InstanceID(i.Instance.InstanceID), Name: i.Name, TaskID: i.TaskID, Attempt: i.Attempt,
		Version: Version(i.Version), Tags: i.Tags, IdempotencyKey: fmt.Sprintf("%s-%d", i.Instance.ExecutionID, i.TaskID),
	}, ok
}
