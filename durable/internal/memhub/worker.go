package memhub

import (
	"context"
	"errors"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A Worker is one of a hub's workers.
type Worker struct {
	hub   *Hub
	since time.Time // when it was made

	// DrainTimeout is how long Run waits at its end for what was handed out. It
	// is 20 s unless it is changed before Run.
	DrainTimeout time.Duration

	// The hub's mu protects the following.
	running    bool
	killed     bool
	sessions   map[*session]struct{}
	activities map[*activity]struct{}
}

var _ provider.Worker = (*Worker)(nil)

// errKilled is what a killed worker's calls fail with.
var errKilled = errors.New("worker was killed")

// lockedFor is how long what a killed worker had stays locked.
const lockedFor = 30 * time.Second

// NewWorker returns another worker of the hub.
func (h *Hub) NewWorker() *Worker {
	return &Worker{
		hub:          h,
		since:        h.Now(),
		DrainTimeout: 20 * time.Second,
		sessions:     make(map[*session]struct{}),
		activities:   make(map[*activity]struct{}),
	}
}

// Run implements provider.Worker.
func (w *Worker) Run(ctx context.Context) error {
	w.set(true)
	<-ctx.Done()
	w.set(false)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.DrainTimeout)
	defer cancel()
	// An error means that the time is up: then others get what is left.
	if err := w.hub.await(drain, func() (bool, time.Time) {
		return w.killed || len(w.sessions)+len(w.activities) == 0, time.Time{}
	}); err != nil {
		w.hub.mu.Lock()
		defer w.hub.mu.Unlock()
		w.lose(0)
	}
	return nil
}

func (w *Worker) set(running bool) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	w.running = running
	w.hub.notify()
}

// Kill cuts the worker off, as if its process had died: nothing that it does
// has an effect any more. What it had comes back after its locks have run out.
func (w *Worker) Kill() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	w.killed = true
	w.lose(lockedFor)
}

// lose takes from the worker what it has, and makes it visible to others after
// a delay. The caller holds mu.
func (w *Worker) lose(delay time.Duration) {
	for s := range w.sessions {
		s.take(delay)
	}
	for a := range w.activities {
		a.m.held = false
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

// TryOrchestration is NextOrchestration that does not wait, whether Run is
// called or not. If there is nothing it returns when to look again, zero if
// there is no use before something else happens.
func (w *Worker) TryOrchestration() (item *provider.OrchestrationWorkItem, again time.Time) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.hub.nextOrchestration(w)
}

// TryActivity is NextActivity that does not wait, as [Worker.TryOrchestration]
// does not.
func (w *Worker) TryActivity() (item *provider.ActivityWorkItem, again time.Time) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.hub.nextActivity(w)
}

// next waits until take takes something. Take is called only while the worker
// runs, and says when to look again if nothing happens before.
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
