package entity

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// An Operation is the argument of an entity's code.
type Operation struct {
	Entity ID
	// Name is the operation's name as the sender wrote it.
	Name      string
	Input     *string // JSON text
	State     *string // JSON text; nil if the entity does not exist
	Signal    bool    // the sender does not wait for the result
	RequestID string
	// Caller is the instance ID of the orchestration or entity that sent the request; empty if
	// a client sent it.
	Caller string
	Now    time.Time
	Due    time.Time // zero means immediately
	Trace  Trace
}

// A Result is the result of an operation.
type Result struct {
	Output  *string                 // JSON text
	Failure *history.FailureDetails // nil if the operation succeeded
	// State is the entity's state after the operation, as JSON text; nil deletes the entity. If
	// the operation fails, State and Actions are ignored unless [Settings].KeepFailedEffects is
	// set.
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
	Due       time.Time // zero means immediately

	Trace *history.TraceContext // the parent span; nil without tracing
}

// A Start is the start of an orchestration.
type Start struct {
	Name       string
	Version    string
	InstanceID string // must not be empty
	Input      *string
	Tags       map[string]string
	Due        time.Time // zero means immediately

	Trace *history.TraceContext // the parent span; nil without tracing
}

func (*Signal) action() {}
func (*Start) action()  {}

// Settings configure a [Batch].
type Settings struct {
	MaxBatch int           // maximum number of operations between two checkpoints
	Window   time.Duration // the reorder window; zero or less disables it
	// KeepFailedEffects keeps the state and the actions of failed operations.
	KeepFailedEffects bool
	Resend            bool // send the outbox of the last batch again unless it is settled
	// ExactlyOnce is set if the hub delivers the messages of instances in order and exactly
	// once, and always has. A batch is then settled when it is stored, and less has to be
	// stored of senders.
	ExactlyOnce bool
}
