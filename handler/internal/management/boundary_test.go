package management

import (
	"slices"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/boundary"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func TestBoundaries_OfScaling(t *testing.T) {
	t.Parallel()
	const polling, partitions = 30 * time.Second, 6
	// after returns the advice for a load that lasts.
	after := func(change func(*provider.Load)) scaleAction {
		load := &provider.Load{ControlQueues: make([]provider.QueueLoad, partitions), Workers: 3}
		change(load)
		return recommend(slices.Repeat([]*provider.Load{load}, loadSamples), polling).Action
	}
	busy := func(load *provider.Load, n int, latency time.Duration) {
		for i := range n {
			load.ControlQueues[i] = provider.QueueLoad{Length: 1, Latency: latency}
		}
	}
	boundary.Check(t, "a worker is removed if fewer queues are busy", func(offset int) scaleAction {
		return after(func(l *provider.Load) { busy(l, 3, 10*time.Millisecond); l.Workers = 3 + offset })
	}, scaleNone, scaleNone, scaleRemove)
	boundary.Check(t, "a worker is added if more queues are slow", func(offset int) scaleAction {
		return after(func(l *provider.Load) { busy(l, 3, time.Minute); l.Workers = 3 + offset })
	}, scaleAdd, scaleNone, scaleRemove)
	boundary.Check(t, "a worker is removed if there are fewer partitions", func(offset int) scaleAction {
		return after(func(l *provider.Load) { busy(l, partitions, 10*time.Millisecond); l.Workers = partitions + offset })
	}, scaleNone, scaleNone, scaleRemove)
	boundary.Check(t, "a worker is added if the work items are slow", func(offset int) scaleAction {
		return after(func(l *provider.Load) {
			busy(l, 3, 10*time.Millisecond)
			l.WorkItems = provider.QueueLoad{Length: 1, Latency: highLatency + time.Duration(offset)}
		})
	}, scaleNone, scaleAdd, scaleAdd)
	boundary.Check(t, "a queue is busy from one millisecond", func(offset int) bool {
		return isBusy([]time.Duration{0, time.Millisecond + time.Duration(offset)})
	}, false, true, true)
	boundary.Check(t, "the first latency is high from the polling interval", func(offset int) bool {
		return isHigh([]time.Duration{0, polling + time.Duration(offset)}, polling)
	}, false, true, true)
	boundary.Check(t, "a recommendation needs samples", func(offset int) scaleAction {
		load := &provider.Load{ControlQueues: make([]provider.QueueLoad, partitions), Workers: 3}
		return recommend(slices.Repeat([]*provider.Load{load}, loadSamples+offset), polling).Action
	}, scaleNone, scaleRemove, scaleRemove)
	boundary.Check(t, "a full worker of activities", func(offset int) int {
		return targetWorkers(&provider.Load{WorkItems: provider.QueueLoad{Length: 20 + offset}}, 10, 10)
	}, 2, 2, 3)
	boundary.Check(t, "a full worker of instances", func(offset int) int {
		load := &provider.Load{ControlQueues: make([]provider.QueueLoad, 4)}
		for i := range load.ControlQueues {
			load.ControlQueues[i].Length = 5
		}
		load.ControlQueues[0].Length += offset
		return targetWorkers(load, 10, 10)
	}, 2, 2, 3)
	boundary.Check(t, "instances need as many workers as queues are busy", func(offset int) int {
		load := &provider.Load{ControlQueues: make([]provider.QueueLoad, 4)}
		for i := range 2 + offset {
			load.ControlQueues[i].Length = 100
		}
		return targetWorkers(load, 10, 10)
	}, 1, 2, 3)
	boundary.Check(t, "steps need as many workers as there are partitions", func(offset int) int {
		return targetWorkers(&provider.Load{ControlQueues: make([]provider.QueueLoad, 4), Steps: provider.QueueLoad{Length: 40 + 10*offset}}, 10, 10)
	}, 3, 4, 4)
}
