package partitionlog

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// worker passes work items from the owned partitions to the dispatcher.
type worker struct {
	orchestrations chan *provider.OrchestrationWorkItem
	activities     chan *provider.ActivityWorkItem

	idle atomic.Int32 // waiting calls of NextActivity

	state   sync.Mutex // protects the fields below
	running context.Context
}

func newWorker() worker {
	return worker{orchestrations: make(chan *provider.OrchestrationWorkItem), activities: make(chan *provider.ActivityWorkItem)}
}

// isRunning reports whether Run is running and its context has not ended.
func (w *worker) isRunning() bool {
	w.state.Lock()
	defer w.state.Unlock()
	return w.running != nil && w.running.Err() == nil
}

// begin records that Run has started with ctx. It fails if Run is running already.
func (w *worker) begin(ctx context.Context) error {
	w.state.Lock()
	defer w.state.Unlock()
	if w.running != nil {
		return errors.New("task hub is running already")
	}
	w.running = ctx
	return nil
}

// ended records that Run has returned.
func (w *worker) ended() {
	w.state.Lock()
	defer w.state.Unlock()
	w.running = nil
}

// NextOrchestration implements [provider.Worker].
func (w *worker) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	return next(ctx, w.orchestrations)
}

// NextActivity implements [provider.Worker].
func (w *worker) NextActivity(ctx context.Context) (*provider.ActivityWorkItem, error) {
	w.idle.Add(1)
	defer w.idle.Add(-1)
	return next(ctx, w.activities)
}

func next[T any](ctx context.Context, items chan T) (item T, err error) {
	if err := ctx.Err(); err != nil {
		return item, err
	}
	select {
	case item = <-items:
		return item, nil
	case <-ctx.Done():
		return item, ctx.Err()
	}
}
