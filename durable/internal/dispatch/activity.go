package dispatch

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// completeTries is the number of attempts to send an activity's result. After that the activity
// is abandoned, and runs again.
const completeTries = 4

// Up to maxResults activities release their slot before their result is stored, so that other
// activities can run. Their results are held in memory, so each has at most maxSmallResult
// bytes.
const (
	maxResults     = 1000
	maxSmallResult = 16 << 10
)

// A taskResult is the result of an activity.
type taskResult struct {
	output  *string
	failure *history.FailureDetails
}

// isSmall reports whether the slot may be released before the result is stored.
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

// errGoexit is the failure of an activity that called runtime.Goexit.
var errGoexit = errors.New("the activity ended its goroutine with runtime.Goexit instead of returning")

// call runs an activity on a goroutine of its own, so that a panic or a Goexit ends only this
// goroutine. It waits for the activity until patience ends. It returns ok == false if the
// activity is still running then.
func call(ctx, patience context.Context, fn func(context.Context, *string) (*string, error), input *string) (r taskResult, ok bool) {
	results := make(chan taskResult, 1)
	go func() { // may outlive this call if patience ends
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

// invoke runs an activity and converts a panic to a failure.
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
