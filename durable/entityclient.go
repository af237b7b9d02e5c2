package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// ErrEntityNotFound says that an entity does not exist: no operation was performed
// on it yet, or the last one deleted it.
var ErrEntityNotFound = errors.New("entity does not exist")

// Signal has an entity perform an operation, named by its method expression. It
// returns when the signal is sent; the result of the operation is dropped.
// The client must have a registry.
func Signal[S, I, O any](ctx context.Context, c *Client, key EntityKey[S], operation func(*S, *EntityContext, I) (O, error), in I, opts ...SignalOption) error {
	id, name, err := operationOf(c.registry, key, operation)
	if err != nil {
		return err
	}
	return c.signal(ctx, id, name, in, opts)
}

// ReadEntity returns the state of an entity, as it was after its last operation
// that is stored. An entity that does not exist makes it fail with
// [ErrEntityNotFound]. The client must have a registry.
func ReadEntity[S any](ctx context.Context, c *Client, key EntityKey[S]) (S, error) {
	var none S
	s, err := c.Entity(ctx, key)
	if err != nil {
		return none, err
	}
	state, err := decodeText[S](string(s.State))
	if err != nil {
		return none, fmt.Errorf("decode state of %s: %w", s.ID, err)
	}
	return state, nil
}

// An EntityState is what a hub knows of an entity.
type EntityState struct {
	ID EntityID
	// LastOperation is when operations were last performed.
	LastOperation time.Time
	// Exists says that the entity has a state.
	Exists bool
	// State is the state as JSON; nil if there is none or it was not fetched.
	State json.RawMessage
	// LockedBy is the orchestration that has locked the entity, empty if none has.
	LockedBy InstanceID
	// QueueSize is how many operations wait for the lock to be released.
	QueueSize int
}

// entityState returns what the row of an entity says. Its state decides whether it
// exists, if that was fetched (DurableTask.AzureStorage/EntityTrackingStoreQueries.cs,
// GetEntityMetadataAsync).
func entityState(row *provider.InstanceState, fetched bool) (*EntityState, error) {
	id, err := entity.ParseID(row.Instance.InstanceID)
	if err != nil {
		return nil, err
	}
	status, err := entity.ParseStatus(row.CustomStatus)
	if err != nil {
		return nil, fmt.Errorf("status of %s: %w", id, err)
	}
	s := &EntityState{
		ID: EntityID(id), LastOperation: row.CreatedAt, Exists: status.Exists,
		LockedBy: InstanceID(status.LockedBy), QueueSize: status.QueueSize,
	}
	if !fetched {
		return s, nil
	}
	text, err := entity.StateText(row.Input)
	if err != nil {
		return nil, fmt.Errorf("state of %s: %w", id, err)
	}
	if s.Exists = text != nil; s.Exists {
		s.State = jsonOf(*text)
	}
	return s, nil
}

// jsonOf returns a state as JSON, which other programs need not keep to: as .NET
// does, it takes what is none for a text
// (WebJobs.Extensions.DurableTask/DurableEntityStatus.cs).
func jsonOf(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	quoted, _ := json.Marshal(text) // a string always is JSON
	return quoted
}
