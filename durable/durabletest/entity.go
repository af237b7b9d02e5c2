package durabletest

import (
	"errors"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/explain"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Signal sends an operation to an entity, as [durable.Signal] does, and runs all work that is due at the
// hub's time.
func Signal[S, I, O any](h *Hub, key durable.EntityKey[S], operation func(*S, *durable.EntityContext, I) (O, error), in I, opts ...durable.SignalOption) {
	h.t.Helper()
	if err := durable.Signal(h.ctx, h.client, key, operation, in, opts...); err != nil {
		h.t.Fatalf("durabletest: %v", err)
	}
	h.settle()
}

// State returns the state of an entity. exists is false if the entity does not exist.
func State[S any](h *Hub, key durable.EntityKey[S]) (state S, exists bool) {
	h.t.Helper()
	state, err := durable.ReadEntity(h.ctx, h.client, key)
	if err != nil && !errors.Is(err, durable.ErrEntityNotFound) {
		h.t.Fatalf("durabletest: %v", err)
	}
	return state, err == nil
}

// StubOperation replaces an operation of a registered entity with stub. It may be called again, also while
// entities have pending operations. A panic of the stub fails the operation, as in a worker. Operations
// run one at a time, but not on the test's goroutine: a stub must not call t.Fatal.
func StubOperation[S, I, O any](h *Hub, operation, stub func(*S, *durable.EntityContext, I) (O, error)) {
	h.t.Helper()
	registry, err := durable.ReplaceOperation(h.registry, operation, stub)
	if err != nil {
		h.t.Fatalf("durabletest: %v: pass its Entity to New", err)
	}
	h.registry = registry
}

// describeMail describes the requests that an entity has received, for a failure message.
func describeMail(messages []provider.TaskMessage) string {
	var words []string
	for _, m := range messages {
		if e, ok := m.Event.(*history.EventRaised); ok {
			words = append(words, explain.Request(e.Name, e.Input))
		}
	}
	return strings.Join(words, ", ")
}
