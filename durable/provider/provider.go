package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Provider stores a task hub. Its methods are safe for concurrent use.
type Provider interface {
	Client
	Worker
}

// Client is the part of a provider that clients use. The first call of any method creates the hub
// if it does not exist. Errors describe the failure; the caller adds the name of the operation. Each
// state and each history belongs to one execution, also if a worker changes the instance during the
// call.
type Client interface {
	// StartInstance creates an instance by sending it start, whose event must be a
	// *history.ExecutionStarted. An existing instance with the same ID is replaced, unless its
	// status is in refuse: then StartInstance changes nothing and returns an
	// *[InstanceExistsError].
	StartInstance(ctx context.Context, start TaskMessage, refuse []history.RuntimeStatus) error

	// Send sends msg to its target, even if the target instance does not exist.
	Send(ctx context.Context, msg TaskMessage) error

	// Instance returns the state of an instance. The error is [ErrInstanceNotFound] if the ID
	// is unknown.
	Instance(ctx context.Context, id string, fetch Fetch) (*InstanceState, error)

	// Instances returns one page of the instances that match q.
	Instances(ctx context.Context, q Query) (*Page, error)

	// History returns the events of an instance's current execution in order. The result is
	// empty if the instance is unknown or has no events.
	History(ctx context.Context, id string) ([]history.Event, error)
}

// Worker is the part of a provider that the engine uses to run a hub's functions.
type Worker interface {
	// Run fetches work for NextOrchestration and NextActivity: it acquires partitions and reads
	// queues. It blocks until ctx ends. Then it stops fetching and releases work that was not
	// dispatched. It waits, for the provider's drain timeout at most, until all work in flight
	// is committed, completed, abandoned or released. Then it releases its partitions and
	// returns nil.
	//
	// Run retries after outages. It returns an error only if it can never work, for example if
	// the hub has a different number of partitions.
	Run(ctx context.Context) error

	// NextOrchestration blocks until an instance has work or ctx ends. It returns ctx's error
	// if ctx ends. It returns no work after the context of Run has ended.
	NextOrchestration(ctx context.Context) (*OrchestrationWorkItem, error)

	// NextActivity blocks until an activity is ready to run or ctx ends. It returns ctx's error
	// if ctx ends.
	NextActivity(ctx context.Context) (*ActivityWorkItem, error)
}

// ErrInstanceNotFound means that the instance ID is unknown.
var ErrInstanceNotFound = errors.New("instance not found")

// ErrSessionLost is the error of a commit for an instance that another worker has taken over.
// The checkpoint has no effect.
var ErrSessionLost = errors.New("instance was taken over by another worker")

// ErrInstanceExists means that an instance with this ID exists and may not be replaced. It
// matches every *[InstanceExistsError] in [errors.Is].
var ErrInstanceExists = errors.New("instance exists")

// InstanceExistsError is the error of a start whose instance ID is in use.
type InstanceExistsError struct {
	InstanceID string
	Status     history.RuntimeStatus
}

// OutcomeUnknownFailure is the failure type of a step that had to run at most once and whose process
// ended before it recorded the result.
const OutcomeUnknownFailure = "durable.OutcomeUnknown"

// InstanceExistsFailure is the failure type of a child that could not start because its
// instance ID is in use. The failure's properties contain InstanceID and Status. The value is
// the name of .NET's exception.
const InstanceExistsFailure = "DurableTask.Core.Exceptions.OrchestrationAlreadyExistsException"

// Error returns the text of the .NET extension's 409 response.
func (e *InstanceExistsError) Error() string {
	return fmt.Sprintf("An Orchestration instance with the status %s already exists.", e.Status)
}

// Is reports whether target is [ErrInstanceExists].
func (e *InstanceExistsError) Is(target error) bool { return target == ErrInstanceExists }
