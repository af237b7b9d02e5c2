package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/crashes"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// completeTries is how often an activity's result is sent before the activity
// is handed back, to run once more.
const completeTries = 4

// fetchActivities hands out activities until the worker stops, at most
// MaxConcurrentActivities at once.
func (d *Dispatcher) fetchActivities(live lifetimes) {
	for {
		w, err := fetch(live.fetch, &d.activities, d.provider.NextActivity)
		if err != nil {
			if live.fetch.Err() != nil {
				return
			}
			pause(live.fetch, d.fetchingActivities.failed(err))
			continue
		}
		d.fetchingActivities.worked()
		what := fmt.Sprintf("activity %s of orchestration %s", w.Task.Name, w.Instance.InstanceID)
		work := crashes.Work("activity", w.Task.Name, w.Instance.ExecutionID, w.Task.EventID, w.Instance.InstanceID)
		d.handle(what, work, func(it *item) {
			defer d.activities.leave()
			d.runActivity(live, w, it.work)
		})
	}
}

// runActivity runs an activity and sends what came of it.
func (d *Dispatcher) runActivity(live lifetimes, w *provider.ActivityWorkItem, work string) {
	log := d.log.With("instanceId", w.Instance.InstanceID, "executionId", w.Instance.ExecutionID,
		"name", w.Task.Name, "taskEventId", w.Task.EventID)
	outcome, end := metering.Completed, d.config.Meter.Begin(metering.Activity, d.config.Now)
	defer func() { end(w.Task.Name, outcome) }()
	handed := false
	abandon := func(cause error) {
		handed, outcome = true, metering.Abandoned
		ctx, cancel := live.handBack()
		defer cancel()
		if err := w.Lock.Abandon(ctx, cause); err != nil {
			log.Warn("cannot hand the activity back", "error", err)
		}
	}
	defer func() {
		if v := recover(); v != nil {
			log.Error("panic while handling the activity", "panic", v, "stack", string(debug.Stack()))
			if !handed {
				abandon(fmt.Errorf("panic while handling the activity: %v", v))
			}
		}
	}()

	fn, ok := d.functions.Activity(w.Task.Name)
	aside := d.config.Crashes.Holds(work)
	if !ok || aside {
		unknown := &unknownFunctionError{kind: "activity", name: w.Task.Name, crashed: aside}
		if failure := d.failureOfUnknown(live.io, w, unknown, log); failure == nil {
			log.Log(live.io, d.waits(w.Instance.InstanceID, unknown), "activity is held back: "+unknown.why())
			abandon(d.config.unknown().hold(unknown, w.Task.Timestamp, true))
		} else if err := d.complete(live, w.Lock, taskResult{failure: failure}.event(w.Task.EventID, d.config.Now()), log); err != nil {
			abandon(fmt.Errorf("send result of activity: %w", err))
		} else {
			outcome = metering.Failed
			d.config.Waiting.remove(w.Instance.InstanceID, unknown.kind)
			d.noCrash(work)
		}
		return
	}
	if w.Attempt > 1 {
		d.config.Waiting.remove(w.Instance.InstanceID, "activity")
		log.Info("activity runs again, since an earlier run did not get to its end", "attempt", w.Attempt)
	}
	ctx, cancel := context.WithCancel(withActivityInfo(live.work, w))
	defer cancel()
	d.config.Meter.Waited(w.Task.Name, d.config.Now().Sub(w.Task.Timestamp))
	ctx, traced := d.config.Tracer.RunActivity(ctx, w.Task, w.Instance)
	r, ok := call(ctx, live.io, fn, w.Task.Input)
	traced(r.failure)
	switch {
	case !ok:
		log.Error("activity goes on although its context has ended; it is handed back")
		abandon(fmt.Errorf("%w, and the activity did not end", errStopping))
		return
	case r.failure != nil && live.work.Err() != nil:
		log.LogAttrs(ctx, slog.LevelInfo, "activity was interrupted; it is handed back", append(failureAttrs(r.failure), slog.String("event", "FunctionAborted"))...)
		abandon(fmt.Errorf("activity was interrupted: %w", context.Cause(live.work)))
		return
	case r.failure != nil:
		outcome = metering.Failed
		log.LogAttrs(ctx, slog.LevelWarn, "activity failed", append(failureAttrs(r.failure), slog.String("event", "FunctionFailed"))...)
	}
	if err := d.complete(live, w.Lock, r.event(w.Task.EventID, d.config.Now()), log); err != nil {
		abandon(fmt.Errorf("send result of activity: %w", err))
		return
	}
	d.noCrash(work)
}

// complete sends an activity's result, if need be several times.
func (d *Dispatcher) complete(live lifetimes, lock provider.ActivityLock, result history.Event, log *slog.Logger) error {
	for try := 1; ; try++ {
		err := lock.Complete(live.io, result)
		if err == nil {
			d.completing.worked()
			log.Debug("activity has ended", "event", "FunctionCompleted", "eventType", result.Type())
			return nil
		}
		wait := d.completing.failed(err)
		if try == completeTries || live.io.Err() != nil {
			return err
		}
		pause(live.io, wait)
	}
}

// A taskResult is what came of an activity.
type taskResult struct {
	output  *string
	failure *history.FailureDetails
}

// event returns the message that tells the orchestrator.
func (r taskResult) event(taskID int, at time.Time) history.Event {
	head := history.NewHeader(at)
	if r.failure == nil {
		return &history.TaskCompleted{Header: head, TaskScheduledID: taskID, Result: r.output}
	}
	return &history.TaskFailed{Header: head, TaskScheduledID: taskID, Reason: new(r.failure.ErrorMessage), Failure: r.failure}
}

// errGoexit says that an activity ended its goroutine.
var errGoexit = errors.New("the activity ended its goroutine with runtime.Goexit instead of returning")

// call runs an activity on a goroutine of its own, so that a panic or a Goexit
// ends that only. It does not wait longer than until patience ends; ok says
// whether the activity had ended by then.
func call(ctx, patience context.Context, fn func(context.Context, *string) (*string, error), input *string) (r taskResult, ok bool) {
	results := make(chan taskResult, 1)
	go func() { // waited for below, or left behind if it outlives patience
		r := taskResult{failure: replay.FailureOf(errGoexit)}
		defer func() { results <- r }()
		r = invoke(ctx, fn, input)
	}()
	select {
	case r := <-results:
		return r, true
	case <-patience.Done():
		return taskResult{}, false
	}
}

// invoke runs an activity. A panic becomes its failure.
func invoke(ctx context.Context, fn func(context.Context, *string) (*string, error), input *string) (r taskResult) {
	defer func() {
		if v := recover(); v != nil {
			r = taskResult{failure: replay.FailureOfPanic(v, debug.Stack())}
		}
	}()
	output, err := fn(ctx, input)
	if err != nil {
		return taskResult{failure: replay.FailureOf(err)}
	}
	return taskResult{output: output}
}
