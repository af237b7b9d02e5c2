package durable

import (
	"context"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// Event is the name of an external event whose payload has type T:
//
//	const Approval = durable.Event[Decision]("Approval")
//
// Names are case-insensitive.
type Event[T any] string

// Wait returns a task that completes when the event is raised. Each event completes one
// task; of several waiting tasks, the most recent one. An event without a waiting task
// is buffered, and the next Wait gets the oldest buffered event.
func (e Event[T]) Wait(ctx *Context) *Task[T] {
	return newTask[T](func(f *replay.Future) { ctx.x.WaitEvent(f, string(e)) })
}

// RaiseFrom raises the event for another orchestration. The event is sent when the
// orchestrator next awaits a task or returns. RaiseFrom does not check that the
// instance exists and has not ended. It fails, and sends nothing, if the ID is invalid
// or v cannot be encoded.
func (e Event[T]) RaiseFrom(ctx *Context, id InstanceID, v T) error {
	if err := ValidateInstanceID(id); err != nil {
		return fmt.Errorf("send event %s: %w", string(e), err)
	}
	payload, err := encode(v)
	if err != nil {
		return fmt.Errorf("encode payload of event %s: %w", string(e), err)
	}
	ctx.x.SendEvent(string(id), string(e), payload)
	return nil
}

// Raise sends the event to an instance. It fails with [ErrInstanceNotFound] if the
// instance does not exist, and with [ErrInstanceEnded] if it has ended.
func (e Event[T]) Raise(ctx context.Context, c *Client, id InstanceID, v T) error {
	payload, err := encode(v)
	if err != nil {
		return fmt.Errorf("encode payload of event %s: %w", string(e), err)
	}
	if payload == nil {
		return c.RaiseEvent(ctx, id, string(e), nil)
	}
	return c.RaiseEvent(ctx, id, string(e), []byte(*payload))
}
