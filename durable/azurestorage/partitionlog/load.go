package partitionlog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Load implements [provider.LoadReporter]. For partitions of other workers it returns their last
// reports; for partitions without an owner it counts stored work.
func (h *Hub) Load(ctx context.Context) (*provider.Load, error) {
	if err := h.ensure(ctx); err != nil {
		return nil, err
	}
	all, _, err := h.heartbeats(ctx)
	if err == nil {
		err = h.refresh(ctx, all)
	}
	if err != nil {
		return nil, fmt.Errorf("read the hub's load: %w", err)
	}
	if h.isRunning() {
		all[h.cfg.WorkerID] = h.heartbeat()
	}
	load := &provider.Load{
		ControlQueues: make([]provider.QueueLoad, len(h.partitions)), Owners: make([]string, len(h.partitions)), Builds: make(map[string]string),
	}
	if h.isRunning() {
		load.Self = h.cfg.WorkerID
	}
	known := make(map[int]bool)
	for _, id := range slices.Sorted(maps.Keys(all)) {
		beat := all[id]
		if beat.Build != "" {
			load.Builds[id] = beat.Build
		}
		if len(beat.Backlogs) > 0 {
			load.Workers++
		}
		load.Steps.Length += beat.Steps
		load.Steps.Latency = max(load.Steps.Latency, time.Duration(beat.StepsAge)*time.Millisecond)
		for n, b := range beat.Backlogs {
			known[n] = true
			load.Owners[n] = id
			load.ControlQueues[n] = provider.QueueLoad{Length: b.Messages, Latency: time.Duration(b.MessagesAge) * time.Millisecond, Stored: max(b.Messages, b.Stored)}
			load.WorkItems.Length += b.Activities
			load.WorkItems.Latency = max(load.WorkItems.Latency, time.Duration(b.ActivitiesAge)*time.Millisecond)
		}
	}
	for n, s := range h.partitions {
		if known[n] {
			continue
		}
		err := s.readIfAny(ctx, func(r *partition.Reader) error {
			messages, hidden, activities, err := r.Pending()
			load.ControlQueues[n] = provider.QueueLoad{Length: messages, Stored: messages + hidden}
			load.WorkItems.Length += activities
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read the hub's load: %w", err)
		}
	}
	return load, nil
}

// observe returns the state of the hub for the metrics: the backlogs of the partitions that this
// worker owns, and the number of partitions without an owner. It makes one request, which reads the
// heartbeats of the workers.
func (h *Hub) observe(ctx context.Context) (state metering.HubState) {
	activities, owned := metering.QueueState{Queue: h.blobs.Name + "/activities"}, make(map[int]bool)
	for _, o := range h.owners() {
		waits := o.Backlog()
		owned[o.handle.number] = true
		state.Queues = append(state.Queues, metering.QueueState{
			Queue: o.handle.queue(), Length: waits.Messages.Length, Latency: waits.Messages.Latency, StartLatency: new(waits.StartLatency),
		})
		activities.Length += waits.Activities.Length
		activities.Latency = max(activities.Latency, waits.Activities.Latency)
	}
	state.Queues = append(state.Queues, activities)
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	all, _, err := h.heartbeats(ctx)
	if err != nil {
		h.log.Debug("cannot read the state of the hub for the metrics", "error", err)
		return state
	}
	delete(all, h.cfg.WorkerID) // it may be older than owned
	for _, beat := range all {
		for n := range beat.Backlogs {
			owned[n] = true
		}
	}
	state.Unowned = new(len(h.partitions) - len(owned))
	return state
}

// observeTimeout limits the duration of one observation. It is shorter than a collector of metrics
// waits.
const observeTimeout = 5 * time.Second

// ObserveSteps implements [provider.StepObserver].
func (h *Hub) ObserveSteps(steps func() provider.QueueLoad) { h.steps.Store(&steps) }
