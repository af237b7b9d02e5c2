package durable

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// InstanceID identifies an orchestration instance in its task hub. As an option it sets
// the ID of the new instance.
//
// Applies to: [Start], [StartFrom], [Client.StartByName], [Client.Restart],
// [CallSubOrchestrator].
type InstanceID string

// Instance is an orchestration instance whose output has type O.
type Instance[O any] struct {
	ID     InstanceID
	client *Client
}

// InstanceOf returns the instance with the given ID. The caller chooses the output type
// O. InstanceOf does not check that the instance exists.
func InstanceOf[O any](c *Client, id InstanceID) *Instance[O] {
	return &Instance[O]{ID: id, client: c}
}

// Limits of the polling interval of [Instance.Wait].
const (
	waitIntervalMin = 50 * time.Millisecond
	waitIntervalMax = 2 * time.Second
)

// Wait waits until the instance has ended and returns its output. If the instance
// failed or was terminated, the error is an *[OrchestrationFailedError]. For a failed
// instance Wait also reads the history, so that errors.As and errors.Is find the
// original errors. If ctx is done first, Wait returns its error and the instance
// continues.
//
// Wait queries the hub immediately, again after 50 ms, and then at growing intervals of
// at most 2 seconds. If the hub is a [provider.Awaiter], Wait returns as soon as the hub
// reports the end. If the hub is a [provider.Follower] and this process runs the
// instance, Wait queries the hub only every 2 seconds, as a safeguard.
func (i *Instance[O]) Wait(ctx context.Context) (O, error) {
	for interval := waitIntervalMin; ; interval = min(interval*3/2, waitIntervalMax) {
		if s := i.follow(ctx); s != nil {
			return i.output(ctx, s)
		}
		s, err := i.client.Status(ctx, i.ID, Fetch{})
		if err == nil && s.Status.IsTerminal() {
			// Read the output only now, because it can be large.
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

// follow returns the final state of the instance if the hub reports it, or nil if Wait
// must query the hub.
func (i *Instance[O]) follow(ctx context.Context) *InstanceState {
	hub, ok := i.client.hub.(provider.Follower)
	if !ok {
		return nil
	}
	patience, cancel := context.WithTimeout(ctx, waitIntervalMax)
	defer cancel()
	return (*InstanceState)(hub.Follow(patience, string(i.ID)))
}

// pause waits for d, or until the hub reports that the instance has ended. It returns
// an error if ctx is done first.
func (i *Instance[O]) pause(ctx context.Context, d time.Duration) error {
	hub, ok := i.client.hub.(provider.Awaiter)
	if !ok {
		pause.For(ctx, d)
		return context.Cause(ctx)
	}
	patience, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if err := hub.AwaitEnd(patience, string(i.ID)); err != nil && patience.Err() == nil {
		pause.For(ctx, d) // the next query reports the problem
	}
	return context.Cause(ctx)
}

// output returns the output of an ended instance.
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

// OrchestrationFailedError means that an instance ended without a result: it failed or
// was terminated or canceled.
type OrchestrationFailedError struct {
	InstanceID InstanceID
	// Status is Failed, Terminated or Canceled.
	Status RuntimeStatus
	// Output is the failure text or the reason of the termination. It may be nil.
	Output *string
	// Failure is the failure that the history contains. It is nil if the instance was
	// terminated, or if its history is deleted or cannot be read.
	Failure *history.FailureDetails

	causes []error // see Unwrap
}

// explain sets Failure and causes from the history.
func (e *OrchestrationFailedError) explain(ctx context.Context, c *Client) {
	events, err := c.History(ctx, e.InstanceID)
	if err != nil {
		return // Output still has the text
	}
	for _, event := range slices.Backward(events) {
		if end, ok := event.(*history.ExecutionCompleted); ok && end.Failure != nil {
			e.Failure = end.Failure
			var registered namedErrors // without a registry, only errors of this package are matched
			if c.registry != nil {
				registered = c.registry.errors
			}
			e.causes = registered.causesOf(end.Failure)
			return
		}
	}
}

// Unwrap returns the orchestrator's error and the failure that caused it, if there is
// one. The orchestrator's error is included if it has a name ([ErrorType], [ErrorValue])
// in the registry of its program and in the client's registry, or if this package defines
// it, such as a [UsageError].
func (e *OrchestrationFailedError) Unwrap() []error { return e.causes }

// Error describes how the instance ended, and why.
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

// Status calls [Client.Status] for the instance.
func (i *Instance[O]) Status(ctx context.Context, fetch Fetch) (*InstanceState, error) {
	return i.client.Status(ctx, i.ID, fetch)
}

// History calls [Client.History] for the instance.
func (i *Instance[O]) History(ctx context.Context) ([]history.Event, error) {
	return i.client.History(ctx, i.ID)
}

// RaiseEvent calls [Client.RaiseEvent] for the instance. For a payload with a checked
// type use [Event.Raise].
func (i *Instance[O]) RaiseEvent(ctx context.Context, name string, payload json.RawMessage) error {
	return i.client.RaiseEvent(ctx, i.ID, name, payload)
}

// Terminate calls [Client.Terminate] for the instance.
func (i *Instance[O]) Terminate(ctx context.Context, reason string, opts ...TerminateOption) error {
	return i.client.Terminate(ctx, i.ID, reason, opts...)
}

// Suspend calls [Client.Suspend] for the instance.
func (i *Instance[O]) Suspend(ctx context.Context, reason string) error {
	return i.client.Suspend(ctx, i.ID, reason)
}

// Resume calls [Client.Resume] for the instance.
func (i *Instance[O]) Resume(ctx context.Context, reason string) error {
	return i.client.Resume(ctx, i.ID, reason)
}

// Rewind calls [Client.Rewind] for the instance.
func (i *Instance[O]) Rewind(ctx context.Context, reason string) error {
	return i.client.Rewind(ctx, i.ID, reason)
}

// Restart calls [Client.Restart] for the instance. It returns the new instance, which
// has the same output type.
func (i *Instance[O]) Restart(ctx context.Context, opts ...StartOption) (*Instance[O], error) {
	id, err := i.client.Restart(ctx, i.ID, opts...)
	if err != nil {
		return nil, err
	}
	return InstanceOf[O](i.client, id), nil
}

// Purge calls [Client.Purge] for the instance.
func (i *Instance[O]) Purge(ctx context.Context, opts ...PurgeOption) (PurgeResult, error) {
	return i.client.Purge(ctx, i.ID, opts...)
}

func (id InstanceID) applyStart(o *startOptions) { o.id = id }

func (id InstanceID) applySubOrchestration(o *subOrchestrationOptions) { o.id = id }

// MaxInstanceIDLength is the maximum length of an instance ID in UTF-16 code units (the
// extension's DurableClient.cs, MaxInstanceIdLength).
const MaxInstanceIDLength = 256

// InstanceIDError means that an ID is not a valid ID for an orchestration instance or
// an entity.
type InstanceIDError struct {
	ID     InstanceID
	Reason string // a complete sentence
}

// Error returns the reason.
func (e *InstanceIDError) Error() string { return e.Reason }

// ValidateInstanceID returns an *[InstanceIDError] if id is not valid for a new
// orchestration instance. A valid ID has 1 to 256 characters. It contains no /, \, #, ?
// or control characters, and does not start with @, which marks entities.
func ValidateInstanceID(id InstanceID) error {
	reason := invalidIDReason(string(id))
	switch {
	case id == "":
		reason = "Instance IDs must not be empty."
	case id[0] == '@' && utf8.ValidString(string(id)):
		reason = "Orchestration instance ids must not start with @."
	}
	if reason == "" {
		return nil
	}
	return &InstanceIDError{ID: id, Reason: reason}
}

// invalidIDReason returns the reason why s cannot be an instance ID, or an empty string if it
// can.
func invalidIDReason(s string) string {
	at := strings.IndexFunc(s, func(r rune) bool { return strings.ContainsRune(`/\#?`, r) || unicode.IsControl(r) })
	switch {
	case len(utf16.Encode([]rune(s))) > MaxInstanceIDLength:
		return fmt.Sprintf("Instance ID lengths must not exceed %d characters.", MaxInstanceIDLength)
	case !utf8.ValidString(s):
		return "Instance IDs must be valid UTF-8."
	case at >= 0:
		r, _ := utf8.DecodeRuneInString(s[at:])
		return fmt.Sprintf("Instance IDs must not contain /, \\, #, ? or control characters; %q contains %q.", s, r)
	}
	return ""
}
