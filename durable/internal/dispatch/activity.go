package dispatch

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// completeTries is how often an activity's result is sent before the activity
// is handed back, to run once more.
const completeTries = 4

// At most maxResults activities give their place back before their result is stored, so
// that the next ones run meanwhile. Their results are in memory, so each has at most
// maxSmallResult bytes.
const (
	maxResults     = 1000
	maxSmallResult = 16 << 10
)

// A taskResult is what came of an activity.
type taskResult struct {
	output  *string
	failure *history.FailureDetails
}

// isSmall reports whether many results like it may be in memory.
func (r taskResult) isSmall() bool {
	return r.failure == nil && (r.output == nil || len(*r.output) <= maxSmallResult)
}

// event returns the event that carries the result to the orchestrator.
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
// ends that only. It stops waiting when patience ends; ok reports whether the
// activity had ended by then.
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
