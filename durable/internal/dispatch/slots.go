package dispatch

import (
	"context"
	"sync/atomic"
)

// slots limits the number of items of one kind that run at the same time. Fetching an item also
// takes a slot.
type slots struct {
	taken    chan struct{}
	fetching atomic.Bool
	idle     idle // sessions that keep their slot
}

// fetch acquires a slot and calls next. If next fails, it releases the slot. Only one goroutine
// calls it with p.
func fetch[T any](ctx context.Context, p *slots, next func(context.Context) (T, error)) (item T, err error) {
	select {
	case p.taken <- struct{}{}:
	default:
		p.idle.endOne()
		if !acquire(ctx, p.taken) {
			return item, context.Cause(ctx)
		}
		p.idle.withdraw()
	}
	p.fetching.Store(true)
	defer p.fetching.Store(false)
	if item, err = next(ctx); err != nil {
		p.release()
	}
	return item, err
}

// acquire waits for a free slot and acquires it. It returns false if ctx ends first. If ctx has
// ended before the call, it returns false even if a slot is free.
func acquire(ctx context.Context, free chan<- struct{}) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case free <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *slots) release() { <-p.taken }

// inUse counts the slots of running items.
func (p *slots) inUse() int {
	n := len(p.taken)
	if p.fetching.Load() {
		n--
	}
	return n
}
