package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A Provider stores a task hub. All methods may be called from several
// goroutines at once.
type Provider interface {
	Client
	Worker
}

// Client is what clients of a hub need. The first call of any method makes the
// hub exist if it does not.
type Client interface {
	// StartInstance creates an instance by sending it start, whose event is a
	// *history.ExecutionStarted. If an instance with that ID exists in one of
	// the statuses in refuse, it fails with an *[InstanceExistsError] and changes
	// nothing; an existing instance in another status is replaced.
	StartInstance(ctx context.Context, start TaskMessage, refuse []history.RuntimeStatus) error

	// Send delivers msg to the instance it is for, whether that exists or not.
	Send(ctx context.Context, msg TaskMessage) error

	// Instance returns what is known of an instance, or [ErrInstanceNotFound].
	Instance(ctx context.Context, id string, fetch Fetch) (*InstanceState, error)

	// Instances returns one page of the instances that match q.
	Instances(ctx context.Context, q Query) (*Page, error)

	// History returns the events of an instance's current execution in order,
	// empty if there is none. It never fails for an instance that is unknown.
	History(ctx context.Context, id string) ([]history.Event, error)
}

// Worker is what the engine needs to run a hub's functions.
type Worker interface {
	// Run makes work available to NextOrchestration and NextActivity: it
	// acquires partitions and reads queues. It blocks until ctx ends. Then it
	// stops fetching, hands back what it had fetched but not handed out, waits
	// until what was handed out is committed, completed, abandoned or released,
	// gives its partitions up and returns nil. It waits for at most the
	// provider's drain timeout. It returns an error only if it can never work,
	// such as a hub of another shape; outages are retried.
	Run(ctx context.Context) error

	// NextOrchestration blocks until an instance has something to do or ctx
	// ends; then it returns ctx's error. No work is handed out after Run's
	// context has ended.
	NextOrchestration(ctx context.Context) (*OrchestrationWorkItem, error)

	// NextActivity blocks until there is an activity to run or ctx ends; then
	// it returns ctx's error.
	NextActivity(ctx context.Context) (*ActivityWorkItem, error)
}

// ErrInstanceNotFound says that no instance has the given ID.
var ErrInstanceNotFound = errors.New("instance not found")

// ErrSessionLost says that an instance was taken over by another worker before
// a checkpoint could be written. Nothing of the checkpoint counts.
var ErrSessionLost = errors.New("instance was taken over by another worker")

// ErrInstanceExists says that an instance with the given ID exists and may not
// be replaced. To [errors.Is] it is what every *[InstanceExistsError] is.
var ErrInstanceExists = errors.New("instance exists")

// An InstanceExistsError says that an instance could not be started because
// one with its ID exists.
type InstanceExistsError struct {
	InstanceID string
	Status     history.RuntimeStatus
}

// InstanceExistsFailure is the type of a failure that says what an
// [InstanceExistsError] does, with InstanceID and Status among its properties:
// a child could not be started. It is the name of .NET's exception.
const InstanceExistsFailure = "DurableTask.Core.Exceptions.OrchestrationAlreadyExistsException"

// Error uses the words of the .NET extension's 409 answer.
func (e *InstanceExistsError) Error() string {
	return fmt.Sprintf("An Orchestration instance with the status %s already exists.", e.Status)
}

// Is makes e what [ErrInstanceExists] stands for.
func (e *InstanceExistsError) Is(target error) bool { return target == ErrInstanceExists }
