package durabletest

import (
	"errors"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/explain"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Signal has an entity perform an operation, as [durable.Signal] does, and lets
// everything happen that can happen at this time.
func Signal[S, I, O any](h *Hub, key durable.EntityKey[S], operation func(*S, *durable.EntityContext, I) (O, error), in I, opts ...durable.SignalOption) {
	h.t.Helper()
	if err := durable.Signal(h.ctx, h.client, key, operation, in, opts...); err != nil {
		h.t.Fatalf("durabletest: %v", err)
	}
	h.settle()
}

// State returns the state of an entity; exists is false if it does not exist.
func State[S any](h *Hub, key durable.EntityKey[S]) (state S, exists bool) {
	h.t.Helper()
	state, err := durable.ReadEntity(h.ctx, h.client, key)
	if err != nil && !errors.Is(err, durable.ErrEntityNotFound) {
		h.t.Fatalf("durabletest: %v", err)
	}
	return state, err == nil
}

// StubOperation has the hub perform stub in the place of an operation of an
// entity, which must be registered. It may be called again, also while entities
// are at work. A panic fails the operation, as in a worker. Operations are
// performed one at a time, but not on the goroutine of the test: a stub must not
// call t.Fatal.
func StubOperation[S, I, O any](h *Hub, operation, stub func(*S, *durable.EntityContext, I) (O, error)) {
	h.t.Helper()
	registry, err := durable.ReplaceOperation(h.registry, operation, stub)
	if err != nil {
		h.t.Fatalf("durabletest: %v: give its entity to New", err)
	}
	h.registry = registry
}

// describeMail says what an entity was sent.
func describeMail(messages []provider.TaskMessage) string {
	var words []string
	for _, m := range messages {
		if e, ok := m.Event.(*history.EventRaised); ok {
			words = append(words, explain.Request(e.Name, e.Input))
		}
	}
	return strings.Join(words, ", ")
}
