package management

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Parameters of the recommendation
// (DurableTask.AzureStorage/Monitoring/DisconnectedPerformanceMonitor.cs).
const (
	loadSamples = 5 // samples per recommendation
	highLatency = time.Second
)

// A scaleAction is a change of the number of workers.
type scaleAction string

const (
	scaleNone   scaleAction = "None"
	scaleAdd    scaleAction = "AddWorker"
	scaleRemove scaleAction = "RemoveWorker"
)

// A recommendation advises to add, remove or keep workers, in the terms of .NET.
type recommendation struct {
	Action           scaleAction `json:"action"`
	KeepWorkersAlive bool        `json:"keepWorkersAlive"`
	Reason           string      `json:"reason"`
}

// targetWorkers returns the number of workers that a load needs: enough to run all activities, steps and
// instances concurrently. For the instances it is at most the number of partitions with messages, and for
// the steps at most the number of partitions: only their owners run steps (WebJobs.Extensions.DurableTask/Listener/DurableTaskTargetScaler.cs, GetScaleResultAsync).
func targetWorkers(l *provider.Load, maxActivities, maxOrchestrators int) int {
	messages, busy := 0, 0
	for _, q := range l.ControlQueues {
		messages += q.Length
		if q.Length > 0 {
			busy++
		}
	}
	steps := min(len(l.ControlQueues), ceilDiv(l.WorkItems.Length+l.Steps.Length, maxActivities))
	return max(ceilDiv(l.WorkItems.Length, maxActivities), steps, min(busy, ceilDiv(messages, maxOrchestrators)))
}

func ceilDiv(n, by int) int { return (n + by - 1) / by }

// recommend returns a recommendation based on the last samples, latest last
// (DisconnectedPerformanceMonitor.cs, MakeScaleRecommendation). polling is the longest polling interval
// of an idle queue. Unlike .NET it does not randomly remove workers when all latencies are low. Steps count
// like activities; .NET has no steps.
func recommend(looks []*provider.Load, polling time.Duration) recommendation {
	last := looks[len(looks)-1]
	workers, partitions := last.Workers, len(last.ControlQueues)
	items := latenciesOf(looks, func(l *provider.Load) time.Duration { return l.WorkItems.Latency })
	control := make([][]time.Duration, partitions)
	for i := range control {
		control[i] = latenciesOf(looks, func(l *provider.Load) time.Duration { return l.ControlQueues[i].Latency })
	}
	steps := latenciesOf(looks, func(l *provider.Load) time.Duration { return l.Steps.Latency })
	high := func(h []time.Duration) bool { return isHigh(h, polling) }
	hasSteps := last.Steps.Length > 0
	idle := isIdle(items) && !hasSteps && !slices.ContainsFunc(control, isBusy)
	switch {
	case workers == 0 && !idle:
		return recommendation{scaleAdd, true, "First worker"}
	case len(looks) < loadSamples:
		return recommendation{scaleNone, !idle, "Not enough samples"}
	case idle && workers > 0:
		return recommendation{scaleRemove, false, "Task hub is idle"}
	case idle:
		return recommendation{scaleNone, false, "Task hub is idle"}
	case high(items):
		return recommendation{scaleAdd, true, fmt.Sprintf("Work-item queue latency: %d > %d", milliseconds(items[len(items)-1]), milliseconds(min(polling, highLatency)))}
	case workers < partitions && high(steps):
		return recommendation{scaleAdd, true, fmt.Sprintf("Step latency: %d > %d", milliseconds(steps[len(steps)-1]), milliseconds(min(polling, highLatency)))}
	case workers > partitions && isIdle(items):
		return recommendation{scaleRemove, true, fmt.Sprintf("Work-items idle, #workers > partitions (%d > %d)", workers, partitions)}
	case workers < count(control, high):
		slow := control[slices.IndexFunc(control, high)]
		return recommendation{scaleAdd, true, fmt.Sprintf("High control queue latency: %d > %d", milliseconds(slow[len(slow)-1]), milliseconds(min(polling, highLatency)))}
	case workers > count(control, isBusy) && isIdle(items) && !hasSteps:
		return recommendation{scaleRemove, slices.ContainsFunc(control, isIdle), "One or more control queues idle"}
	}
	return recommendation{scaleNone, true, "Queue latencies are healthy"}
}

func latenciesOf(looks []*provider.Load, of func(*provider.Load) time.Duration) []time.Duration {
	out := make([]time.Duration, len(looks))
	for i, l := range looks {
		out[i] = of(l)
	}
	return out
}

func count(all [][]time.Duration, is func([]time.Duration) bool) (n int) {
	for _, h := range all {
		if is(h) {
			n++
		}
	}
	return n
}

func milliseconds(d time.Duration) int64 { return d.Milliseconds() }

// isHigh reports whether the last latency is high. After a latency of zero the queue may have been
// idle, and the latency may be the polling interval.
func isHigh(h []time.Duration, polling time.Duration) bool {
	last := h[len(h)-1]
	if len(h) < 2 || h[len(h)-2] == 0 {
		return last >= polling
	}
	return last >= min(polling, highLatency)
}

func isIdle(h []time.Duration) bool { return !isBusy(h) }

// isBusy reports whether a queue contained messages. Like .NET it compares whole milliseconds.
func isBusy(h []time.Duration) bool {
	return slices.ContainsFunc(h, func(d time.Duration) bool { return milliseconds(d) > 0 })
}

// A ScalePayload is the load of the hub. The members have the names of .NET's heartbeat
// (Monitoring/PerformanceHeartbeat.cs).
type ScalePayload struct {
	PartitionCount        int            `json:"partitionCount"`
	ControlQueueLengths   []int          `json:"controlQueueLengths"`
	ControlQueueLatencies []float64      `json:"controlQueueLatenciesInSeconds"`
	WorkItemQueueLength   int            `json:"workItemQueueLength"`
	WorkItemQueueLatency  float64        `json:"workItemQueueLatencyInSeconds"`
	WorkerCount           int            `json:"workerCount"`
	TargetWorkerCount     int            `json:"targetWorkerCount"`
	ScaleRecommendation   recommendation `json:"scaleRecommendation"`

	// The members below do not exist in .NET. The owner of a partition without a worker is "".
	ControlQueueOwners []string        `json:"controlQueueOwners,omitempty"`
	Workers            []WorkerPayload `json:"workers,omitempty"`
	// StoredMessageCount counts the messages in all queues, including hidden ones.
	StoredMessageCount int `json:"storedMessageCount,omitempty"`
}

// A WorkerPayload is a worker of the hub.
type WorkerPayload struct {
	ID            string `json:"id"`
	Build         string `json:"build,omitempty"` // version of its program; "" if not known
	IsThisProcess bool   `json:"isThisProcess"`
	Partitions    []int  `json:"partitions"`
}

// workersOf returns the workers in a load, ordered by ID.
func workersOf(l *provider.Load) (all []WorkerPayload) {
	partitions := map[string][]int{}
	if l.Self != "" {
		partitions[l.Self] = []int{}
	}
	for id := range l.Builds {
		partitions[id] = []int{}
	}
	for n, owner := range l.Owners {
		if owner != "" {
			partitions[owner] = append(partitions[owner], n)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(partitions)) {
		all = append(all, WorkerPayload{id, l.Builds[id], id == l.Self, partitions[id]})
	}
	return all
}

// A loadMonitor samples the load of a hub and keeps the last samples.
type loadMonitor struct {
	hub     provider.LoadReporter // nil if the hub does not report its load
	cfg     func() (maxActivities, maxOrchestrators int, polling time.Duration)
	now     func() time.Time
	mu      sync.Mutex // guards the fields below
	looks   []*provider.Load
	lastOne time.Time
}

// sampleInterval is the shortest time between two samples. More frequent requests get the last sample.
const sampleInterval = time.Second

// look returns the current load.
func (m *loadMonitor) look(ctx context.Context) (*ScalePayload, error) {
	if m.hub == nil {
		return nil, fmt.Errorf("report the load of the hub: %w", durable.ErrNotSupported)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.looks) == 0 || m.now().Sub(m.lastOne) >= sampleInterval {
		load, err := m.hub.Load(ctx)
		if err != nil {
			return nil, err
		}
		m.lastOne = m.now()
		m.looks = append(m.looks, load)
		m.looks = m.looks[max(0, len(m.looks)-loadSamples):]
	}
	last := m.looks[len(m.looks)-1]
	maxActivities, maxOrchestrators, polling := m.cfg()
	p := &ScalePayload{
		PartitionCount: len(last.ControlQueues), WorkItemQueueLength: last.WorkItems.Length + last.Steps.Length, WorkItemQueueLatency: max(last.WorkItems.Latency, last.Steps.Latency).Seconds(),
		WorkerCount: last.Workers, TargetWorkerCount: targetWorkers(last, maxActivities, maxOrchestrators), ScaleRecommendation: recommend(m.looks, polling),
		ControlQueueOwners: last.Owners, Workers: workersOf(last),
	}
	p.StoredMessageCount = last.WorkItems.Stored
	for _, q := range last.ControlQueues {
		p.StoredMessageCount += q.Stored
		p.ControlQueueLengths = append(p.ControlQueueLengths, q.Length)
		p.ControlQueueLatencies = append(p.ControlQueueLatencies, q.Latency.Seconds())
	}
	return p, nil
}
