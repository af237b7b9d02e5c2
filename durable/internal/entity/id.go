package entity

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// An ID names an entity. The zero ID names none.
type ID struct {
	// Name is the entity's function, in lower case (the Functions extension's
	// EntityScheduler/EntityId.cs, EntityId).
	Name string `json:"name"`
	// Key says which of that name's entities it is. It may be any text that an
	// instance ID may have, and empty.
	Key string `json:"key"`
}

// NewID returns the ID of the entity with the given name, whose case does not
// matter, and key, whose case does.
func NewID(name, key string) (ID, error) {
	switch {
	case name == "":
		return ID{}, fmt.Errorf("an entity with key %q has no name", key)
	case strings.Contains(name, "@"):
		return ID{}, fmt.Errorf("entity name %q has an @, which ends the name in an instance ID", name)
	}
	return ID{Name: strings.ToLower(name), Key: key}, nil
}

// ParseID returns the entity whose instance ID is given
// (DurableTask.Core/Entities/EntityId.cs, FromString).
func ParseID(instanceID string) (ID, error) {
	if history.IsEntity(instanceID) {
		if name, key, ok := strings.Cut(instanceID[1:], "@"); ok && name != "" {
			return ID{Name: strings.ToLower(name), Key: key}, nil
		}
	}
	return ID{}, fmt.Errorf("instance ID %q is not that of an entity, which is @name@key", instanceID)
}

// String returns the entity's instance ID.
func (id ID) String() string { return "@" + id.Name + "@" + id.Key }

// Compare orders IDs by name and then key. Locks are acquired in this order, so
// that nobody waits for one while holding a later one. DurableTask orders the
// same way (DurableTask.Core/Entities/EntityId.cs, CompareTo) with the words'
// order in the worker's culture instead of that of the bytes: the two differ
// for keys that mix cases or have punctuation.
func Compare(a, b ID) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
}
