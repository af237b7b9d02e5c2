package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/tracing"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/uuid"
)

// ErrInstanceNotFound says that no instance has the given ID.
var ErrInstanceNotFound = provider.ErrInstanceNotFound

// ErrInstanceExists says that an instance with the given ID exists and may not
// be replaced. The error is an *[InstanceExistsError], which has its status.
var ErrInstanceExists = provider.ErrInstanceExists

// An InstanceExistsError is the error of a start whose instance ID exists.
type InstanceExistsError = provider.InstanceExistsError

// ErrInstanceChanged says that an instance has changed since it was looked at.
var ErrInstanceChanged = provider.ErrInstanceChanged

// ErrContinuation says that the hub did not return the continuation of a query.
var ErrContinuation = provider.ErrContinuation

// ErrInstanceEnded says that an instance has completed, failed or been
// terminated, and takes no more messages.
var ErrInstanceEnded = errors.New("instance has ended")

// ErrNotSupported says that the hub's provider cannot do what was asked for.
var ErrNotSupported = provider.ErrNotSupported

// A Client starts orchestrations in a hub, sends them messages and reads what
// is known of them. Its methods may be called from several goroutines at once.
type Client struct {
	hub      provider.Client
	registry *Registry
	reuse    OverridableStates
	version  Version // of instances for which none was chosen
	tracer   *tracing.Tracer
}

// A ClientOption changes what a [Client] does.
type ClientOption interface{ applyClient(*Client) }

// NewClient returns a Client of the hub that p stores. The registry is needed
// only by [Start], to find an orchestrator's name.
func NewClient(p provider.Client, r *Registry, opts ...ClientOption) *Client {
	c := &Client{hub: p, registry: r}
	for _, o := range opts {
		o.applyClient(c)
	}
	return c
}

// OverridableStates says which existing instances a start with their ID may
// replace. It is a [ClientOption], with the names of host.json's
// overridableExistingInstanceStates.
type OverridableStates int

const (
	// NonRunningStates lets a start replace an instance that has ended. A start
	// with the ID of any other is refused with an
	// *[InstanceExistsError]. It is the default.
	NonRunningStates OverridableStates = iota
	// AnyState lets a start replace any instance.
	AnyState
)

func (s OverridableStates) applyClient(c *Client) { c.reuse = s }

// refused returns the statuses in which an existing instance is not replaced
// (the extension's OverridableStates.cs, ToDedupeStatuses).
func (s OverridableStates) refused() []history.RuntimeStatus {
	if s == AnyState {
		return nil
	}
	return []history.RuntimeStatus{history.Running, history.ContinuedAsNew, history.Pending, history.Suspended}
}

// Start starts an instance of orch, which must be in the client's registry.
// Without an [InstanceID] among opts it gets a random one. An instance that
// has that ID and has not ended makes it fail with an
// *[InstanceExistsError].
//
// Without a [Version] the instance has the one that orch is registered for, or
// the client's.
func Start[I, O any](ctx context.Context, c *Client, orch func(*Context, I) (O, error), in I, opts ...StartOption) (*Instance[O], error) {
	if c.registry == nil {
		return nil, fmt.Errorf("start %T: the client was made without a registry, and knows functions by name only", orch)
	}
	f, err := c.registry.functionOf(orchestratorKind, orch)
	if err != nil {
		return nil, err
	}
	input, err := encode(in)
	if err != nil {
		return nil, fmt.Errorf("encode input of orchestrator %s: %w", f.name, err)
	}
	if f.version != "" {
		opts = append([]StartOption{f.version}, opts...)
	}
	id, err := c.start(ctx, f.name, input, opts...)
	if err != nil {
		return nil, err
	}
	return InstanceOf[O](c, id), nil
}

// StartByName starts an instance of the orchestrator with the given wire name,
// which may be one of another program, and returns its ID. The input is JSON;
// if it is empty the orchestrator gets none.
func (c *Client) StartByName(ctx context.Context, name string, input json.RawMessage, opts ...StartOption) (InstanceID, error) {
	payload, err := text(input)
	if err != nil {
		return "", fmt.Errorf("start orchestration %s: its input: %w", name, err)
	}
	return c.start(ctx, name, payload, opts...)
}

func (c *Client) start(ctx context.Context, name string, input *string, opts ...StartOption) (InstanceID, error) {
	o := startOptions{version: &c.version}
	for _, opt := range opts {
		opt.applyStart(&o)
	}
	if name == "" {
		return "", errors.New("start orchestration: its name is empty")
	}
	if o.id == "" {
		o.id = InstanceID(newID())
	}
	if err := ValidateInstanceID(o.id); err != nil {
		return "", err
	}
	if err := checkStart(name, *o.version, o.tags); err != nil {
		return "", err
	}
	started := &history.ExecutionStarted{
		Header:   history.NewHeader(c.now()),
		Instance: history.OrchestrationInstance{InstanceID: string(o.id), ExecutionID: newID()},
		Name:     name,
		Version:  string(*o.version),
		Input:    input,
		Tags:     o.tags,
	}
	if o.at.After(started.Timestamp) {
		started.ScheduledStart = history.Ticks(o.at)
	}
	if err := checkTexts("ExecutionStarted", started); err != nil {
		return "", fmt.Errorf("start instance %s: %w", o.id, err)
	}
	ctx, traced := c.tracer.StartOrchestration(ctx, started)
	msg := provider.TaskMessage{Event: started, Target: started.Instance}
	err := c.hub.StartInstance(ctx, msg, c.reuse.refused())
	traced(err)
	if err != nil {
		return "", fmt.Errorf("start instance %s of %s: %w", o.id, name, err)
	}
	return o.id, nil
}

// Status returns what is known of an instance, or [ErrInstanceNotFound].
func (c *Client) Status(ctx context.Context, id InstanceID, fetch Fetch) (*InstanceState, error) {
	s, err := c.instance(ctx, id, provider.Fetch(fetch))
	if err != nil {
		return nil, fmt.Errorf("read status of instance %s: %w", id, err)
	}
	return (*InstanceState)(s), nil
}

// instance is the provider's, of an ID that can be one: a hub that stores no other may
// take it for one that it stores.
func (c *Client) instance(ctx context.Context, id InstanceID, fetch provider.Fetch) (*provider.InstanceState, error) {
	if err := checkTexts("instance ID", id); err != nil {
		return nil, err
	}
	return c.hub.Instance(ctx, string(id), fetch)
}

// History returns the events of an instance's current execution in order,
// empty if there are none or the instance is unknown.
func (c *Client) History(ctx context.Context, id InstanceID) ([]history.Event, error) {
	err := checkTexts("instance ID", id)
	if err != nil {
		return nil, fmt.Errorf("read history of instance %q: %w", id, err)
	}
	h, err := c.hub.History(ctx, string(id))
	if err != nil {
		return nil, fmt.Errorf("read history of instance %s: %w", id, err)
	}
	return h, nil
}

// RaiseEvent sends an instance the event with the given name. The payload is
// JSON; if it is empty the event has none. An instance that is unknown or has
// ended makes it fail with [ErrInstanceNotFound] or [ErrInstanceEnded].
func (c *Client) RaiseEvent(ctx context.Context, id InstanceID, name string, payload json.RawMessage) error {
	if name == "" {
		return fmt.Errorf("raise event for instance %s: the event's name is empty", id)
	}
	input, err := text(payload)
	if err != nil {
		return fmt.Errorf("raise event %s for instance %s: its payload: %w", name, id, err)
	}
	e := &history.EventRaised{Header: history.NewHeader(c.now()), Name: name, Input: input}
	ctx, traced := c.tracer.RaiseEvent(ctx, e, string(id))
	err = c.send(ctx, id, e, "raise event "+name)
	traced(err)
	if err != nil {
		return fmt.Errorf("raise event %s for instance %s: %w", name, id, err)
	}
	return nil
}

// now returns the hub's time.
func (c *Client) now() time.Time {
	if clock, ok := c.hub.(provider.Clock); ok {
		return clock.Now()
	}
	return time.Now()
}

// send sends e to whichever execution the instance has by then. It looks first
// whether there is one that takes it: a hub does not keep messages that nobody
// will take. Without statuses, any will do in which the instance has not ended,
// and the hub need not be asked if this process runs the instance.
func (c *Client) send(ctx context.Context, id InstanceID, e history.Event, operation string, statuses ...history.RuntimeStatus) error {
	if err := checkTexts(e.Type().String(), e); err != nil {
		return err
	}
	if follower, ok := c.hub.(provider.Follower); !ok || len(statuses) > 0 || !follower.Runs(string(id)) {
		s, err := c.instance(ctx, id, provider.Fetch{})
		if err != nil {
			return err
		}
		if s.Status.IsTerminal() || len(statuses) > 0 && !slices.Contains(statuses, s.Status) {
			return &InstanceStateError{InstanceID: id, Operation: operation, Status: s.Status}
		}
	}
	target := history.OrchestrationInstance{InstanceID: string(id)}
	return c.hub.Send(ctx, provider.TaskMessage{Event: e, Target: target})
}

// text returns raw as a payload: nil if it is empty.
func text(raw json.RawMessage) (*string, error) {
	switch {
	case len(raw) == 0:
		return nil, nil
	case !utf8.Valid(raw):
		return nil, &TextError{fmt.Sprintf("%.40q", []byte(raw))}
	case !json.Valid(raw):
		return nil, fmt.Errorf("%.40q is not JSON", []byte(raw))
	}
	return new(string(raw)), nil
}

// newID returns a random GUID in .NET's "N" form, 32 hexadecimal digits.
func newID() string { return strings.ReplaceAll(uuid.NewString(), "-", "") }
