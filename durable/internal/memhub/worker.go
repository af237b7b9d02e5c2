package memhub

import (
	"context"
	"errors"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Worker is one of a hub's workers.
type Worker struct {
	hub   *Hub
	since time.Time // when it was made

	// DrainTimeout is how long Run waits at its end for work in flight. Default 20 s.
	// Change it before Run.
	DrainTimeout time.Duration

	// The hub's mu protects the following.
	running    bool
	killed     bool
	sessions   map[*session]struct{}
	activities map[*activity]struct{}
}

var _ provider.Worker = (*Worker)(nil)

// errKilled is the error of calls of a killed worker.
var errKilled = errors.New("worker was killed")

// lockedFor is how long the work of a killed worker stays locked.
const lockedFor = 30 * time.Second

// Run implements provider.Worker.
func (w *Worker) Run(ctx context.Context) error {
	w.set(true)
	<-ctx.Done()
	w.set(false)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.DrainTimeout)
	defer cancel()
	// An error means that the time is up.
	if err := w.hub.await(drain, func() (bool, time.Time) {
		return w.killed || len(w.sessions)+len(w.activities) == 0, time.Time{}
	}); err != nil {
		w.hub.mu.Lock()
		defer w.hub.mu.Unlock()
		w.revoke(0)
	}
	return nil
}

func (w *Worker) set(running bool) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	w.running = running
	w.hub.notify()
}

// Kill cuts the worker off, as if its process had crashed: its calls have no effect
// any more. Its work is delivered again after its locks have expired.
func (w *Worker) Kill() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	w.killed = true
	w.revoke(lockedFor)
}

// revoke takes the worker's locks, and makes its work visible after a delay. The
// caller holds mu.
func (w *Worker) revoke(delay time.Duration) {
	for s := range w.sessions {
		s.revoke(delay)
	}
	for a := range w.activities {
		a.m.inFlight = false
		a.m.visible = w.hub.Now().Add(delay)
		a.lost = true
		delete(w.activities, a)
	}
	w.hub.notify()
}

// NextOrchestration implements provider.Worker.
func (w *Worker) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	var item *provider.OrchestrationWorkItem
	err := w.next(ctx, func() (bool, time.Time) {
		var next time.Time
		item, next = w.hub.nextOrchestration(w)
		return item != nil, next
	})
	return item, err
}

// NextActivity implements provider.Worker.
func (w *Worker) NextActivity(ctx context.Context) (*provider.ActivityWorkItem, error) {
	var item *provider.ActivityWorkItem
	err := w.next(ctx, func() (bool, time.Time) {
		var next time.Time
		item, next = w.hub.nextActivity(w)
		return item != nil, next
	})
	return item, err
}

// TryOrchestration is NextOrchestration without waiting, and without Run. If there
// is no work item it returns when to try again, zero if only another change can make
// one.
func (w *Worker) TryOrchestration() (item *provider.OrchestrationWorkItem, again time.Time) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.hub.nextOrchestration(w)
}

// TryActivity is NextActivity without waiting, as [Worker.TryOrchestration] is.
func (w *Worker) TryActivity() (item *provider.ActivityWorkItem, again time.Time) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.hub.nextActivity(w)
}

// next waits until take succeeds. It calls take while the worker runs, at every
// change and at the time that take returned.
func (w *Worker) next(ctx context.Context, take func() (bool, time.Time)) error {
	var failure error
	err := w.hub.await(ctx, func() (bool, time.Time) {
		if w.killed || !w.running {
			return false, time.Time{}
		}
		if w.hub.happens(FetchFails) {
			failure = ErrInjected
			return true, time.Time{}
		}
		return take()
	})
	return errors.Join(err, failure)
}

// Instance returns what the hub knows of an instance, as [Hub.Instance] does.
func (w *Worker) Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	return w.hub.Instance(ctx, id, fetch)
}
