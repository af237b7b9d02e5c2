package dispatch

import (
	"context"
	"sync/atomic"
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
