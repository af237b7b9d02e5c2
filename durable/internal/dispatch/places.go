package dispatch

import (
	"context"
	"sync/atomic"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
)

// places bound how much of one kind is worked on at once. One of them is for what is
// being fetched.
type places struct {
	taken    chan struct{}
	fetching atomic.Bool
}

// fetch takes a place for what next fetches, as soon as there is one. It keeps the place
// unless there is an error.
func fetch[T any](ctx context.Context, p *places, next func(context.Context) (T, error)) (item T, err error) {
	select {
	case p.taken <- struct{}{}:
	case <-ctx.Done():
		return item, context.Cause(ctx)
	}
	p.fetching.Store(true)
	defer p.fetching.Store(false)
	if item, err = next(ctx); err != nil {
		p.leave()
	}
	return item, err
}

func (p *places) leave() { <-p.taken }

// inUse counts those that something is worked on in.
func (p *places) inUse() int {
	n := len(p.taken)
	if p.fetching.Load() {
		n--
	}
	return n
}

// inUse counts what is given back once nothing is worked on.
func (d *Dispatcher) inUse() inuse.Counts {
	d.mu.Lock()
	running := len(d.running)
	d.mu.Unlock()
	return inuse.Counts{
		"items that are worked on": running, "places of orchestrations": d.orchestrations.inUse(), "places of activities": d.activities.inUse(),
		"places of entities": len(d.entities), "entities that wait for a place": len(d.waiting),
		"extended sessions": len(d.extended), "extended sessions of entities": len(d.extendedEntities),
	}
}
