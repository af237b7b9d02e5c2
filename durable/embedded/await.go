package embedded

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// AwaitEnd waits until an instance has ended, and returns at once if it has or
// if it is not known. Unlike who asks for its status again and again, it is
// told. An instance that is purged or started anew has ended too.
func (h *Hub) AwaitEnd(ctx context.Context, id string) error {
	told := make(chan struct{})
	h.mu.Lock()
	if h.awaited[id] == nil {
		h.awaited[id] = make(map[chan struct{}]struct{})
	}
	h.awaited[id][told] = struct{}{}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.awaited[id], told)
		if len(h.awaited[id]) == 0 {
			delete(h.awaited, id)
		}
	}()
	// Looked at only now: an end that comes after this is told.
	s, err := h.Instance(ctx, id, provider.Fetch{})
	if err != nil || s.Status.IsTerminal() {
		return err
	}
	select {
	case <-told:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-h.closing:
		return ErrClosed
	}
}

// tell tells those who await an instance's end. mu is locked.
func (h *Hub) tell(id string) {
	for told := range h.awaited[id] {
		close(told)
	}
	delete(h.awaited, id)
}
