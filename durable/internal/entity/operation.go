package entity

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// An Operation is the argument of an entity's code.
type Operation struct {
	Entity ID
	// Name is the operation's, as it was sent.
	Name      string
	Input     *string // JSON text
	State     *string // JSON text; nil if the entity does not exist
	Signal    bool    // the caller does not wait for the result
	RequestID string
	// Caller is the instance ID of the orchestration or entity that sent the
	// request; empty if a client did.
	Caller string
	Now    time.Time
	Due    time.Time // zero: at once
	Trace  Trace
}

// A Result is the result of an operation.
type Result struct {
	Output  *string                 // JSON text
	Failure *history.FailureDetails // nil if it succeeded
	// State is the entity's state after the operation, as JSON text; nil deletes
	// the entity. If the operation failed and is rolled back, State and Actions
	// do not count.
	State *string
	// Actions are the operation's signals and starts, in program order.
	Actions []Action
}

// An Action is a *[Signal] or a *[Start].
type Action interface{ action() }

// A Signal is a signal to another entity.
type Signal struct {
	Target    ID
	Operation string
	Input     *string
	Due       time.Time // zero: at once

	Trace *history.TraceContext // the parent of its span; nil if it is not traced
}

// A Start is the start of an orchestration.
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

// Settings configure a [Batch].
type Settings struct {
	MaxBatch int           // operations between two checkpoints
	Window   time.Duration // the reorder window; zero or less: none
	// KeepFailedEffects keeps the state and the actions of an operation that failed.
	KeepFailedEffects bool
	Resend            bool // send the outbox of the last batch again, unless it is settled
	// Exact says that the hub delivers what instances send in order and once, and always has.
	// So a batch is settled when it is stored, and little has to be known of senders.
	Exact bool
}
