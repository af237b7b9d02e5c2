package dispatch

import (
	"context"
	"sync"
	"time"
)

// lifetimes holds the contexts of a worker's run, in the order in which they end.
type lifetimes struct {
	fetch context.Context // ends when the worker stops
	work  context.Context // for user code; ends ShutdownTimeout later
	io    context.Context // for storage operations; ends ioGrace after work
}

// delayed returns a context that ends d after parent ends.
func delayed(parent context.Context, d time.Duration) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	var mu sync.Mutex
	var timer *time.Timer
	unhook := context.AfterFunc(parent, func() {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() == nil {
			timer = time.AfterFunc(d, func() { cancel(errStopping) })
		}
	})
	return ctx, func() {
		unhook()
		cancel(errStopping)
		mu.Lock()
		defer mu.Unlock()
		if timer != nil {
			timer.Stop()
		}
	}
}

// abandonContext returns a context to abandon or release a work item after the other contexts
// have ended.
func (l lifetimes) abandonContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(l.io), abandonTime)
}
