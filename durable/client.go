package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/tracing"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Client starts orchestrations in a task hub, sends them messages and reads their
// states. Its methods are safe for concurrent use.
type Client struct {
	hub      provider.Client
	registry *Registry
	reuse    OverridableStates
	version  Version // the default version of new instances
	tracer   *tracing.Tracer
}

// ClientOption configures a [Client]. Version, OverridableStates and Tracing implement
// it.
type ClientOption interface{ applyClient(*Client) }

// NewClient returns a Client of the hub that p stores. The registry maps functions to
// names, for [Start] and for calls that name an entity by its type. [Client.Why] replays
// the orchestrators of the registry. [Instance.Wait] uses the registered errors to restore
// the original error of a failure. The registry may be nil if the client needs none of
// these.
func NewClient(p provider.Client, r *Registry, opts ...ClientOption) *Client {
	c := &Client{hub: p, registry: r}
	for _, o := range opts {
		o.applyClient(c)
	}
	return c
}

// StartByName starts an instance of the orchestrator with the given wire name and
// returns its ID. Another program may implement the orchestrator. The input is JSON; an
// empty input means none.
func (c *Client) StartByName(ctx context.Context, name string, input json.RawMessage, opts ...StartOption) (InstanceID, error) {
	payload, err := text(input)
	if err != nil {
		return "", fmt.Errorf("start orchestration %s: input: %w", name, err)
	}
	return startInstance(ctx, c, name, payload, opts...)
}

// Restart starts an instance with the name, input, version and tags of the instance id
// and returns the ID of the new instance. Options override the version and the tags.
// With an [InstanceID] option the new instance gets that ID, which may be id itself;
// otherwise it gets a random ID.
//
// If the instance id does not exist, Restart fails with [ErrInstanceNotFound]. If the
// ID of the new instance belongs to an instance that has not ended, it fails with an
// *[InstanceExistsError].
func (c *Client) Restart(ctx context.Context, id InstanceID, opts ...StartOption) (InstanceID, error) {
	s, err := c.instance(ctx, id, provider.Fetch{Input: true})
	if err != nil {
		return "", fmt.Errorf("restart instance %s: %w", id, err)
	}
	as := []StartOption{Version(s.Version)}
	if s.Tags != nil {
		as = append(as, Tags(s.Tags))
	}
	restarted, err := startInstance(ctx, c, s.Name, s.Input, append(as, opts...)...)
	if err != nil {
		return "", fmt.Errorf("restart instance %s: %w", id, err)
	}
	return restarted, nil
}

// Status returns the state of an instance, or [ErrInstanceNotFound].
func (c *Client) Status(ctx context.Context, id InstanceID, fetch Fetch) (*InstanceState, error) {
	s, err := c.instance(ctx, id, provider.Fetch(fetch))
	if err != nil {
		return nil, fmt.Errorf("read status of instance %s: %w", id, err)
	}
	return (*InstanceState)(s), nil
}

// instance reads an instance from the hub. It rejects IDs that the hub cannot store,
// because the hub could mistake one for the ID of another instance.
func (c *Client) instance(ctx context.Context, id InstanceID, fetch provider.Fetch) (*provider.InstanceState, error) {
	if err := checkTexts("instance ID", id); err != nil {
		return nil, err
	}
	return c.hub.Instance(ctx, string(id), fetch)
}

// ListInstances returns one page of the instances that match q.
func (c *Client) ListInstances(ctx context.Context, q Query) (*Page, error) {
	p, err := c.list(ctx, q.rows())
	if err != nil {
		return nil, err
	}
	return &Page{
		Instances:    convertAll(p.Instances, func(s *provider.InstanceState) *InstanceState { return (*InstanceState)(s) }),
		Continuation: p.Continuation,
		Unreadable:   convertAll(p.Unreadable, func(u provider.UnreadableInstance) UnreadableInstance { return UnreadableInstance(u) }),
	}, nil
}

func (c *Client) list(ctx context.Context, q provider.Query) (*provider.Page, error) {
	err := checkTexts("Query", q)
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	p, err := c.hub.Instances(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	return p, nil
}

// AllInstances returns an iterator over all instances that match q, starting with the
// page that q.Continuation selects. It reads pages on demand. If a page cannot be read,
// it yields the error and ends. It skips unreadable instances; [Client.ListInstances]
// reports them.
func (c *Client) AllInstances(ctx context.Context, q Query) iter.Seq2[*InstanceState, error] {
	return func(yield func(*InstanceState, error) bool) {
		for page, err := range c.pages(ctx, q.rows()) {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, s := range page.Instances {
				if !yield((*InstanceState)(s), nil) {
					return
				}
			}
		}
	}
}

// pages returns an iterator over the pages of a query. It ends after the first error.
func (c *Client) pages(ctx context.Context, q provider.Query) iter.Seq2[*provider.Page, error] {
	return func(yield func(*provider.Page, error) bool) {
		for {
			page, err := c.list(ctx, q)
			if !yield(page, err) || err != nil || page.Continuation == "" {
				return
			}
			q.Continuation = page.Continuation
		}
	}
}

// History returns the events of an instance's current execution, in order. It is empty
// if the instance has no events or does not exist.
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

// Why explains what an instance is waiting for, since when, and at which lines of its
// code. It replays the history in memory with the client's registry and writes nothing.
// If the registry has no code for the instance, the result contains only what the
// history shows.
//
// Why fails with [ErrInstanceNotFound] if the instance does not exist. An outage of the
// hub is an error too.
func (c *Client) Why(ctx context.Context, id InstanceID) (*Diagnosis, error) { return why(ctx, c, id) }

// Tracking returns a page of the tracking records of an instance: the events of all its
// executions, oldest first. Records outlive the histories that they were copied from.
// If the hub keeps no tracking records, Tracking fails with [ErrNotSupported].
func (c *Client) Tracking(ctx context.Context, id InstanceID, q TrackingQuery) (*TrackingPage, error) {
	tracker, ok := c.hub.(provider.Tracker)
	if !ok {
		return nil, fmt.Errorf("read tracking records of instance %s: %w", id, ErrNotSupported)
	}
	err := checkTexts("instance ID", id)
	if err != nil {
		return nil, fmt.Errorf("read tracking records of instance %q: %w", id, err)
	}
	page, err := tracker.Tracking(ctx, string(id), provider.TrackingQuery(q))
	if err != nil {
		return nil, fmt.Errorf("read tracking records of instance %s: %w", id, err)
	}
	return &TrackingPage{
		Records:      convertAll(page.Records, func(r provider.TrackingRecord) TrackingRecord { return TrackingRecord(r) }),
		Continuation: page.Continuation,
	}, nil
}

// RaiseEvent sends an event with the given name to an instance. The payload is JSON; an
// empty payload means none. RaiseEvent fails with [ErrInstanceNotFound] if the instance
// does not exist, and with [ErrInstanceEnded] if it has ended.
func (c *Client) RaiseEvent(ctx context.Context, id InstanceID, name string, payload json.RawMessage) error {
	if name == "" {
		return fmt.Errorf("raise event for instance %s: the event's name is empty", id)
	}
	input, err := text(payload)
	if err != nil {
		return fmt.Errorf("raise event %s for instance %s: payload: %w", name, id, err)
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

// Suspend pauses an instance until [Client.Resume] resumes it. The suspension takes
// effect when a worker next processes the instance. Running activities continue; their
// results and external events are kept for later. A pending instance is suspended when
// it starts. Suspend fails with [ErrInstanceNotFound] if the instance does not exist,
// and with an *[InstanceStateError] if it is suspended or has ended.
func (c *Client) Suspend(ctx context.Context, id InstanceID, reason string) error {
	e := &history.ExecutionSuspended{Header: history.NewHeader(c.now()), Reason: &reason}
	if err := c.send(ctx, id, e, OperationSuspend, history.Pending, history.Running, history.ContinuedAsNew); err != nil {
		return fmt.Errorf("suspend instance %s: %w", id, err)
	}
	return nil
}

// Resume ends the suspension of an instance. It fails with [ErrInstanceNotFound] if the
// instance does not exist, and with an *[InstanceStateError] unless it is suspended.
func (c *Client) Resume(ctx context.Context, id InstanceID, reason string) error {
	e := &history.ExecutionResumed{Header: history.NewHeader(c.now()), Reason: &reason}
	if err := c.send(ctx, id, e, OperationResume, history.Suspended); err != nil {
		return fmt.Errorf("resume instance %s: %w", id, err)
	}
	return nil
}

// Terminate ends an instance when a worker next processes it. The instance's output is
// reason. A pending instance never starts. Running activities continue, and so do
// children unless the [Recursive] option is set. Terminate fails with
// [ErrInstanceNotFound] if the instance does not exist, and with [ErrInstanceEnded] if
// it has ended.
//
// A recursive Terminate waits until each instance has ended or ctx is done, because an
// instance can start children until it ends. It fails with [ErrInstanceEnded] only if
// all the instances had already ended.
func (c *Client) Terminate(ctx context.Context, id InstanceID, reason string, opts ...TerminateOption) error {
	var o terminateOptions
	for _, opt := range opts {
		opt.applyTerminate(&o)
	}
	var err error
	if o.recursive {
		err = terminateFamily(ctx, c, id, reason)
	} else {
		err = c.terminate(ctx, id, reason)
	}
	if err != nil {
		return fmt.Errorf("terminate instance %s: %w", id, err)
	}
	return nil
}

func (c *Client) terminate(ctx context.Context, id InstanceID, reason string) error {
	e := &history.ExecutionTerminated{Header: history.NewHeader(c.now()), Reason: &reason}
	return c.send(ctx, id, e, OperationTerminate)
}

// Rewind resumes a failed instance. Failed activities and steps run again, and failed
// children are rewound in turn. Completed work is not repeated. Failures that the
// orchestrator handled stay as they are, for example if it called another activity. The
// reason is recorded in the history of each rewound instance.
//
// Rewind fails with [ErrInstanceNotFound] if the instance does not exist, and with an
// *[InstanceStateError] if it has not failed. If the instance or such a child held locks
// of entities until it failed, Rewind changes nothing and fails with [ErrLocksReleased].
// If the hub cannot rewind, it fails with [ErrNotSupported]. If a rewind is interrupted,
// repeat it to complete it.
func (c *Client) Rewind(ctx context.Context, id InstanceID, reason string) error {
	if err := c.rewind(ctx, id, reason); err != nil {
		return fmt.Errorf("rewind instance %s: %w", id, err)
	}
	return nil
}

func (c *Client) rewind(ctx context.Context, id InstanceID, reason string) error {
	s, err := c.instance(ctx, id, provider.Fetch{})
	if err != nil {
		return err
	}
	// An interrupted rewind leaves the instance Pending. The provider can tell it from
	// an instance that has not started yet.
	if s.Status != history.Failed && s.Status != history.Pending {
		return &InstanceStateError{InstanceID: id, Operation: OperationRewind, Status: s.Status}
	}
	if err := checkTexts("reason", reason); err != nil {
		return err
	}
	rewinder, ok := c.hub.(provider.Rewinder)
	if !ok {
		return ErrNotSupported
	}
	err = rewinder.Rewind(ctx, string(id), reason)
	if errors.Is(err, provider.ErrInstanceChanged) || errors.Is(err, ErrInstanceNotFound) { // another client may have rewound it first
		if s, lookErr := c.instance(ctx, id, provider.Fetch{}); lookErr == nil && s.Status != history.Failed {
			return &InstanceStateError{InstanceID: id, Operation: OperationRewind, Status: s.Status}
		}
	}
	return err
}

// send sends e to the instance's current execution. It first checks that the instance
// has one of the given statuses, because a hub discards messages without a receiver.
// Without statuses the instance must not have ended. In that case the hub is not
// queried if this process runs the instance.
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

// Purge removes an instance that has ended: its state, its history and its payloads.
// With [Recursive] it also removes the instance's children, and nothing at all if one
// of them has not ended. If Purge is interrupted, repeat it to remove the rest.
//
// Purge fails with [ErrInstanceNotFound] if the instance does not exist, and with an
// *[InstanceStateError] if it has not ended. If the hub cannot purge, it fails with
// [ErrNotSupported]. It keeps an instance that is restarted or rewound during the
// purge. It then fails with an *[InstanceStateError], or with [ErrInstanceChanged] if
// that instance has ended again.
func (c *Client) Purge(ctx context.Context, id InstanceID, opts ...PurgeOption) (PurgeResult, error) {
	n, err := (&purge{c, purgeOptionsOf(opts), new(provider.Query)}).run(ctx, id)
	if err != nil {
		err = fmt.Errorf("purge instance %s: %w", id, err)
	}
	return PurgeResult{Instances: n}, err
}

// PurgeMany purges the instances that filter selects, up to 10 at a time. It checks
// each instance again right before it purges it. If an instance cannot be purged,
// PurgeMany continues with the others; the error has the first 10 failures. If
// PurgeMany fails or ctx is done, the result reports what was removed; repeat the call
// to remove the rest.
func (c *Client) PurgeMany(ctx context.Context, filter PurgeFilter, opts ...PurgeOption) (PurgeResult, error) {
	return purgeMany(ctx, c, filter, purgeOptionsOf(opts))
}

// SignalEntity sends an entity a signal for the operation with the given wire name. The
// input is JSON; an empty input means none.
func (c *Client) SignalEntity(ctx context.Context, e AnyEntity, operation string, input json.RawMessage, opts ...SignalOption) error {
	id, err := e.entityID(c.registry)
	if err != nil {
		return err
	}
	return signalEntity(ctx, c, id, operation, input, opts)
}

// DeleteEntity signals an entity to delete itself. It uses the operation delete, which
// all entities of this package have; an entity of another program may define it
// differently. Deleting an entity that does not exist is not an error.
func (c *Client) DeleteEntity(ctx context.Context, e AnyEntity) error {
	return c.SignalEntity(ctx, e, deleteOperation, nil)
}

// Entity returns an entity, including its state. It fails with [ErrEntityNotFound] if
// the entity does not exist.
func (c *Client) Entity(ctx context.Context, e AnyEntity) (*EntityState, error) {
	return readEntity(ctx, c, e)
}

// ListEntities returns one page of the entities that match q.
func (c *Client) ListEntities(ctx context.Context, q EntityQuery) (*EntityPage, error) {
	return listEntities(ctx, c, q)
}

// AllEntities returns an iterator over all entities that match q. Like
// [Client.AllInstances], it reads pages on demand.
func (c *Client) AllEntities(ctx context.Context, q EntityQuery) iter.Seq2[*EntityState, error] {
	return func(yield func(*EntityState, error) bool) {
		for {
			page, err := c.ListEntities(ctx, q)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, s := range page.Entities {
				if !yield(s, nil) {
					return
				}
			}
			if page.Continuation == "" {
				return
			}
			q.Continuation = page.Continuation
		}
	}
}

// CleanEntities removes the remains of deleted entities and releases locks of
// orchestrations that no longer run. Entities work without it. Call it to limit
// storage, or after an orchestration that held a lock was purged while it ran. If the
// hub cannot purge and there is something to remove, CleanEntities fails with
// [ErrNotSupported].
//
// If CleanEntities fails or ctx is done, the result reports the work done so far;
// repeat the call to do the rest.
func (c *Client) CleanEntities(ctx context.Context, what EntityCleaning) (EntityCleaningResult, error) {
	return cleanEntities(ctx, c, what)
}

// now returns the current time of the hub's clock.
func (c *Client) now() time.Time {
	if clock, ok := c.hub.(provider.Clock); ok {
		return clock.Now()
	}
	return time.Now()
}
