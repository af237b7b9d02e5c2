package durable

import (
	"fmt"
	"reflect"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// An EntityKey is the key of an entity whose state is an S. The type says which
// entities, the key says which of them:
//
//	const Meter = durable.EntityKey[Counter]("meter-7")
//
// Keys are as they are given: their case matters. They may be empty, and have
// the characters that instance IDs may have.
type EntityKey[S any] string

// An EntityID identifies an entity by its name and its key, such as one that
// another program implements. Case does not matter in names.
type EntityID struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// ParseEntityID reads the ID of the instance that an entity is in its hub, which
// is like @counter@meter-7.
func ParseEntityID(id InstanceID) (EntityID, error) {
	parsed, err := entity.ParseID(string(id))
	if err != nil {
		return EntityID{}, &InstanceIDError{ID: id, Reason: fmt.Sprintf("%q is not the ID of an entity, which is like @name@key.", id)}
	}
	return EntityID(parsed), nil
}

// InstanceID returns the ID of the instance that the entity is in its hub:
// @counter@meter-7.
func (id EntityID) InstanceID() InstanceID {
	return InstanceID(entity.ID{Name: lowerName(id.Name), Key: id.Key}.String())
}

// String returns the instance ID.
func (id EntityID) String() string { return string(id.InstanceID()) }

// An AnyEntity says which entity is meant: an [EntityKey] or an [EntityID].
type AnyEntity interface {
	// entityID returns the ID of the entity, by what r knows.
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

// checked returns the ID, or an *[InstanceIDError] if it cannot be one.
func (id EntityID) checked() (entity.ID, error) {
	reason := unfit(string(id.InstanceID()))
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
