package azurestorage

import (
	"context"
	"sync"
)

// AwaitEnd implements [provider.Awaiter]. It notices the ends that this process
// writes; those of other workers it does not.
func (h *TaskHub) AwaitEnd(ctx context.Context, id string) error { return h.endings.await(ctx, id) }

// maxRecentEndings is how many ends that nobody awaited are remembered.
const maxRecentEndings = 1024

// endings tells those who wait of instances that have ended.
type endings struct {
	mu      sync.Mutex // protects the following
	awaited map[string][]chan struct{}
	// recent holds ends for somebody who has just asked and is about to wait.
	// Each is told once.
	recent map[string]bool
	order  []string // of recent, the oldest first
}

// tell tells that an instance has ended.
func (e *endings) tell(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if waiting := e.awaited[id]; len(waiting) > 0 {
		for _, told := range waiting {
			close(told)
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

// await waits until an instance has ended or ctx has.
func (e *endings) await(ctx context.Context, id string) error {
	e.mu.Lock()
	if e.recent[id] {
		delete(e.recent, id)
		e.mu.Unlock()
		return nil
	}
	told := make(chan struct{})
	if e.awaited == nil {
		e.awaited = map[string][]chan struct{}{}
	}
	e.awaited[id] = append(e.awaited[id], told)
	e.mu.Unlock()
	select {
	case <-told:
		return nil
	case <-ctx.Done():
	}
	e.forget(id, told)
	return ctx.Err()
}

// forget removes one who waits no longer.
func (e *endings) forget(id string, told chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := e.awaited[id][:0]
	for _, other := range e.awaited[id] {
		if other != told {
			kept = append(kept, other)
		}
	}
	if len(kept) == 0 {
		delete(e.awaited, id)
		return
	}
	e.awaited[id] = kept
}
