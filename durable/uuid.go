package durable

import "github.com/google/uuid"

// A UUID is a universally unique identifier.
type UUID = uuid.UUID

// uuidSpace is the namespace of the UUIDs that are derived here.
var uuidSpace = uuid.MustParse("9e952958-5e33-4daf-827f-2fa12937b875")

// NewUUID returns a UUID that is new, and the same in every replay: version 5,
// of the instance's ID, the current time and how many came before, as that of
// durabletask-dotnet's NewGuid. Each request to an entity and each child without
// an ID of its own counts as one that came before, unless a child is the first of
// them: then only NewUUID counts.
func (c *Context) NewUUID() UUID { return UUID(c.x.NewGUID()) }
