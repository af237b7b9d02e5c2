package azurestorage

import (
	"context"
	"slices"
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// maxRecentEndings is the maximum number of remembered ends without a waiter.
const maxRecentEndings = 1024

// endings notifies waiters of the ends of instances.
type endings struct {
	mu      sync.Mutex // protects the following
	awaited map[string][]chan *provider.InstanceState
	// recent holds the ends that no waiter was notified of, for a caller that has just read the
	// status and is about to wait. Each end notifies one waiter.
	recent map[string]bool
	order  []string // the keys of recent, the oldest first
}

// announce notifies all waiters of an instance that it has ended. state is its final state, or nil
// if that is not known.
func (e *endings) announce(id string, state *provider.InstanceState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if waiting := e.awaited[id]; len(waiting) > 0 {
		for _, notify := range waiting {
			notify <- copyOf(state) // the buffer has one place, and each channel receives one value
		}
		delete(e.awaited, id)
		return
	}
	if e.recent == nil {
		e.recent = map[string]bool{}
	}
	if !e.recent[id] {
		e.recent[id] = true
		e.order = append(e.order, id)
	}
	for len(e.order) > maxRecentEndings {
		delete(e.recent, e.order[0])
		e.order = e.order[1:]
	}
}

func copyOf(state *provider.InstanceState) *provider.InstanceState {
	if state == nil {
		return nil
	}
	return new(*state)
}

// await waits until an instance ends or ctx ends. It returns immediately if the end was announced
// already or if willBeAnnounced returns false. It returns the final state of the instance, or nil
// if that is not known.
func (e *endings) await(ctx context.Context, id string, willBeAnnounced func() bool) (*provider.InstanceState, error) {
	e.mu.Lock()
	if e.recent[id] {
		delete(e.recent, id)
		e.mu.Unlock()
		return nil, nil
	}
	ended := make(chan *provider.InstanceState, 1)
	if e.awaited == nil {
		e.awaited = map[string][]chan *provider.InstanceState{}
	}
	e.awaited[id] = append(e.awaited[id], ended)
	e.mu.Unlock()
	if !willBeAnnounced() { // called after the waiter is registered, so that it misses no end
		e.forget(id, ended)
		return nil, nil
	}
	select {
	case state := <-ended:
		return state, nil
	case <-ctx.Done():
	}
	e.forget(id, ended)
	return nil, ctx.Err()
}

// forget removes a waiter.
func (e *endings) forget(id string, ended chan *provider.InstanceState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := slices.DeleteFunc(e.awaited[id], func(other chan *provider.InstanceState) bool { return other == ended })
	if len(kept) == 0 {
		delete(e.awaited, id)
		return
	}
	e.awaited[id] = kept
}

func (e *endings) count(all inuse.Counts) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, waiting := range e.awaited {
		all["waiters for the end of an instance"] += len(waiting)
	}
}
