package durable

import (
	"context"
	"encoding/json"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Status is [Client.Status] of the instance.
func (i *Instance[O]) Status(ctx context.Context, fetch Fetch) (*InstanceState, error) {
	return i.client.Status(ctx, i.ID, fetch)
}

// History is [Client.History] of the instance.
func (i *Instance[O]) History(ctx context.Context) ([]history.Event, error) {
	return i.client.History(ctx, i.ID)
}

// RaiseEvent is [Client.RaiseEvent] for the instance. [Event.Raise] does the
// same with a payload whose type is checked.
func (i *Instance[O]) RaiseEvent(ctx context.Context, name string, payload json.RawMessage) error {
	return i.client.RaiseEvent(ctx, i.ID, name, payload)
}

// Terminate is [Client.Terminate] of the instance.
func (i *Instance[O]) Terminate(ctx context.Context, reason string, opts ...TerminateOption) error {
	return i.client.Terminate(ctx, i.ID, reason, opts...)
}

// Suspend is [Client.Suspend] of the instance.
func (i *Instance[O]) Suspend(ctx context.Context, reason string) error {
	return i.client.Suspend(ctx, i.ID, reason)
}

// Resume is [Client.Resume] of the instance.
func (i *Instance[O]) Resume(ctx context.Context, reason string) error {
	return i.client.Resume(ctx, i.ID, reason)
}

// Rewind is [Client.Rewind] of the instance.
func (i *Instance[O]) Rewind(ctx context.Context, reason string) error {
	return i.client.Rewind(ctx, i.ID, reason)
}

// Restart is [Client.Restart] of the instance. The output of the instance that
// it returns has the same type.
func (i *Instance[O]) Restart(ctx context.Context, opts ...StartOption) (*Instance[O], error) {
	id, err := i.client.Restart(ctx, i.ID, opts...)
	if err != nil {
		return nil, err
	}
	return InstanceOf[O](i.client, id), nil
}

// Purge is [Client.Purge] of the instance.
func (i *Instance[O]) Purge(ctx context.Context, opts ...PurgeOption) (PurgeResult, error) {
	return i.client.Purge(ctx, i.ID, opts...)
}
