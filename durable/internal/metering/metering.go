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
	Reported StallOutcome = "reported" // it was still running after 10 seconds
	GivenUp  StallOutcome = "given_up" // the worker has stopped waiting for it
)

// Meter records work items.
type Meter struct {
	finished metric.Int64Counter
	active   metric.Int64UpDownCounter
	took     metric.Float64Histogram
	waited   metric.Float64Histogram
	stalls   metric.Int64Counter
}

// seconds are the histogram bounds, from a millisecond to an hour.
var seconds = metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)

// New returns a Meter that records to p; nil if p is nil.
func New(p metric.MeterProvider) (*Meter, error) {
	if p == nil {
		return nil, nil
	}
	source := p.Meter(scope)
	m := &Meter{}
	var errs [5]error
	m.finished, errs[0] = source.Int64Counter("durabletask.work_items",
		metric.WithUnit("{work_item}"), metric.WithDescription("Work items that this worker completed, failed or abandoned: steps of orchestrations, activities, and batches of entity operations."))
	m.active, errs[1] = source.Int64UpDownCounter("durabletask.work_items.active",
		metric.WithUnit("{work_item}"), metric.WithDescription("Work items in flight on this worker."))
	m.took, errs[2] = source.Float64Histogram("durabletask.work_item.duration", seconds,
		metric.WithUnit("s"), metric.WithDescription("Time from the delivery of a work item until it was completed or abandoned."))
	m.waited, errs[3] = source.Float64Histogram("durabletask.activity.wait", seconds,
		metric.WithUnit("s"), metric.WithDescription("Time from the scheduling of an activity until it started."))
	m.stalls, errs[4] = source.Int64Counter("durabletask.stalls",
		metric.WithUnit("{stall}"), metric.WithDescription("Orchestrators and operations of entities that did not yield, when the worker reported them and when it abandoned them."))
	return m, errors.Join(errs[:]...)
}

// Stall records code that does not yield. name is the name of its function.
func (m *Meter) Stall(kind Kind, name string, o StallOutcome) {
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

// Waited records the time that an activity waited for a worker.
func (m *Meter) Waited(name string, d time.Duration) {
	if m == nil {
		return
	}
	m.waited.Record(context.Background(), max(0, d.Seconds()), metric.WithAttributes(attribute.String("durabletask.task.name", name)))
}
