package durable

import (
	"fmt"
	"time"

	"github.com/google/uuid"
)

// A UUID is a universally unique identifier.
type UUID = uuid.UUID

// uuidSpace is the namespace that durabletask-dotnet gives to an orchestrator's
// GUIDs (src/Worker/Core/Shims/TaskOrchestrationContextWrapper.cs, NewGuid).
var uuidSpace = uuid.MustParse("9e952958-5e33-4daf-827f-2fa12937b875")

// NewUUID returns a UUID that is new, and the same in every replay: version 5,
// of the instance's ID, the current time and how many came before.
func (c *Context) NewUUID() UUID {
	return newUUID(string(c.InstanceID()), c.Now(), c.x.CountUUID())
}

func newUUID(instanceID string, now time.Time, n int) UUID {
	// .NET's round-trip format "o" of a UTC time.
	at := now.UTC().Format("2006-01-02T15:04:05.0000000Z")
	return uuid.NewSHA1(uuidSpace, fmt.Appendf(nil, "%s_%s_%d", instanceID, at, n))
}
