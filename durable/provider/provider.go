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

// Client is what clients of a hub need. The first call of any method creates the hub
// if it does not exist. An error says what went wrong; the caller adds what was asked for.
type Client interface {
	// StartInstance creates an instance by sending it start, whose event is a
	// *history.ExecutionStarted. If an instance with that ID exists in one of
	// the statuses in refuse, it fails with an *[InstanceExistsError] and changes
	// nothing; an existing instance in another status is replaced.
	StartInstance(ctx context.Context, start TaskMessage, refuse []history.RuntimeStatus) error

	// Send sends msg to its instance, whether that exists or not.
	Send(ctx context.Context, msg TaskMessage) error

	// Instance returns the state of an instance, or [ErrInstanceNotFound].
	Instance(ctx context.Context, id string, fetch Fetch) (*InstanceState, error)

	// Instances returns one page of the instances that match q.
	Instances(ctx context.Context, q Query) (*Page, error)

	// History returns the events of an instance's current execution in order, empty if
	// there are none or the instance is not known.
	History(ctx context.Context, id string) ([]history.Event, error)
}

// Worker is what the engine needs to run a hub's functions.
type Worker interface {
	// Run fetches work for NextOrchestration and NextActivity: it acquires partitions
	// and reads queues. It blocks until ctx ends. Then it stops fetching, releases what
	// was not dispatched, waits up to the provider's drain timeout until the work in
	// flight is committed, completed, abandoned or released, releases its partitions
	// and returns nil. It retries after outages, and returns an error only if it can
	// never work, as with a hub that has another number of partitions.
	Run(ctx context.Context) error

	// NextOrchestration blocks until an instance has work, or until ctx ends, and then
	// returns ctx's error. It returns no work after Run's context has ended.
	NextOrchestration(ctx context.Context) (*OrchestrationWorkItem, error)

	// NextActivity blocks until there is an activity to run, or until ctx ends, and then
	// returns ctx's error.
	NextActivity(ctx context.Context) (*ActivityWorkItem, error)
}

// ErrInstanceNotFound is the error of an instance ID that is not known.
var ErrInstanceNotFound = errors.New("instance not found")

// ErrSessionLost is the error of a checkpoint of an instance that another worker has
// taken over. The checkpoint has no effect.
var ErrSessionLost = errors.New("instance was taken over by another worker")

// ErrInstanceExists is the error of a start whose instance ID exists and may not be
// replaced. Every *[InstanceExistsError] is one, for [errors.Is].
var ErrInstanceExists = errors.New("instance exists")

// InstanceExistsError is the error of a start whose instance ID exists.
type InstanceExistsError struct {
	InstanceID string
	Status     history.RuntimeStatus
}

// InstanceExistsFailure is the type of the failure of a child that could not be
// started because its instance ID exists. Its properties have InstanceID and Status.
// It is the name of .NET's exception.
const InstanceExistsFailure = "DurableTask.Core.Exceptions.OrchestrationAlreadyExistsException"

// Error uses the words of the .NET extension's 409 answer.
func (e *InstanceExistsError) Error() string {
	return fmt.Sprintf("An Orchestration instance with the status %s already exists.", e.Status)
}

// Is reports whether target is [ErrInstanceExists].
func (e *InstanceExistsError) Is(target error) bool { return target == ErrInstanceExists }
