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

// ErrEntityNotFound means that an entity does not exist: it has performed no operation
// yet, or the last one deleted it.
var ErrEntityNotFound = errors.New("entity does not exist")

// Signal sends an entity a signal to perform an operation, which is named by its method
// expression. It returns when the signal is sent. The result of the operation is
// discarded. The client must have a registry.
func Signal[S, I, O any](ctx context.Context, c *Client, key EntityKey[S], operation func(*S, *EntityContext, I) (O, error), in I, opts ...SignalOption) error {
	id, name, err := operationOf(c.registry, key, operation)
	if err != nil {
		return err
	}
	return c.signal(ctx, id, name, in, opts)
}

// ReadEntity returns the state of an entity after its last stored operation. It fails
// with [ErrEntityNotFound] if the entity does not exist. The client must have a
// registry.
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

// EntityState is the stored state of an entity.
type EntityState struct {
	ID EntityID
	// LastOperation is the time of the entity's last batch of operations.
	LastOperation time.Time
	// Exists reports whether the entity has a state.
	Exists bool
	// State is the state as JSON. It is nil if the entity has no state or the state was
	// not fetched.
	State json.RawMessage
	// LockedBy is the orchestration that holds the entity's lock, or empty.
	LockedBy InstanceID
	// QueueSize is the number of operations that wait for the release of the lock.
	QueueSize int
}

// entityState converts the row of an entity. If the state was fetched, its presence
// decides whether the entity exists
// (DurableTask.AzureStorage/EntityTrackingStoreQueries.cs, GetEntityMetadataAsync).
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

// jsonOf returns a stored state as JSON. Other programs may store text that is not
// JSON; like .NET, jsonOf returns it as a JSON string
// (WebJobs.Extensions.DurableTask/DurableEntityStatus.cs).
func jsonOf(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	quoted, _ := json.Marshal(text) // encoding a string cannot fail
	return quoted
}
