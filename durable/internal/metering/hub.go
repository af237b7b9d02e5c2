package metering

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Change is a change of a worker's ownership of a partition.
type Change string

// The changes.
const (
	Acquired Change = "acquired" // the worker starts to read the partition's queue
	Stolen   Change = "stolen"   // the worker requests the partition from another worker, to balance the load
	Released Change = "released" // the worker releases the partition
	Lost     Change = "lost"     // another worker owns the partition, or its lease expired
)

// HoldReason is the reason why a message is returned to its queue.
type HoldReason string

// The reasons.
const (
	Unreadable HoldReason = "unreadable" // not a message of a task hub
	Early      HoldReason = "early"      // its instance cannot process it yet
)

// Answer is the kind of a storage service's response.
type Answer string

// The kinds.
const (
	OK        Answer = "ok"
	Conflict  Answer = "conflict"  // another write was first, or the resource does not exist: 404, 409, 412
	Throttled Answer = "throttled" // the service limits requests: 429, 503
	Refused   Answer = "refused"   // any other error status
	NoAnswer  Answer = "no_answer"
)

// Hub records metrics of a worker's task hub. A nil Hub does nothing.
type Hub struct {
	owned      metric.Int64UpDownCounter
	changes    metric.Int64Counter
	age        metric.Float64Histogram
	lookups    metric.Int64Counter
	held       metric.Int64Counter
	poison     metric.Int64Counter
	operations metric.Float64Histogram
	retries    metric.Int64Counter

	source      metric.Meter
	waiting     metric.Int64ObservableGauge
	latency     metric.Float64ObservableGauge
	starts      metric.Float64ObservableGauge
	unowned     metric.Int64ObservableGauge
	undecodable metric.Int64ObservableGauge
	free        metric.Int64ObservableGauge
}

// NewHub returns a Hub that records to p; nil if p is nil.
func NewHub(p metric.MeterProvider) (*Hub, error) {
	if p == nil {
		return nil, nil
	}
	source := p.Meter(scope)
	h := &Hub{source: source}
	var errs [14]error
	h.owned, errs[0] = source.Int64UpDownCounter("durabletask.partitions.owned",
		metric.WithUnit("{partition}"), metric.WithDescription("Partitions that this worker owns."))
	h.changes, errs[1] = source.Int64Counter("durabletask.partitions.changes",
		metric.WithUnit("{change}"), metric.WithDescription("Partitions that this worker acquired, requested from another worker, released or lost."))
	h.age, errs[2] = source.Float64Histogram("durabletask.queue.message.age", seconds,
		metric.WithUnit("s"), metric.WithDescription("Time from when a message was sent or became due until this worker received it."))
	h.lookups, errs[3] = source.Int64Counter("durabletask.history_cache.lookups",
		metric.WithUnit("{lookup}"), metric.WithDescription("Lookups of histories, by whether the history was in memory."))
	h.held, errs[4] = source.Int64Counter("durabletask.messages.held_back",
		metric.WithUnit("{message}"), metric.WithDescription("Messages that this worker returned to their queue for later."))
	h.poison, errs[5] = source.Int64Counter("durabletask.messages.poison",
		metric.WithUnit("{message}"), metric.WithDescription("Messages that this worker returned to their queue after ten or more deliveries."))
	h.operations, errs[6] = source.Float64Histogram("durabletask.storage.operation.duration", seconds,
		metric.WithUnit("s"), metric.WithDescription("Duration of a storage operation. The count is the number of requests."))
	h.retries, errs[7] = source.Int64Counter("durabletask.storage.retries",
		metric.WithUnit("{operation}"), metric.WithDescription("Storage operations that were retried after a failure."))
	h.waiting, errs[8] = source.Int64ObservableGauge("durabletask.queue.length",
		metric.WithUnit("{message}"), metric.WithDescription("Approximate number of messages in a queue that this worker reads; 0 if all are hidden."))
	h.latency, errs[9] = source.Float64ObservableGauge("durabletask.queue.latency",
		metric.WithUnit("s"), metric.WithDescription("Waiting time of the first message in a queue."))
	h.starts, errs[10] = source.Float64ObservableGauge("durabletask.queue.start.latency",
		metric.WithUnit("s"), metric.WithDescription("Waiting time of the oldest due instance in a queue that has not started."))
	h.unowned, errs[11] = source.Int64ObservableGauge("durabletask.partitions.unowned",
		metric.WithUnit("{partition}"), metric.WithDescription("Partitions of the hub that no worker owns, as this worker knows them."))
	h.undecodable, errs[12] = source.Int64ObservableGauge("durabletask.messages.undecodable",
		metric.WithUnit("{message}"), metric.WithDescription("Messages that this worker cannot decode, in a queue that it reads or in the queue of messages that were set aside."))
	h.free, errs[13] = source.Int64ObservableGauge("durabletask.disk.free",
		metric.WithUnit("By"), metric.WithDescription("Free space on the disk of a hub in a local file, for this process."))
	return h, errors.Join(errs[:]...)
}

// QueueState describes the messages in a queue.
type QueueState struct {
	Queue   string
	Length  int
	Latency time.Duration
	// StartLatency is the waiting time of the oldest due instance that has not started; nil if unknown.
	StartLatency *time.Duration
}

// HubState describes a hub at one moment. Fields that the hub does not know are nil.
type HubState struct {
	Queues      []QueueState
	Unowned     *int           // partitions without an owner
	Undecodable map[string]int // messages by queue
	DiskFree    *int64         // bytes
}

// LookEvery is the shortest time between two looks at a hub. Collections in between report the
// state of the last look, so that frequent collections cost no storage requests.
const LookEvery = 30 * time.Second

// KeepFor is the time for which the metrics report a part of the state that later looks cannot read. A
// gauge that vanishes for one collection restarts the duration after which an alert fires.
const KeepFor = 5 * time.Minute

// Observe calls look for the state of the hub when the metrics are collected, at most once per
// [LookEvery], until stop is called. look returns the part of the state that it can read; the metrics
// report the last values of the other parts for [KeepFor]. It must not fail the collection, because a
// collector then loses all other metrics.
func (h *Hub) Observe(look func(ctx context.Context) HubState) (stop func() error, err error) {
	if h == nil {
		return func() error { return nil }, nil
	}
	o := &observation{look: look}
	r, err := h.source.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		h.report(o.state(ctx), to)
		return nil
	}, h.waiting, h.latency, h.starts, h.unowned, h.undecodable, h.free)
	if err != nil {
		return nil, err
	}
	return r.Unregister, nil
}

// report reports the state of the hub to an observer.
func (h *Hub) report(state HubState, to metric.Observer) {
	for _, s := range state.Queues {
		queue := metric.WithAttributes(queueKey.String(s.Queue))
		to.ObserveInt64(h.waiting, int64(s.Length), queue)
		to.ObserveFloat64(h.latency, s.Latency.Seconds(), queue)
		if s.StartLatency != nil {
			to.ObserveFloat64(h.starts, s.StartLatency.Seconds(), queue)
		}
	}
	if state.Unowned != nil {
		to.ObserveInt64(h.unowned, int64(*state.Unowned))
	}
	for queue, n := range state.Undecodable {
		to.ObserveInt64(h.undecodable, int64(n), metric.WithAttributes(queueKey.String(queue)))
	}
	if state.DiskFree != nil {
		to.ObserveInt64(h.free, *state.DiskFree)
	}
}

// An observation caches the state of a hub.
type observation struct {
	look func(ctx context.Context) HubState

	mu          sync.Mutex // guards the fields below
	at          time.Time
	queues      kept[[]QueueState]
	unowned     kept[*int]
	undecodable kept[map[string]int]
	free        kept[*int64]
}

// state returns the state of the hub, at most LookEvery old. A part that the last look could not read is
// older, or absent.
func (o *observation) state(ctx context.Context) HubState {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.at.IsZero() || time.Since(o.at) >= LookEvery {
		found := o.look(ctx)
		o.at = time.Now()
		o.queues.update(found.Queues, found.Queues != nil, o.at)
		o.unowned.update(found.Unowned, found.Unowned != nil, o.at)
		o.undecodable.update(found.Undecodable, found.Undecodable != nil, o.at)
		o.free.update(found.DiskFree, found.DiskFree != nil, o.at)
	}
	return HubState{Queues: o.queues.value, Unowned: o.unowned.value, Undecodable: o.undecodable.value, DiskFree: o.free.value}
}

// A kept is the last known value of a part of the state.
type kept[T any] struct {
	value T
	read  time.Time
}

// update replaces the value by a new one. If the look at the given time could not read the part, the new
// value is zero and replaces a value that is older than KeepFor.
func (k *kept[T]) update(value T, isRead bool, now time.Time) {
	if isRead || now.Sub(k.read) >= KeepFor {
		k.value, k.read = value, now
	}
}

// The keys of attributes.
const (
	queueKey     = attribute.Key("durabletask.queue")
	changeKey    = attribute.Key("durabletask.partition.change")
	reasonKey    = attribute.Key("durabletask.reason")
	hitKey       = attribute.Key("durabletask.cache.hit")
	serviceKey   = attribute.Key("durabletask.storage.service")
	operationKey = attribute.Key("durabletask.storage.operation")
	outcomeKey   = attribute.Key("durabletask.outcome")
)

// RecordOwnership records a change of the ownership of a queue.
func (h *Hub) RecordOwnership(queue string, c Change) {
	if h == nil {
		return
	}
	h.changes.Add(context.Background(), 1, metric.WithAttributes(queueKey.String(queue), changeKey.String(string(c))))
}

// AddOwned adds by to the number of owned queues: 1 or -1.
func (h *Hub) AddOwned(queue string, by int64) {
	if h == nil {
		return
	}
	h.owned.Add(context.Background(), by, metric.WithAttributes(queueKey.String(queue)))
}

// RecordReceived records the receipt of a message. age is the time since it was sent or due.
func (h *Hub) RecordReceived(queue string, age time.Duration) {
	if h == nil {
		return
	}
	h.age.Record(context.Background(), max(0, age.Seconds()), metric.WithAttributes(queueKey.String(queue)))
}

// RecordLookup records a lookup of a history. hit means that the history was in memory.
func (h *Hub) RecordLookup(hit bool) {
	if h == nil {
		return
	}
	h.lookups.Add(context.Background(), 1, metric.WithAttributes(hitKey.Bool(hit)))
}

// RecordHeldBack records that a message was returned to its queue.
func (h *Hub) RecordHeldBack(queue string, why HoldReason) {
	if h == nil {
		return
	}
	h.held.Add(context.Background(), 1, metric.WithAttributes(queueKey.String(queue), reasonKey.String(string(why))))
}

// RecordPoison records that a message was returned to its queue after too many deliveries.
func (h *Hub) RecordPoison(queue string) {
	if h == nil {
		return
	}
	h.poison.Add(context.Background(), 1, metric.WithAttributes(queueKey.String(queue)))
}

// RecordOperation records the n-th attempt of a storage operation, counted from 1.
func (h *Hub) RecordOperation(service, operation string, a Answer, took time.Duration, n int) {
	if h == nil {
		return
	}
	ctx, of := context.Background(), []attribute.KeyValue{serviceKey.String(service), operationKey.String(operation)}
	if n > 1 {
		h.retries.Add(ctx, 1, metric.WithAttributes(of...))
	}
	h.operations.Record(ctx, took.Seconds(), metric.WithAttributes(append(of, outcomeKey.String(string(a)))...))
}
