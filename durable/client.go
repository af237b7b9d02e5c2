package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/tracing"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
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

// Restart starts an instance with the name, the input, the version and the tags
// that another was started with, and returns its ID. Among opts can be its ID,
// which can be that of the other; otherwise it gets a random one. What opts say
// of the version and the tags counts in place of the other's.
//
// If the other instance is unknown it fails with [ErrInstanceNotFound], and if
// the ID is that of an instance that has not ended, with an
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
	restarted, err := c.start(ctx, s.Name, s.Input, append(as, opts...)...)
	if err != nil {
		return "", fmt.Errorf("restart instance %s: %w", id, err)
	}
	return restarted, nil
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

// List returns one page of the instances that match q.
func (c *Client) List(ctx context.Context, q Query) (*Page, error) {
	p, err := c.list(ctx, q.rows())
	if err != nil {
		return nil, err
	}
	return &Page{
		Instances:    converted(p.Instances, func(s *provider.InstanceState) *InstanceState { return (*InstanceState)(s) }),
		Continuation: p.Continuation,
		Unreadable:   converted(p.Unreadable, func(u provider.UnreadableInstance) UnreadableInstance { return UnreadableInstance(u) }),
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

// All returns an iterator over all instances that match q, beginning with the
// page that q asks for. It reads page by page, as far as it is ranged over. If
// a page cannot be read it yields the error, and ends. It passes over instances that
// are unreadable, which [Client.List] reports.
func (c *Client) All(ctx context.Context, q Query) iter.Seq2[*InstanceState, error] {
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

// pages is All by page.
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

// Why returns why an instance does not go on: what it waits for, since when, and at which
// lines of its code. It replays the history in memory with the client's registry; nothing
// is written. Without code for the instance it returns what the history alone tells.
//
// It fails with [ErrInstanceNotFound] if there is no such instance, and if the hub cannot
// be read.
func (c *Client) Why(ctx context.Context, id InstanceID) (*Wait, error) { return why(ctx, c, id) }

// Tracking returns a page of the tracking records of an instance: every event of all
// its executions, oldest first, whether their histories are still there or not. A hub
// that keeps no tracking records makes it fail with [ErrNotSupported].
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
		Records:      converted(page.Records, func(r provider.TrackingRecord) TrackingRecord { return TrackingRecord(r) }),
		Continuation: page.Continuation,
	}, nil
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

// Suspend makes an instance take no notice of anything until it is resumed, as
// soon as it is next looked at. Activities that run go on; their results, and
// events, are kept for later. An instance that has not started yet is suspended
// when it does. An instance that is unknown makes it fail with
// [ErrInstanceNotFound], one that is suspended or has ended with an
// *[InstanceStateError].
func (c *Client) Suspend(ctx context.Context, id InstanceID, reason string) error {
	e := &history.ExecutionSuspended{Header: history.NewHeader(c.now()), Reason: &reason}
	if err := c.send(ctx, id, e, OperationSuspend, history.Pending, history.Running, history.ContinuedAsNew); err != nil {
		return fmt.Errorf("suspend instance %s: %w", id, err)
	}
	return nil
}

// Resume ends the suspension of an instance. An instance that is unknown makes
// it fail with [ErrInstanceNotFound], one that is not suspended with an
// *[InstanceStateError].
func (c *Client) Resume(ctx context.Context, id InstanceID, reason string) error {
	e := &history.ExecutionResumed{Header: history.NewHeader(c.now()), Reason: &reason}
	if err := c.send(ctx, id, e, OperationResume, history.Suspended); err != nil {
		return fmt.Errorf("resume instance %s: %w", id, err)
	}
	return nil
}

// Terminate ends an instance as soon as it is next looked at; reason becomes
// its output. One that has not started never will. Activities that run go on.
// So do the instance's children, unless [Recursive] is among opts. An instance
// that is unknown or has ended makes it fail with [ErrInstanceNotFound] or
// [ErrInstanceEnded].
//
// A recursive Terminate waits, until ctx ends, for each instance to have ended:
// only then it is certain which children it has. It fails with
// [ErrInstanceEnded] only if all of them had ended.
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

// Rewind takes back the failure of an instance: the activities that failed run
// again, children that failed are rewound in turn, and what succeeded is not
// done again. What the orchestrator has answered in some other way, such as a
// failure that it caught, stays as it was. reason is recorded in the history of
// the instances that go on.
//
// An instance that is unknown makes it fail with [ErrInstanceNotFound], one that
// has not failed with an *[InstanceStateError], and a hub that cannot rewind
// with [ErrNotSupported]. If a rewind is interrupted, repeat it: it completes the
// interrupted one.
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
	// A rewind that was interrupted leaves the instance Pending. The provider tells it from an
	// instance that was only started.
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
	if errors.Is(err, provider.ErrInstanceChanged) || errors.Is(err, ErrInstanceNotFound) { // another client was faster
		if s, lookErr := c.instance(ctx, id, provider.Fetch{}); lookErr == nil && s.Status != history.Failed {
			return &InstanceStateError{InstanceID: id, Operation: OperationRewind, Status: s.Status}
		}
	}
	return err
}

// send sends e to the execution that the instance has when it arrives. It first checks
// that the instance has one of the statuses: a hub does not keep messages for which
// there is no receiver. Without statuses, any will do in which the instance has not
// ended, and the hub need not be asked if this process runs the instance.
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

// Purge removes all that is stored of an instance that has ended: its state,
// its history and its payloads. With [Recursive] it removes the instance's
// children too, and nothing at all if one of them has not ended. If it is cut
// off, doing it again does the rest.
//
// An instance that is unknown makes it fail with [ErrInstanceNotFound], one that
// has not ended with an *[InstanceStateError], and a hub that cannot purge with
// [ErrNotSupported]. An instance that is started anew or rewound meanwhile
// stays: the error is an *[InstanceStateError] then too, or
// [ErrInstanceChanged] if it has ended again.
func (c *Client) Purge(ctx context.Context, id InstanceID, opts ...PurgeOption) (PurgeResult, error) {
	n, err := (&purge{c, purgeOptionsOf(opts), new(provider.Query)}).run(ctx, id)
	if err != nil {
		err = fmt.Errorf("purge instance %s: %w", id, err)
	}
	return PurgeResult{Instances: n}, err
}

// PurgeMany purges the instances that filter selects, several at a time. Each is looked
// at again before it goes, and stays if it does not match any more. An
// instance that cannot be purged does not keep it from purging the others. If it
// fails, is cut off, or ctx ends, the result says what was removed until then,
// and doing it again does the rest.
func (c *Client) PurgeMany(ctx context.Context, filter PurgeFilter, opts ...PurgeOption) (PurgeResult, error) {
	ended := []history.RuntimeStatus{history.Completed, history.Failed, history.Canceled, history.Terminated}
	statuses := slices.DeleteFunc(ended, func(s history.RuntimeStatus) bool {
		return len(filter.Statuses) > 0 && !slices.Contains(filter.Statuses, s)
	})
	if len(statuses) == 0 {
		return PurgeResult{}, nil
	}
	var tally purgeTally
	var group errgroup.Group // not to be cut off by an error
	group.SetLimit(purgesAtOnce)
	query := provider.Query{
		CreatedFrom: filter.CreatedFrom, CreatedTo: filter.CreatedTo, Statuses: statuses,
		IDPrefix: filter.IDPrefix, Name: filter.Name,
	}
	p := &purge{c, purgeOptionsOf(opts), &query}
	var listErr error
	unreadable := 0
	for page, err := range c.pages(ctx, query) {
		if err != nil {
			listErr = err
			break
		}
		unreadable += len(page.Unreadable)
		for _, s := range page.Instances {
			id := InstanceID(s.Instance.InstanceID)
			group.Go(func() error {
				n, err := p.run(ctx, id)
				tally.add(id, n, err)
				return nil
			})
		}
	}
	_ = group.Wait() // errors are in the tally
	return PurgeResult{Instances: tally.instances, Unreadable: unreadable}, tally.error(listErr)
}

// SignalEntity has an entity perform the operation with the given wire name. The
// input is JSON; if it is empty the operation gets none.
func (c *Client) SignalEntity(ctx context.Context, e AnyEntity, operation string, input json.RawMessage, opts ...SignalOption) error {
	id, err := e.entityID(c.registry)
	if err != nil {
		return err
	}
	return c.signal(ctx, id, operation, input, opts)
}

// DeleteEntity signals an entity to delete itself, by the operation delete, which
// every entity has; one that is none of ours may take it for something else. An
// entity that does not exist does not mind.
func (c *Client) DeleteEntity(ctx context.Context, e AnyEntity) error {
	return c.SignalEntity(ctx, e, deleteOperation, nil)
}

func (c *Client) signal(ctx context.Context, id entity.ID, operation string, in any, opts []SignalOption) error {
	input, err := encode(in)
	if err != nil {
		return fmt.Errorf("encode input of operation %s of %s: %w", operation, id, err)
	}
	if err := errors.Join(checkTexts("operation", operation), checkTexts("input", input)); err != nil {
		return fmt.Errorf("signal operation %q of %s: %w", operation, id, err)
	}
	now := c.now()
	name, text := entity.NewSignal(uuid.NewString(), operation, input, dueAt(now, opts), now)
	text = c.tracer.SignalEntity(ctx, text, now)
	if err := c.sendEntity(ctx, id, name, text, now); err != nil {
		return fmt.Errorf("signal operation %s of %s: %w", operation, id, err)
	}
	return nil
}

// sendEntity sends an entity a message, whether it exists or not.
func (c *Client) sendEntity(ctx context.Context, id entity.ID, name, text string, now time.Time) error {
	return c.hub.Send(ctx, provider.TaskMessage{
		Event:  &history.EventRaised{Header: history.NewHeader(now), Name: name, Input: &text},
		Target: history.OrchestrationInstance{InstanceID: id.String()},
	})
}

// Entity returns what is known of an entity, with its state. An entity that does
// not exist makes it fail with [ErrEntityNotFound].
func (c *Client) Entity(ctx context.Context, e AnyEntity) (*EntityState, error) {
	id, err := e.entityID(c.registry)
	if err != nil {
		return nil, err
	}
	row, err := c.hub.Instance(ctx, id.String(), provider.Fetch{Input: true})
	if errors.Is(err, provider.ErrInstanceNotFound) {
		return nil, fmt.Errorf("read entity %s: %w", id, ErrEntityNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read entity %s: %w", id, err)
	}
	s, err := entityState(row, true)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read entity %s: %w", id, err)
	case !s.Exists:
		return nil, fmt.Errorf("read entity %s: %w", id, ErrEntityNotFound)
	}
	return s, nil
}

// ListEntities returns one page of the entities that match q.
func (c *Client) ListEntities(ctx context.Context, q EntityQuery) (*EntityPage, error) {
	rows, err := q.rows()
	if err == nil {
		err = checkTexts("EntityQuery", q)
	}
	if err != nil {
		return nil, fmt.Errorf("list entities: %w", err)
	}
	page := new(EntityPage)
	for range emptyPages {
		found, err := c.hub.Instances(ctx, rows)
		if err != nil {
			return nil, fmt.Errorf("list entities: %w", err)
		}
		for _, row := range found.Instances {
			s, err := entityState(row, q.FetchState)
			switch {
			case err != nil:
				page.Unreadable = append(page.Unreadable, UnreadableInstance{InstanceID: row.Instance.InstanceID, Cause: err})
			case s.Exists || q.IncludeEmpty:
				page.Entities = append(page.Entities, s)
			}
		}
		for _, u := range found.Unreadable {
			page.Unreadable = append(page.Unreadable, UnreadableInstance(u))
		}
		rows.Continuation, page.Continuation = found.Continuation, found.Continuation
		if len(page.Entities) > 0 || page.Continuation == "" {
			break
		}
	}
	return page, nil
}

// AllEntities returns an iterator over all entities that match q, as [Client.All]
// does over instances.
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

// CleanEntities removes what is left of entities that do not exist, and releases
// the locks of orchestrations that do not run any more. It is never needed for
// entities to work, but for storage not to grow, and after a lock's holder was
// purged while it ran. A hub that cannot purge makes it fail with
// [ErrNotSupported] if there is something to remove.
//
// If it fails, or ctx ends, the result says what was done until then, and doing it
// again does the rest.
func (c *Client) CleanEntities(ctx context.Context, what EntityCleaning) (EntityCleaningResult, error) {
	if what.ReorderWindow <= 0 {
		what.ReorderWindow = DefaultEntityReorderWindow
	}
	cleaner := entityCleaner{client: c, what: what, idleSince: c.now().Add(-what.ReorderWindow)}
	var group errgroup.Group // not to be cut off by an error
	group.SetLimit(purgesAtOnce)
	var listErr error
	for row, err := range c.All(ctx, Query{IDPrefix: "@"}) {
		if err != nil {
			listErr = err
			break
		}
		group.Go(func() error {
			cleaner.clean(ctx, row)
			return nil
		})
	}
	_ = group.Wait() // errors are in the cleaner
	if err := errors.Join(append(cleaner.errs, listErr)...); err != nil {
		return cleaner.result, fmt.Errorf("clean entities: %w", err)
	}
	return cleaner.result, nil
}

// now returns the hub's time.
func (c *Client) now() time.Time {
	if clock, ok := c.hub.(provider.Clock); ok {
		return clock.Now()
	}
	return time.Now()
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
