package durable

import (
	"fmt"
	"reflect"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// EntityKey is the key of an entity whose state has type S. The type selects the kind
// of entities, the key selects one of them:
//
//	const Meter = durable.EntityKey[Counter]("meter-7")
//
// Keys are case-sensitive and may be empty. They may contain the characters that are
// valid in instance IDs.
type EntityKey[S any] string

// EntityID identifies an entity by name and key. Use it for an entity that another
// program implements. Names are case-insensitive.
type EntityID struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// ParseEntityID parses the instance ID of an entity, such as @counter@meter-7.
func ParseEntityID(id InstanceID) (EntityID, error) {
	parsed, err := entity.ParseID(string(id))
	if err != nil {
		return EntityID{}, &InstanceIDError{ID: id, Reason: fmt.Sprintf("%q is not the ID of an entity; want @name@key.", id)}
	}
	return EntityID(parsed), nil
}

// InstanceID returns the ID of the instance that stores the entity, such as
// @counter@meter-7.
func (id EntityID) InstanceID() InstanceID {
	return InstanceID(entity.ID{Name: lowerName(id.Name), Key: id.Key}.String())
}

// String returns the instance ID.
func (id EntityID) String() string { return string(id.InstanceID()) }

// AnyEntity identifies an entity. [EntityKey] and [EntityID] implement it.
type AnyEntity interface {
	// entityID returns the ID of the entity. An EntityKey takes the name from r.
	entityID(r *Registry) (entity.ID, error)
}

var (
	_ AnyEntity = EntityID{}
	_ AnyEntity = EntityKey[struct{}]("")
)

func (id EntityID) entityID(*Registry) (entity.ID, error) { return id.checked() }

func (k EntityKey[S]) entityID(r *Registry) (entity.ID, error) {
	f, err := r.entityOf(reflect.TypeFor[S]())
	if err != nil {
		return entity.ID{}, err
	}
	return EntityID{f.name, string(k)}.checked()
}

// checked returns the ID, or an *[InstanceIDError] if it is invalid.
func (id EntityID) checked() (entity.ID, error) {
	reason := invalidIDReason(string(id.InstanceID()))
	if id.Name == "" {
		reason = "Entity names must not be empty."
	}
	valid, err := entity.NewID(id.Name, id.Key)
	if err != nil && reason == "" {
		reason = fmt.Sprintf("Entity names must not contain @; %q does.", id.Name)
	}
	if reason != "" {
		return entity.ID{}, &InstanceIDError{ID: id.InstanceID(), Reason: reason}
	}
	return valid, nil
}
