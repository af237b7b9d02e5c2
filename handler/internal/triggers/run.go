package triggers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// grace is the most that a function may go on after its context has ended.
const grace = 2 * time.Second

// Run runs fn, the Go function of the named one, for at most limit. A function that panics
// has failed. So has one that does not return soon after its context ended: Run leaves it
// running, since nothing can end it, and returns before the host kills the program
// (azure-functions-host: WebHost/WebScriptHostExceptionHandler.cs).
func Run(ctx context.Context, name string, limit time.Duration, log *slog.Logger, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("function %s has run for %v, which is its limit", name, limit))
	defer cancel()
	done := make(chan error, 1)
	go func() { // waited for below, unless it does not end
		err := errGoexit
		defer func() { done <- err }()
		err = guard(ctx, log, fn)
	}()
	select {
	case err := <-done:
		return withCauseOf(ctx, err)
	case <-ctx.Done():
	}
	patience := time.NewTimer(min(grace, limit/10))
	defer patience.Stop()
	select {
	case err := <-done:
		return withCauseOf(ctx, err)
	case <-patience.C:
		return fmt.Errorf("%w, and does not end: a function must return when its context ends", context.Cause(ctx))
	}
}

// errGoexit is the error of a function that ended its goroutine instead of returning.
var errGoexit = errors.New("the function ended its goroutine with runtime.Goexit")

// withCauseOf adds the cause of ctx's end to the error of an ended context.
func withCauseOf(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// guard calls fn. It logs a panic with its stack and returns it as an error.
func guard(ctx context.Context, log *slog.Logger, fn func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("a function panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return fn(ctx)
}
