package dispatch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// slots limits the number of items of one kind that run at the same time. Fetching an item also
// takes a slot.
type slots struct {
	taken    chan struct{}
	fetching atomic.Bool
	idle     idle // sessions that keep their slot

	mu       sync.Mutex         // protects the following
	waiting  int                // calls of enter that wait
	stopWait context.CancelFunc // makes fetch release its slot while no item is available; nil if it does not wait
}

// fetch acquires a slot and calls next, which waits for an item until wait ends. If next fails, fetch
// releases the slot. Only one goroutine may call it for p.
func fetch[T any](ctx context.Context, p *slots, next func(ctx, wait context.Context) (T, error)) (item T, err error) {
	for {
		atOnce := ctx.Err() == nil && p.tryEnter()
		if !atOnce && !p.enter(ctx) {
			return item, context.Cause(ctx)
		}
		wait, stop := context.WithCancel(ctx)
		p.setStopWait(stop, atOnce)
		p.fetching.Store(true)
		item, err = next(ctx, wait)
		p.fetching.Store(false)
		p.setStopWait(nil, false)
		yields := wait.Err() != nil && ctx.Err() == nil
		stop()
		if err == nil {
			return item, nil
		}
		p.release()
		if !yields {
			return item, err
		}
	}
}

// setStopWait sets stopWait. If calls of enter wait, stop is called after yieldInterval, or immediately if
// fetch got its slot at once: then these calls are newer.
func (p *slots) setStopWait(stop context.CancelFunc, atOnce bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.stopWait = stop; {
	case stop == nil || p.waiting == 0:
	case atOnce:
		stop()
	default:
		time.AfterFunc(yieldInterval, stop)
	}
}

// yieldInterval is the time for which fetch keeps its slot without an item while enter waits.
const yieldInterval = 100 * time.Millisecond

// enter acquires a slot for fetch, for a step, or for a session that has released its slot. If all slots
// are taken, it ends an idle session, and makes fetch release its slot while no item is available. It
// returns false if ctx ends first.
func (p *slots) enter(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	if p.tryEnter() {
		return true
	}
	p.idle.endOne()
	p.wait(1)
	defer p.wait(-1)
	return acquire(ctx, p.taken)
}

// tryEnter acquires a slot if one is free.
func (p *slots) tryEnter() bool {
	select {
	case p.taken <- struct{}{}:
		return true
	default:
		return false
	}
}

// wait adds n to the number of waiting calls of enter. A new call makes fetch release its slot while no item
// is available. When no call waits any more, wait withdraws the requests to end idle sessions.
func (p *slots) wait(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting += n
	switch {
	case p.waiting == 0:
		p.idle.withdraw()
	case n > 0 && p.stopWait != nil:
		p.stopWait()
	}
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
