package durable

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/uuid"
)

// Start starts an instance of orch, which must be in the client's registry. Without an
// [InstanceID] option the instance gets a random ID. If an instance with the ID exists
// and has not ended, Start fails with an *[InstanceExistsError]; see
// [OverridableStates].
//
// Without a [Version] option the instance gets the version that orch is registered for,
// or else the default version of the client.
func Start[I, O any](ctx context.Context, c *Client, orch func(*Context, I) (O, error), in I, opts ...StartOption) (*Instance[O], error) {
	if c.registry == nil {
		return nil, fmt.Errorf("start %T: the client has no registry; pass one to NewClient, or use StartByName", orch)
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
	id, err := startInstance(ctx, c, f.name, input, opts...)
	if err != nil {
		return nil, err
	}
	return InstanceOf[O](c, id), nil
}

// startInstance starts an instance with an encoded input.
func startInstance(ctx context.Context, c *Client, name string, input *string, opts ...StartOption) (InstanceID, error) {
	o := startOptions{version: &c.version}
	for _, opt := range opts {
		opt.applyStart(&o)
	}
	if name == "" {
		return "", errors.New("start orchestration: the name is empty")
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
		started.ScheduledStart = history.TruncateToTicks(o.at)
	}
	if err := errors.Join(checkDue(o.at), checkTexts("ExecutionStarted", started)); err != nil {
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

// StartOption configures the start of an instance. [InstanceID], [Version], [Tags] and
// [StartAt] implement it.
type StartOption interface{ applyStart(*startOptions) }

type startOptions struct {
	id      InstanceID
	version *Version // nil if none was chosen
	tags    map[string]string
	at      time.Time
}

// Tags are names with values that are attached to an instance when it is started. Its
// children inherit them. In the call of an activity they are visible to the activity. In
// the call of a child they are added to the inherited tags. Several Tags options are
// merged; for the same name the last value is used.
//
// Applies to: [Start], [StartFrom], [Client.StartByName], [Client.Restart],
// [CallSubOrchestrator], [CallActivity], [CallHTTP], [Map].
type Tags map[string]string

func (t Tags) applyStart(o *startOptions)                       { t.addTo(&o.tags) }
func (t Tags) applyActivity(o *activityOptions)                 { t.addTo(&o.tags) }
func (t Tags) applySubOrchestration(o *subOrchestrationOptions) { t.addTo(&o.tags) }

func (t Tags) addTo(tags *map[string]string) {
	if *tags == nil {
		*tags = make(map[string]string, len(t))
	}
	maps.Copy(*tags, t)
}

// StartAt returns the option to start an instance at time t. Until then the instance is
// Pending. The zero time, or a time in the past, means immediately. A time after the
// year 9999 is an error.
//
// Applies to: [Start], [StartFrom], [Client.StartByName], [Client.Restart].
func StartAt(t time.Time) StartOption { return startAt(t) }

type startAt time.Time

func (at startAt) applyStart(o *startOptions) { o.at = time.Time(at) }

// checkDue returns an error if histories and messages cannot store the time of a start
// or a signal: a .NET DateTime ends with the year 9999.
func checkDue(t time.Time) error {
	if year := t.UTC().Year(); year > 9999 {
		return fmt.Errorf("%v is in the year %d in UTC; the last valid year is 9999", t, year)
	}
	return nil
}

// OverridableStates selects the existing instances that a start with the same ID may
// replace. host.json uses the same names for overridableExistingInstanceStates.
//
// Applies to: [NewClient].
type OverridableStates int

const (
	// NonRunningStates lets a start replace an instance that has ended. If the instance
	// has not ended, the start fails with an *[InstanceExistsError]. This is the
	// default.
	NonRunningStates OverridableStates = iota
	// AnyState lets a start replace any instance.
	AnyState
)

func (s OverridableStates) applyClient(c *Client) { c.reuse = s }

// refused returns the statuses in which an existing instance is not replaced (the
// extension's OverridableStates.cs, ToDedupeStatuses).
func (s OverridableStates) refused() []history.RuntimeStatus {
	if s == AnyState {
		return nil
	}
	return []history.RuntimeStatus{history.Running, history.ContinuedAsNew, history.Pending, history.Suspended}
}

// newID returns a random GUID of 32 hexadecimal digits, .NET's format "N".
func newID() string { return strings.ReplaceAll(uuid.NewString(), "-", "") }
