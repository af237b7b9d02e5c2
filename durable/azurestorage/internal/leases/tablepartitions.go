package leases

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
)

// Fixed times of the table partition manager
// (DurableTask.AzureStorage/Partitioning/TablePartitionManager.cs, PartitionManagerLoop and others).
const (
	// unsettledInterval is the time between passes while a partition is being transferred.
	unsettledInterval = time.Second
	// passTimeout limits one pass over the table, including its writes, at normal latency.
	passTimeout = 2 * time.Second
	// drainLimit is the maximum time that the sessions of a requested partition get to end.
	drainLimit = time.Minute
	// quickDrain is the time that a pass waits for a drain. Most drains end immediately, so that the
	// same pass can release the partition.
	quickDrain = 250 * time.Millisecond
	// hurriedRetries is the number of consecutive failed passes after which the next pass waits for
	// the acquire interval. Before that, failed passes are retried after a short delay.
	hurriedRetries = 10
)

// tablePartitions is the partition manager that stores its leases in the partitions table. It carries
// out the plans of planPartitions. They use the service's clock: with a wrong local clock, a
// worker would claim partitions whose leases are valid, or keep partitions whose leases have expired.
// .NET uses the workers' clocks. Between two passes an own lease counts by the local clocks.
type tablePartitions struct {
	worker  *Worker
	byQueue map[string]Partition
	ahead   time.Duration // minimum difference between the service's clock and the local wall clock
	planned clocks.Moment // time of the last plan

	leaving  bool
	failures int // consecutive failed passes
}

func newTablePartitions(w *Worker) *tablePartitions {
	t := &tablePartitions{worker: w, byQueue: map[string]Partition{}}
	for _, p := range w.Partitions {
		t.byQueue[p.Name()] = p
	}
	return t
}

// Run implements [Manager].
func (t *tablePartitions) Run(ctx, work context.Context) {
	for {
		wait, done := t.pass(work)
		if done {
			return
		}
		if t.leaving {
			if !pause.For(work, min(wait, quickDrain)) {
				return
			}
			continue
		}
		if !pause.For(ctx, wait) {
			t.leave(work)
		}
		if work.Err() != nil {
			return
		}
	}
}

// leave starts the drain of all partitions.
func (t *tablePartitions) leave(work context.Context) {
	t.leaving = true
	for _, p := range t.worker.Partitions {
		if p.IsReading() {
			p.BeginDrain(work, t.worker.DrainTimeout)
		}
	}
	t.awaitDrains(work)
}

// awaitDrains waits up to quickDrain for the current drains. Drains without active sessions end during
// its first pause.
func (t *tablePartitions) awaitDrains(work context.Context) {
	for deadline := time.Now().Add(quickDrain); pause.For(work, 5*time.Millisecond) && time.Now().Before(deadline); {
		if !slices.ContainsFunc(t.worker.Partitions, func(p Partition) bool { return p.DrainState() == Draining }) {
			return
		}
	}
}

// pass reads the table once and carries out its plan. It returns the time until the next pass. done is
// true if this worker is leaving and has no partitions left.
func (t *tablePartitions) pass(work context.Context) (wait time.Duration, done bool) {
	ctx, cancel := context.WithTimeout(work, t.passLimit())
	defer cancel()
	plan, err := t.readAndWrite(ctx, work)
	t.dropExpired(work)
	switch {
	case err == nil:
		t.failures = 0
		t.worker.Health.OK("partitions table")
		if t.leaving && plan.owned == 0 && !slices.ContainsFunc(plan.steps, isDrain) {
			return 0, true
		}
	case store.IsConflict(err): // another worker was faster; read the table again
		return store.Jitter(ctx, passPace, 20*time.Millisecond), false
	case work.Err() != nil:
		return 0, true
	default:
		t.failures++
		if store.IsMissing(err) {
			t.worker.Missing(err)
		}
		t.worker.Health.Failed("partitions table", err)
		if t.failures < hurriedRetries {
			return store.Jitter(ctx, passPace, time.Duration(t.failures)*100*time.Millisecond), false
		}
	}
	wait = t.worker.AcquireInterval
	if plan.unsettled {
		wait = min(wait, unsettledInterval)
	}
	if !plan.expiry.IsZero() { // claim a crashed worker's partition as soon as its lease expires
		wait = min(wait, max(plan.expiry.Add(-t.ahead).Sub(t.worker.Clock.Now().Wall), 0)+store.Jitter(ctx, passPace, 100*time.Millisecond))
	}
	return wait, false
}

// passLimit returns the time limit of a pass. It is longer while the tables are slow.
func (t *tablePartitions) passLimit() time.Duration {
	return max(passTimeout, min(4*t.worker.TableLatency(), t.worker.Interval/2))
}

// passPace names the random source of the pauses between passes.
const passPace = "look at the partitions"

// isDrain reports whether a step of a leaving worker leaves work for a later pass.
func isDrain(s partitionStep) bool { return s.kind == stepDrain }

func (t *tablePartitions) readAndWrite(ctx, work context.Context) (partitionPlan, error) {
	rows, sent, err := t.worker.readRows(ctx)
	if err != nil {
		return partitionPlan{}, err
	}
	t.ahead = sent.Sub(t.worker.Clock.Now().Wall)
	plan := planPartitions(t.state(rows))
	if len(plan.drain) > 0 {
		for _, queue := range plan.drain {
			if p := t.byQueue[queue]; p != nil {
				t.worker.Log.Info("another worker requested the partition", "event", "PartitionManagerInfo", "partition", queue)
				p.BeginDrain(work, t.drainTime())
			}
		}
		t.awaitDrains(work)
		plan = planPartitions(t.state(rows))
	}
	for _, queue := range plan.lost {
		if p := t.byQueue[queue]; p != nil {
			t.worker.Log.Warn("partition lost", "event", "PartitionRemoved", "partition", queue, "workerId", t.worker.ID)
			t.worker.Meter.RecordOwnership(queue, metering.Lost)
			t.worker.Tasks.Go(p.StopReading(work))
		}
	}
	// Claims and steals compete with other workers, so they come last. If they conflict, the own
	// leases are renewed already.
	isOwn := func(s partitionStep) bool { return s.kind != stepClaim && s.kind != stepSteal }
	if err := t.write(ctx, work, plan.steps, isOwn); err != nil {
		return plan, err
	}
	return plan, t.write(ctx, work, plan.steps, func(s partitionStep) bool { return !isOwn(s) })
}

func (t *tablePartitions) drainTime() time.Duration {
	if t.leaving {
		return t.worker.DrainTimeout
	}
	return drainLimit
}

func (t *tablePartitions) state(rows []wire.PartitionRow) partitionState {
	t.planned = t.worker.Clock.Now()
	s := partitionState{
		rows: rows, now: t.serviceTime(), worker: t.worker.ID, leaving: t.leaving,
		lease:     t.worker.Interval + dateGrain,
		listening: map[string]bool{}, drains: map[string]DrainState{},
	}
	for queue, p := range t.byQueue {
		s.listening[queue] = p.IsReading()
		s.drains[queue] = p.DrainState()
	}
	return s
}

// serviceTime returns the time of the last plan by the service's clock.
func (t *tablePartitions) serviceTime() time.Time { return t.planned.Wall.UTC().Add(t.ahead) }

// write makes some of a plan's writes in one transaction, so that slow responses do not delay the
// renewal of the last leases. .NET sends one request per write. After a success, write carries out the
// consequences of the steps. An unknown outcome counts as a failure; the next pass reads the result.
func (t *tablePartitions) write(ctx, work context.Context, all []partitionStep, which func(partitionStep) bool) error {
	var steps []partitionStep
	var ops []store.Operation
	for _, s := range all {
		if t.byQueue[s.row.Queue] == nil || !which(s) {
			continue // unknown queues belong to a hub with more partitions, which Run refuses
		}
		steps = append(steps, s)
		ops = append(ops, store.Operation{Method: http.MethodPut, Entity: s.row.Row(), IfMatch: s.row.ETag})
	}
	if len(ops) == 0 {
		return nil
	}
	if _, err := t.worker.Table.Transact(ctx, ops); err != nil {
		return err
	}
	for _, s := range steps {
		t.wrote(work, s)
	}
	return nil
}

// wrote carries out the consequences of a successful step.
func (t *tablePartitions) wrote(work context.Context, step partitionStep) {
	p := t.byQueue[step.row.Queue]
	switch step.kind {
	case stepRelease:
		p.Released()
		t.worker.Log.Info("partition released", "event", "LeaseRemoved", "partition", step.row.Queue, "to", cmp.Or(step.row.NextOwner, "any worker"))
		t.worker.Meter.RecordOwnership(step.row.Queue, metering.Released)
	case stepSteal:
		t.worker.Log.Info("AttemptingToStealLease", "partition", step.row.Queue, "from", step.row.CurrentOwner)
		t.worker.Meter.RecordOwnership(step.row.Queue, metering.Stolen)
	case stepClaim, stepRenew, stepDrain:
	}
	if step.listen && !t.leaving {
		p.StartReading(work, t.planned.Add(step.row.ExpiresAt.Sub(t.serviceTime())-dateGrain))
	}
}

// dropExpired stops reading queues whose lease expired while the table was unreachable. Other workers
// may own them now.
func (t *tablePartitions) dropExpired(work context.Context) {
	for _, p := range t.worker.Partitions {
		if p.Expired(t.worker.Clock.Now()) {
			t.worker.Log.Warn("partition lost: its lease ended before it could be renewed", "event", "LeaseRenewalFailed", "partition", p.Name())
			t.worker.Meter.RecordOwnership(p.Name(), metering.Lost)
			t.worker.Tasks.Go(p.StopReading(work))
		}
	}
}

// sortedKeys returns the keys of m in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
