package durable

import (
	"context"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// An Event names an external event, and says what payload it has:
//
//	const Approval = durable.Event[Decision]("Approval")
//
// Case does not matter in names.
type Event[T any] string

// Wait returns a task that is complete when the event is raised. One event
// completes one task: if several wait, the one that began last. An event for
// which nothing waits is kept, and the next Wait takes the oldest.
func (e Event[T]) Wait(ctx *Context) *Task[T] {
	return newTask[T](func(f *replay.Future) { ctx.x.WaitEvent(f, string(e)) })
}

// RaiseFrom raises the event for another orchestration. It is sent when the
// orchestrator next awaits something or returns; it is not known whether
// an instance with that ID exists and has not ended. The error says that the ID
// cannot be an instance's, or that v cannot be encoded; then nothing is sent.
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

// Raise sends the event to an instance. One that is unknown or has ended makes
// it fail with [ErrInstanceNotFound] or [ErrInstanceEnded].
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
