package durable

import "github.com/google/uuid"

// UUID is a universally unique identifier.
type UUID = uuid.UUID

// uuidSpace is the namespace of the UUIDs that this package derives.
var uuidSpace = uuid.MustParse("9e952958-5e33-4daf-827f-2fa12937b875")
