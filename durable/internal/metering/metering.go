// Package metering counts and times what a worker does, in OpenTelemetry's
// metrics. A nil *[Meter] does nothing, and costs nothing.
package metering

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// scope names the source of the metrics.
const scope = "github.com/durablefunctions-go/durablefunctions"

// A Kind is a kind of work item.
type Kind string

// The kinds of work items.
const (
	Orchestration Kind = "orchestration"
	Activity      Kind = "activity"
	Entity        Kind = "entity"
)

// An Outcome is what came of a work item.
type Outcome string

// What can come of a work item.
const (
	Completed Outcome = "completed" // what it came to is stored
	Failed    Outcome = "failed"    // likewise, and it is a failure of the function
	Abandoned Outcome = "abandoned" // it is handed back and will come again
)

// A StallOutcome says how far code was that did not yield.
type StallOutcome string

// The outcomes of code that does not yield.
const (
	Reported StallOutcome = "reported" // it still ran after 10 seconds
	GivenUp  StallOutcome = "given_up" // the worker does not wait for it any longer
)

// A Meter records work items.
type Meter struct {
	finished metric.Int64Counter
	active   metric.Int64UpDownCounter
	took     metric.Float64Histogram
	waited   metric.Float64Histogram
	stalls   metric.Int64Counter
}

// seconds are bounds of histograms: from a millisecond to an hour.
var seconds = metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)

// New returns a Meter that records to p, nil if p is nil.
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
		metric.WithUnit("{stall}"), metric.WithDescription("Orchestrators and operations of entities that did not yield, when the worker reported them and when it gave them up."))
	return m, errors.Join(errs[:]...)
}

// Stall records code that does not yield. The name is its function's.
func (m *Meter) Stall(kind Kind, name string, o StallOutcome) {
	if m == nil {
		return
	}
	m.stalls.Add(context.Background(), 1, metric.WithAttributes(attribute.String("durabletask.type", string(kind)),
		attribute.String("durabletask.task.name", name), attribute.String("durabletask.outcome", string(o))))
}

// Begin records that a work item is in flight. The caller must call end with its
// outcome and the name of its function, which may be empty if it is not
// known.
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

// Waited records how long an activity had to wait for a worker.
func (m *Meter) Waited(name string, d time.Duration) {
	if m == nil {
		return
	}
	m.waited.Record(context.Background(), max(0, d.Seconds()), metric.WithAttributes(attribute.String("durabletask.task.name", name)))
}
