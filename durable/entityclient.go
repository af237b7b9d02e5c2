package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/uuid"
)

// ErrEntityNotFound says that an entity does not exist: no operation was performed
// on it yet, or the last one deleted it.
var ErrEntityNotFound = errors.New("entity does not exist")

// Signal has an entity perform an operation, named by its method expression. It
// returns when the signal is sent; what comes of the operation is told to nobody.
// The client must have a registry.
func Signal[S, I, O any](ctx context.Context, c *Client, key EntityKey[S], operation func(*S, *EntityContext, I) (O, error), in I, opts ...SignalOption) error {
	id, name, err := operationOf(c.registry, key, operation)
	if err != nil {
		return err
	}
	return c.signal(ctx, id, name, in, opts)
}

// Signal has the entity perform the operation, as [Signal] does. The client needs no
// registry for an [EntityID].
func (o EntityOperation[I, O]) Signal(ctx context.Context, c *Client, e AnyEntity, in I, opts ...SignalOption) error {
	id, err := e.entityID(c.registry)
	if err != nil {
		return err
	}
	return c.signal(ctx, id, string(o), in, opts)
}

// SignalEntity has an entity perform the operation with the given wire name. The
// input is JSON; if it is empty the operation gets none.
func (c *Client) SignalEntity(ctx context.Context, e AnyEntity, operation string, input json.RawMessage, opts ...SignalOption) error {
	id, err := e.entityID(c.registry)
	if err != nil {
		return err
	}
	return c.signal(ctx, id, operation, input, opts)
}

// DeleteEntity signals an entity to delete itself, by the operation delete, which
// every entity has; one that is none of ours may take it for something else. An
// entity that does not exist does not mind.
func (c *Client) DeleteEntity(ctx context.Context, e AnyEntity) error {
	return c.SignalEntity(ctx, e, deleteOperation, nil)
}

func (c *Client) signal(ctx context.Context, id entity.ID, operation string, in any, opts []SignalOption) error {
	input, err := encode(in)
	if err != nil {
		return fmt.Errorf("encode input of operation %s of %s: %w", operation, id, err)
	}
	if err := errors.Join(checkTexts("operation", operation), checkTexts("input", input)); err != nil {
		return fmt.Errorf("signal operation %q of %s: %w", operation, id, err)
	}
	now := c.now()
	name, text := entity.NewSignal(uuid.NewString(), operation, input, dueAt(now, opts), now)
	text = c.tracer.SignalEntity(ctx, text, now)
	if err := c.sendEntity(ctx, id, name, text, now); err != nil {
		return fmt.Errorf("signal operation %s of %s: %w", operation, id, err)
	}
	return nil
}

// sendEntity sends an entity a message, whether it exists or not.
func (c *Client) sendEntity(ctx context.Context, id entity.ID, name, text string, now time.Time) error {
	return c.hub.Send(ctx, provider.TaskMessage{
		Event:  &history.EventRaised{Header: history.NewHeader(now), Name: name, Input: &text},
		Target: history.OrchestrationInstance{InstanceID: id.String()},
	})
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

// Entity returns what is known of an entity, with its state. An entity that does
// not exist makes it fail with [ErrEntityNotFound].
func (c *Client) Entity(ctx context.Context, e AnyEntity) (*EntityState, error) {
	id, err := e.entityID(c.registry)
	if err != nil {
		return nil, err
	}
	row, err := c.hub.Instance(ctx, id.String(), provider.Fetch{Input: true})
	if errors.Is(err, provider.ErrInstanceNotFound) {
		return nil, fmt.Errorf("read entity %s: %w", id, ErrEntityNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read entity %s: %w", id, err)
	}
	s, err := entityState(row, true)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read entity %s: %w", id, err)
	case !s.Exists:
		return nil, fmt.Errorf("read entity %s: %w", id, ErrEntityNotFound)
	}
	return s, nil
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
