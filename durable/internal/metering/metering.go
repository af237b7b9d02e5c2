// Package metering records OpenTelemetry metrics of a worker. A nil *[Meter] does nothing and
// costs nothing.
package metering

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// scope is the name of the meter.
const scope = "github.com/durablefunctions-go/durablefunctions"

// Kind is a kind of work item.
type Kind string

// The kinds of work items.
const (
	Orchestration Kind = "orchestration"
	Activity      Kind = "activity"
	Entity        Kind = "entity"
)

// Outcome is the outcome of a work item.
type Outcome string

// The outcomes of work items.
const (
	Completed Outcome = "completed" // its result is stored
	Failed    Outcome = "failed"    // its result is stored and is a failure of the function
	Abandoned Outcome = "abandoned" // it is returned and will be redelivered
)

// StallOutcome is the state of code that does not yield.
type StallOutcome string

// The states of code that does not yield.
const (
	StallReported  StallOutcome = "reported" // it was still running after 10 seconds
	StallAbandoned StallOutcome = "given_up" // the worker has stopped waiting for it
)

// A WaitReason is the reason why a worker does not continue instances.
type WaitReason string

// The reasons why a worker does not continue instances.
const (
	Unknown   WaitReason = "unknown"   // the worker does not have the function
	Unwanted  WaitReason = "refused"   // the worker does not accept the function's version
	Different WaitReason = "different" // the function deviates from the histories of the instances
	Crashed   WaitReason = "crashed"   // the function has crashed the process
	Blocked   WaitReason = "blocked"   // the function does not yield
)

// WaitingInstances counts the instances that a worker does not continue because of one function.
type WaitingInstances struct {
	Kind   Kind
	Name   string // of the function
	Reason WaitReason
	Count  int
}

// Meter records work items.
type Meter struct {
	finished  metric.Int64Counter
	active    metric.Int64UpDownCounter
	took      metric.Float64Histogram
	waited    metric.Float64Histogram
	stalls    metric.Int64Counter
	deviation metric.Int64Counter

	source  metric.Meter
	waiting metric.Int64ObservableGauge
}

// seconds are the histogram bounds, from a millisecond to an hour.
var seconds = metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)

// New returns a Meter that records to p; nil if p is nil.
func New(p metric.MeterProvider) (*Meter, error) {
	if p == nil {
		return nil, nil
	}
	source := p.Meter(scope)
	m := &Meter{source: source}
	var errs [7]error
	m.finished, errs[0] = source.Int64Counter("durabletask.work_items",
		metric.WithUnit("{work_item}"), metric.WithDescription("Work items that this worker completed, failed or abandoned: episodes of orchestrations, activities, and batches of entity operations."))
	m.active, errs[1] = source.Int64UpDownCounter("durabletask.work_items.active",
		metric.WithUnit("{work_item}"), metric.WithDescription("Work items in flight on this worker."))
	m.took, errs[2] = source.Float64Histogram("durabletask.work_item.duration", seconds,
		metric.WithUnit("s"), metric.WithDescription("Time from the delivery of a work item until it was completed or abandoned."))
	m.waited, errs[3] = source.Float64Histogram("durabletask.activity.wait", seconds,
		metric.WithUnit("s"), metric.WithDescription("Time from the scheduling of an activity until it started."))
	m.stalls, errs[4] = source.Int64Counter("durabletask.stalls",
		metric.WithUnit("{stall}"), metric.WithDescription("Orchestrators and operations of entities that did not yield, when the worker reported them and when it abandoned them."))
	m.deviation, errs[5] = source.Int64Counter("durabletask.non_determinism",
		metric.WithUnit("{episode}"), metric.WithDescription("Episodes in which an orchestrator deviated from its history. The instance fails or waits for matching code."))
	m.waiting, errs[6] = source.Int64ObservableGauge("durabletask.instances.waiting",
		metric.WithUnit("{instance}"), metric.WithDescription("Instances that this worker does not continue, by the function that they wait for."))
	return m, errors.Join(errs[:]...)
}

// Expect reports zero failures for an orchestrator that has not run yet. A first failure is then
// an increase, which an alert rule finds.
func (m *Meter) Expect(orchestrator string) {
	if m == nil {
		return
	}
	ctx, name := context.Background(), attribute.String("durabletask.task.name", orchestrator)
	m.finished.Add(ctx, 0, metric.WithAttributes(attribute.String("durabletask.type", string(Orchestration)),
		name, attribute.String("durabletask.outcome", string(Failed))))
	m.deviation.Add(ctx, 0, metric.WithAttributes(name))
}

// NonDeterministic records an episode in which an orchestrator deviated from its history.
func (m *Meter) NonDeterministic(orchestrator string) {
	if m == nil {
		return
	}
	m.deviation.Add(context.Background(), 1, metric.WithAttributes(attribute.String("durabletask.task.name", orchestrator)))
}

// ObserveWaiting calls look at each collection of the metrics, until stop is called.
func (m *Meter) ObserveWaiting(look func() []WaitingInstances) (stop func() error, err error) {
	if m == nil {
		return func() error { return nil }, nil
	}
	r, err := m.source.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		counts := map[WaitingInstances]int{}
		for _, w := range look() {
			key := w
			key.Count = 0
			counts[key] += w.Count
		}
		for w, n := range counts {
			to.ObserveInt64(m.waiting, int64(n), metric.WithAttributes(attribute.String("durabletask.type", string(w.Kind)),
				attribute.String("durabletask.task.name", w.Name), attribute.String("durabletask.reason", string(w.Reason))))
		}
		return nil
	}, m.waiting)
	if err != nil {
		return nil, err
	}
	return r.Unregister, nil
}

// RecordStall records code that does not yield. name is the name of its function.
func (m *Meter) RecordStall(kind Kind, name string, o StallOutcome) {
	if m == nil {
		return
	}
	m.stalls.Add(context.Background(), 1, metric.WithAttributes(attribute.String("durabletask.type", string(kind)),
		attribute.String("durabletask.task.name", name), attribute.String("durabletask.outcome", string(o))))
}

// Begin records that a work item is in flight. The caller must call end with its outcome and
// the name of its function, or "" if that is unknown.
func (m *Meter) Begin(kind Kind, now func() time.Time) (end func(name string, o Outcome)) {
	if m == nil {
		return func(string, Outcome) {}
	}
	began, ctx := now(), context.Background()
	kinds := metric.WithAttributes(attribute.String("durabletask.type", string(kind)))
	m.active.Add(ctx, 1, kinds)
	return func(name string, o Outcome) {
		m.active.Add(ctx, -1, kinds)
		attrs := metric.WithAttributes(attribute.String("durabletask.type", string(kind)),
			attribute.String("durabletask.task.name", name), attribute.String("durabletask.outcome", string(o)))
		m.finished.Add(ctx, 1, attrs)
		m.took.Record(ctx, now().Sub(began).Seconds(), attrs)
	}
}

// RecordWait records the time that an activity waited for a worker.
func (m *Meter) RecordWait(name string, d time.Duration) {
	if m == nil {
		return
	}
	m.waited.Record(context.Background(), max(0, d.Seconds()), metric.WithAttributes(attribute.String("durabletask.task.name", name)))
}
