package dispatch

import (
	"context"
	"errors"
	"runtime"
)

// A StepFunc is the type of [replay.RunStep]'s Func. It returns the result as JSON text. It may panic.
// The function of a poll returns [ErrPollAgain] until it is done.
type StepFunc func(context.Context) (*string, error)

// ErrPollAgain means that a poll is not done: its function must be called again.
var ErrPollAgain = errors.New("the poll is not done")

// errStepGoexit is the failure of a step that called runtime.Goexit.
var errStepGoexit = errors.New("the step ended its goroutine with runtime.Goexit instead of returning")

// invokeStep calls the function of a step. It reports whether the step is a poll that is not done.
//
//go:noinline
func invokeStep(ctx context.Context, f StepFunc) (r taskResult, again bool) {
	r = invoke(ctx, func(ctx context.Context, _ *string) (*string, error) {
		output, err := f(ctx)
		if again = errors.Is(err, ErrPollAgain); again {
			return nil, nil
		}
		return output, err
	}, nil)
	return r, again
}

// stepFrame is the name of invokeStep in a stack.
const stepFrame = "github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch.invokeStep"

// InStep reports whether the caller runs on the goroutine of a step.
func InStep() bool {
	for size := 256; ; size *= 2 {
		pcs := make([]uintptr, size)
		n := runtime.Callers(2, pcs)
		for frames := runtime.CallersFrames(pcs[:n]); ; {
			frame, more := frames.Next()
			if frame.Function == stepFrame {
				return true
			}
			if !more {
				break
			}
		}
		if n < size {
			return false
		}
	}
}
