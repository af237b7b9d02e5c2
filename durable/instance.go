package durable

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An InstanceID identifies an orchestration instance in its hub. As a
// [StartOption] it chooses the ID of the new instance.
type InstanceID string

// An Instance is an orchestration instance whose output is an O.
type Instance[O any] struct {
	ID     InstanceID
	client *Client
}

// InstanceOf returns the instance with the given ID, which need not exist. The
// caller says what its output is.
func InstanceOf[O any](c *Client, id InstanceID) *Instance[O] {
	return &Instance[O]{ID: id, client: c}
}

// Bounds of the interval at which [Instance.Wait] asks for the status.
const (
	waitIntervalMin = 50 * time.Millisecond
	waitIntervalMax = 2 * time.Second
)

// Wait waits until the instance has ended and returns its output. If it failed
// or was terminated, the error is an *[OrchestrationFailedError]. If ctx ends
// first, it is ctx's error; the instance goes on. Of an instance that failed the
// history is read, too, for the errors that errors.As and errors.Is find.
//
// It asks the hub again and again, at first after 50 ms and then at growing
// intervals of at most 2 s, and at once if the hub is a [provider.Awaiter] and
// tells that the instance has ended. If this process runs the instance, and the
// hub is a [provider.Follower], it asks every 2 s, just in case.
func (i *Instance[O]) Wait(ctx context.Context) (O, error) {
	for interval := waitIntervalMin; ; interval = min(interval*3/2, waitIntervalMax) {
		if s := i.follow(ctx); s != nil {
			return i.output(ctx, s)
		}
		s, err := i.client.Status(ctx, i.ID, Fetch{})
		if err == nil && s.Status.IsTerminal() {
			// Only now, since an output can be large.
			s, err = i.client.Status(ctx, i.ID, Fetch{Output: true})
		}
		switch {
		case err != nil:
			var none O
			return none, err
		case s.Status.IsTerminal():
			return i.output(ctx, s)
		}
		if err := i.pause(ctx, interval); err != nil {
			var none O
			return none, fmt.Errorf("wait for instance %s: %w", i.ID, err)
		}
	}
}

// follow returns the state in which the instance ended if the hub tells, and nil
// if the hub is to be asked.
func (i *Instance[O]) follow(ctx context.Context) *InstanceState {
	hub, ok := i.client.hub.(provider.Follower)
	if !ok {
		return nil
	}
	patience, cancel := context.WithTimeout(ctx, waitIntervalMax)
	defer cancel()
	return (*InstanceState)(hub.Follow(patience, string(i.ID)))
}

// pause waits for d, or less if the hub tells that the instance has ended. It
// returns an error if ctx ends first.
func (i *Instance[O]) pause(ctx context.Context, d time.Duration) error {
	hub, ok := i.client.hub.(provider.Awaiter)
	if !ok {
		pause.For(ctx, d)
		return context.Cause(ctx)
	}
	patience, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if err := hub.AwaitEnd(patience, string(i.ID)); err != nil && patience.Err() == nil {
		pause.For(ctx, d) // what is wrong, the next question tells
	}
	return context.Cause(ctx)
}

// output returns what an instance that has ended returned.
func (i *Instance[O]) output(ctx context.Context, s *InstanceState) (O, error) {
	if s.Status != history.Completed {
		var none O
		e := &OrchestrationFailedError{InstanceID: i.ID, Status: s.Status, Output: s.Output}
		if s.Status == history.Failed {
			e.explain(ctx, i.client)
		}
		return none, e
	}
	out, err := decode[O](s.Output)
	if err != nil {
		return out, fmt.Errorf("decode output of instance %s: %w", i.ID, err)
	}
	return out, nil
}

// An OrchestrationFailedError says that an instance ended in another way than
// by returning a result.
type OrchestrationFailedError struct {
	InstanceID InstanceID
	// Status is Failed, Terminated or Canceled.
	Status history.RuntimeStatus
	// Output is the text of the failure, or the reason of the termination; nil
	// if there is none.
	Output *string
	// Failure is what the history has of the failure. It is nil if the instance
	// was terminated, or if its history is gone or could not be read.
	Failure *history.FailureDetails

	causes []error // what could be made of Failure
}

// explain looks in the history for why the instance failed.
func (e *OrchestrationFailedError) explain(ctx context.Context, c *Client) {
	events, err := c.History(ctx, e.InstanceID)
	if err != nil {
		return // the output tells the text
	}
	for _, event := range slices.Backward(events) {
		if end, ok := event.(*history.ExecutionCompleted); ok && end.Failure != nil {
			e.Failure = end.Failure
			var registered namedErrors // without a registry, errors of this package only
			if c.registry != nil {
				registered = c.registry.errors
			}
			e.causes = registered.causesOf(end.Failure)
			return
		}
	}
}

// Unwrap returns the error that the orchestrator returned, if it has a name by
// [ErrorType] or [ErrorValue] in the client's registry and in that of the program
// that failed, and the failure that caused it, as an error.
func (e *OrchestrationFailedError) Unwrap() []error { return e.causes }

// Error says how the instance ended, and why.
func (e *OrchestrationFailedError) Error() string {
	how := "failed"
	switch e.Status {
	case history.Terminated:
		how = "was terminated"
	case history.Canceled:
		how = "was canceled"
	case history.Failed, history.Running, history.Completed, history.ContinuedAsNew, history.Pending, history.Suspended:
	}
	if e.Output == nil || *e.Output == "" {
		return fmt.Sprintf("orchestration %s %s", e.InstanceID, how)
	}
	return fmt.Sprintf("orchestration %s %s: %s", e.InstanceID, how, *e.Output)
}

// Status is [Client.Status] of the instance.
func (i *Instance[O]) Status(ctx context.Context, fetch Fetch) (*InstanceState, error) {
	return i.client.Status(ctx, i.ID, fetch)
}

// History is [Client.History] of the instance.
func (i *Instance[O]) History(ctx context.Context) ([]history.Event, error) {
	return i.client.History(ctx, i.ID)
}

// RaiseEvent is [Client.RaiseEvent] for the instance. [Event.Raise] does the
// same with a payload whose type is checked.
func (i *Instance[O]) RaiseEvent(ctx context.Context, name string, payload json.RawMessage) error {
	return i.client.RaiseEvent(ctx, i.ID, name, payload)
}

// Terminate is [Client.Terminate] of the instance.
func (i *Instance[O]) Terminate(ctx context.Context, reason string, opts ...TerminateOption) error {
	return i.client.Terminate(ctx, i.ID, reason, opts...)
}

// Suspend is [Client.Suspend] of the instance.
func (i *Instance[O]) Suspend(ctx context.Context, reason string) error {
	return i.client.Suspend(ctx, i.ID, reason)
}

// Resume is [Client.Resume] of the instance.
func (i *Instance[O]) Resume(ctx context.Context, reason string) error {
	return i.client.Resume(ctx, i.ID, reason)
}

// Rewind is [Client.Rewind] of the instance.
func (i *Instance[O]) Rewind(ctx context.Context, reason string) error {
	return i.client.Rewind(ctx, i.ID, reason)
}

// Restart is [Client.Restart] of the instance. The output of the instance that
// it returns has the same type.
func (i *Instance[O]) Restart(ctx context.Context, opts ...StartOption) (*Instance[O], error) {
	id, err := i.client.Restart(ctx, i.ID, opts...)
	if err != nil {
		return nil, err
	}
	return InstanceOf[O](i.client, id), nil
}

// Purge is [Client.Purge] of the instance.
func (i *Instance[O]) Purge(ctx context.Context, opts ...PurgeOption) (PurgeResult, error) {
	return i.client.Purge(ctx, i.ID, opts...)
}

func (id InstanceID) applyStart(o *startOptions) { o.id = id }

func (id InstanceID) applySubOrchestration(o *subOrchestrationOptions) { o.id = id }
