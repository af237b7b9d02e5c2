package dispatch

import (
	"context"
	"sync/atomic"
)

// places limit how many items of one kind run at once. To fetch an item takes a
// place, too.
type places struct {
	taken    chan struct{}
	fetching atomic.Bool
	idle     idle // sessions that keep their place
}

// fetch waits for a place and calls next. It gives the place back if next fails. Only
// one goroutine fetches into p.
func fetch[T any](ctx context.Context, p *places, next func(context.Context) (T, error)) (item T, err error) {
	select {
	case p.taken <- struct{}{}:
	default:
		p.idle.giveWay()
		if !acquire(ctx, p.taken) {
			return item, context.Cause(ctx)
		}
		p.idle.satisfied()
	}
	p.fetching.Store(true)
	defer p.fetching.Store(false)
	if item, err = next(ctx); err != nil {
		p.leave()
	}
	return item, err
}

// acquire waits for a free place and takes it. It returns false once ctx has ended, also while a
// place is free.
func acquire(ctx context.Context, places chan<- struct{}) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *places) leave() { <-p.taken }

// inUse counts the places of items that run.
func (p *places) inUse() int {
	n := len(p.taken)
	if p.fetching.Load() {
		n--
	}
	return n
}
