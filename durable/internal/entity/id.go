package entity

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// An ID identifies an entity. The zero ID identifies none.
type ID struct {
	// Name is the name of the entity's function, in lower case (the Functions extension's
	// EntityScheduler/EntityId.cs, EntityId).
	Name string `json:"name"`
	// Key distinguishes the entities with the same name. It may be empty, and may contain any
	// character that an instance ID may contain.
	Key string `json:"key"`
}

// NewID returns an entity ID. The case of name is ignored; the case of key matters. NewID
// returns an error if name is empty or contains an @.
func NewID(name, key string) (ID, error) {
	switch {
	case name == "":
		return ID{}, fmt.Errorf("an entity with key %q has no name", key)
	case strings.Contains(name, "@"):
		return ID{}, fmt.Errorf("entity name %q has an @, which ends the name in an instance ID", name)
	}
	return ID{Name: strings.ToLower(name), Key: key}, nil
}

// ParseID returns the ID of the entity with the given instance ID
// (DurableTask.Core/Entities/EntityId.cs, FromString).
func ParseID(instanceID string) (ID, error) {
	if history.IsEntity(instanceID) {
		if name, key, ok := strings.Cut(instanceID[1:], "@"); ok && name != "" {
			return ID{Name: strings.ToLower(name), Key: key}, nil
		}
	}
	return ID{}, fmt.Errorf("instance ID %q is not the ID of an entity; want @name@key", instanceID)
}

// String returns the entity's instance ID.
func (id ID) String() string { return "@" + id.Name + "@" + id.Key }

// Compare orders IDs by name and then by key. Locks are acquired in this order, which prevents
// deadlocks. DurableTask compares in the culture of the worker instead of by bytes
// (DurableTask.Core/Entities/EntityId.cs, CompareTo). The two orders differ for keys with mixed
// case or punctuation.
func Compare(a, b ID) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
}
