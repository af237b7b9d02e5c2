package azurestorage

import (
	"context"
	"slices"
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// maxRecentEndings is how many ends that nobody awaited are remembered.
const maxRecentEndings = 1024

// endings tells those who wait of instances that have ended.
type endings struct {
	mu      sync.Mutex // protects the following
	awaited map[string][]chan *provider.InstanceState
	// recent holds ends for somebody who has just asked and is about to wait.
	// Each is told once.
	recent map[string]bool
	order  []string // of recent, the oldest first
}

// tell tells that an instance has ended, and how if that is known.
func (e *endings) announce(id string, state *provider.InstanceState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if waiting := e.awaited[id]; len(waiting) > 0 {
		for _, told := range waiting {
			told <- copyOf(state) // there is room, and each gets one
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

// await waits until an instance has ended or ctx has, unless the end is known
// already or will not be told of. It returns how the instance ended, if that is
// known.
func (e *endings) await(ctx context.Context, id string, willBeTold func() bool) (*provider.InstanceState, error) {
	e.mu.Lock()
	if e.recent[id] {
		delete(e.recent, id)
		e.mu.Unlock()
		return nil, nil
	}
	told := make(chan *provider.InstanceState, 1)
	if e.awaited == nil {
		e.awaited = map[string][]chan *provider.InstanceState{}
	}
	e.awaited[id] = append(e.awaited[id], told)
	e.mu.Unlock()
	if !willBeTold() { // looked at only now: an end that comes after this is told
		e.forget(id, told)
		return nil, nil
	}
	select {
	case state := <-told:
		return state, nil
	case <-ctx.Done():
	}
	e.forget(id, told)
	return nil, ctx.Err()
}

// forget removes one who waits no longer.
func (e *endings) forget(id string, told chan *provider.InstanceState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := slices.DeleteFunc(e.awaited[id], func(other chan *provider.InstanceState) bool { return other == told })
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
		all["who await an end"] += len(waiting)
	}
}
