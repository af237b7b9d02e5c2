package entity

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// An Operation is what the code of an entity is called with.
type Operation struct {
	Entity ID
	// Name is the operation's, as it was sent.
	Name      string
	Input     *string // JSON text
	State     *string // JSON text; nil if the entity does not exist
	Signal    bool    // nobody waits for the result
	RequestID string
	// Caller is the instance ID of the orchestration or entity that sent the
	// request; empty if a client did.
	Caller string
	Now    time.Time
	Due    time.Time // when it was to be performed; zero: at once
	Trace  Trace
}

// A Result is what an operation came to.
type Result struct {
	Output  *string                 // JSON text
	Failure *history.FailureDetails // nil if it succeeded
	// State is the entity's state after the operation, as JSON text; nil deletes
	// the entity. If the operation failed and is rolled back, State and Actions
	// do not count.
	State *string
	// Actions are what the operation sent and started, in program order.
	Actions []Action
}

// An Action is something that an operation decided: a *[Signal] or a *[Start].
type Action interface{ action() }

// A Signal is sent to an entity by another.
type Signal struct {
	Target    ID
	Operation string
	Input     *string
	Due       time.Time // zero: at once

	Trace *history.TraceContext // the parent of what comes of it; nil if that is not traced
}

// A Start starts an orchestration that the entity does not wait for.
type Start struct {
	Name       string
	Version    string
	InstanceID string // must not be empty
	Input      *string
	Tags       map[string]string
	Due        time.Time // zero: at once

	Trace *history.TraceContext // as in Signal
}

func (*Signal) action() {}
func (*Start) action()  {}

// Settings say how an entity takes messages.
type Settings struct {
	MaxBatch int           // how many operations run between two checkpoints
	Window   time.Duration // the reorder window; zero or less: none
	// KeepFailedEffects keeps what an operation did before it failed.
	KeepFailedEffects bool
}
