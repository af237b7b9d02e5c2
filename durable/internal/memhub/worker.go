package memhub

import (
	"context"
	"errors"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Worker is a worker of a hub.
type Worker struct {
	hub   *Hub
	since time.Time // the time of its creation

	// DrainTimeout limits how long Run waits for work in flight after its context has ended.
	// Default 20 s. Set it before Run.
	DrainTimeout time.Duration

	// The hub's mu protects the fields below.
	running    bool
	killed     bool
	sessions   map[*session]struct{}
	activities map[*activity]struct{}
}

var _ provider.Worker = (*Worker)(nil)

// errKilled is returned by calls of a killed worker.
var errKilled = errors.New("worker was killed")

// killedLockTimeout is the time until the locks of a killed worker expire.
const killedLockTimeout = 30 * time.Second

// Run implements provider.Worker.
func (w *Worker) Run(ctx context.Context) error {
	w.set(true)
	<-ctx.Done()
	w.set(false)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.DrainTimeout)
	defer cancel()
	// An error means that the drain timeout is over.
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

// Kill simulates a crash of the worker's process: its calls no longer have any effect. Its work
// is redelivered after 30 s.
func (w *Worker) Kill() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	w.killed = true
	w.revoke(killedLockTimeout)
}

// revoke releases the worker's locks. Its work becomes visible after a delay. The caller holds
// mu.
func (w *Worker) revoke(delay time.Duration) {
	for s := range w.sessions {
		s.revoke(delay)
	}
	for a := range w.activities {
		a.m.inFlight = false
		a.m.visible = w.hub.Now().Add(delay)
		a.revoked = true
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

// TryOrchestration returns the next work item without waiting; Run need not run. Without a work
// item it returns when to try again, or zero if only a change of the hub can provide one.
func (w *Worker) TryOrchestration() (item *provider.OrchestrationWorkItem, again time.Time) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.hub.nextOrchestration(w)
}

// TryActivity returns the next activity like [Worker.TryOrchestration].
func (w *Worker) TryActivity() (item *provider.ActivityWorkItem, again time.Time) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.hub.nextActivity(w)
}

// next calls take, while the worker runs, until it succeeds: immediately, after every change,
// and at the time that take returned.
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

// Instance returns an instance's state, like [Hub.Instance].
func (w *Worker) Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	return w.hub.Instance(ctx, id, fetch)
}
