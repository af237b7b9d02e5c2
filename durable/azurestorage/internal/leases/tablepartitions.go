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
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
)

// The times of the table partition manager besides those that are settings
// (DurableTask.AzureStorage/Partitioning/TablePartitionManager.cs,
// PartitionManagerLoop and others).
const (
	// unsettledInterval is between looks while a worker is to release a partition.
	unsettledInterval = time.Second
	// passTimeout bounds one look at the table with all that follows from it, where
	// that answers as usual.
	passTimeout = 2 * time.Second
	// drainLimit is for how long a partition that another worker wants waits for
	// its sessions.
	drainLimit = time.Minute
	// quickDrain is how long a pass waits for a drain to end. Most end at once, and the
	// same pass releases the partition.
	quickDrain = 250 * time.Millisecond
	// hurriedRetries is how often a pass that failed is repeated without waiting
	// for the next interval.
	hurriedRetries = 10
)

// tablePartitions is the partition manager that keeps its leases in the
// partitions table. It does what planPartitions says, by the service's clock: that
// of a worker may be wrong, and then it would take partitions whose leases last or
// keep those whose leases have ended. .NET goes by the clocks of workers.
type tablePartitions struct {
	worker  *Worker
	byQueue map[string]Partition
	ahead   time.Duration // how much the service's clock is ahead of ours, at least

	leaving  bool
	failures int // in a row
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

// leave begins to drain all partitions.
func (t *tablePartitions) leave(work context.Context) {
	t.leaving = true
	for _, p := range t.worker.Partitions {
		if p.IsRead() {
			p.BeginDrain(work, t.worker.DrainTimeout)
		}
	}
	t.awaitDrains(work)
}

// awaitDrains waits a little for the drains that are under way. Those that have
// nothing to wait for end while it waits for the first time.
func (t *tablePartitions) awaitDrains(work context.Context) {
	for deadline := time.Now().Add(quickDrain); pause.For(work, 5*time.Millisecond) && time.Now().Before(deadline); {
		if !slices.ContainsFunc(t.worker.Partitions, func(p Partition) bool { return p.DrainState() == Draining }) {
			return
		}
	}
}

// pass reads the table once and carries its plan out. It returns the wait until the next pass.
// done means that this worker is leaving and has no partition left.
func (t *tablePartitions) pass(work context.Context) (wait time.Duration, done bool) {
	ctx, cancel := context.WithTimeout(work, t.patience())
	defer cancel()
	plan, err := t.readAndWrite(ctx, work)
	t.dropExpired(work)
	switch {
	case err == nil:
		t.failures = 0
		t.worker.Health.OK("partitions table")
		if t.leaving && plan.owned == 0 && !slices.ContainsFunc(plan.steps, keepsPartition) {
			return 0, true
		}
	case store.IsConflict(err): // another worker was faster; look again at what it did
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
	if !plan.expiry.IsZero() { // be there when a dead worker's lease ends
		wait = min(wait, max(time.Until(plan.expiry.Add(-t.ahead)), 0)+store.Jitter(ctx, passPace, 100*time.Millisecond))
	}
	return wait, false
}

// patience returns how long a pass may take: longer where the tables answer slowly.
func (t *tablePartitions) patience() time.Duration {
	return max(passTimeout, min(4*t.worker.TableLatency(), t.worker.Interval/2))
}

// passPace names what the pauses between passes are left to.
const passPace = "look at the partitions"

// keepsPartition reports whether a step of a leaving worker leaves something
// to do.
func keepsPartition(s partitionStep) bool { return s.kind == stepDrain }

func (t *tablePartitions) readAndWrite(ctx, work context.Context) (partitionPlan, error) {
	rows, ahead, err := ReadRows(ctx, t.worker.Table)
	if err != nil {
		return partitionPlan{}, err
	}
	t.ahead = ahead
	plan := planPartitions(t.state(rows))
	if len(plan.drain) > 0 {
		for _, queue := range plan.drain {
			if p := t.byQueue[queue]; p != nil {
				t.worker.Log.Info("partition is wanted by another worker", "event", "PartitionManagerInfo", "partition", queue)
				p.BeginDrain(work, t.drainTime())
			}
		}
		t.awaitDrains(work)
		plan = planPartitions(t.state(rows))
	}
	for _, queue := range plan.lost {
		if p := t.byQueue[queue]; p != nil {
			t.worker.Log.Warn("partition lost", "event", "PartitionRemoved", "partition", queue, "workerId", t.worker.ID)
			t.worker.Meter.Partition(queue, metering.Lost)
			t.worker.Tasks.Go(p.StopReading(work))
		}
	}
	// What others may want, too, comes last: who loses that has renewed what is its own.
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
	s := partitionState{
		rows: rows, now: time.Now().UTC().Add(t.ahead), worker: t.worker.ID, leaving: t.leaving,
		lease:     t.worker.Interval + dateGrain,
		listening: map[string]bool{}, drains: map[string]DrainState{},
	}
	for queue, p := range t.byQueue {
		s.listening[queue] = p.IsRead()
		s.drains[queue] = p.DrainState()
	}
	return s
}

// write makes some of a plan's writes or none of them, in one request: where answers are
// slow the leases that come last are not renewed too late. .NET makes a request for each.
// What follows from the writes follows then. If their outcome is unknown that is a failure:
// the next pass finds out.
func (t *tablePartitions) write(ctx, work context.Context, all []partitionStep, which func(partitionStep) bool) error {
	var steps []partitionStep
	var ops []store.Operation
	for _, s := range all {
		if t.byQueue[s.row.Queue] == nil || !which(s) {
			continue // the first: of a hub with more partitions, which Run has refused
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

// wrote does what follows from a write.
func (t *tablePartitions) wrote(work context.Context, step partitionStep) {
	p := t.byQueue[step.row.Queue]
	switch step.kind {
	case stepRelease:
		p.Released()
		t.worker.Log.Info("partition released", "event", "LeaseRemoved", "partition", step.row.Queue, "to", cmp.Or(step.row.NextOwner, "anybody"))
		t.worker.Meter.Partition(step.row.Queue, metering.Released)
	case stepSteal:
		t.worker.Log.Info("AttemptingToStealLease", "partition", step.row.Queue, "from", step.row.CurrentOwner)
		t.worker.Meter.Partition(step.row.Queue, metering.Stolen)
	case stepClaim, stepRenew, stepDrain:
	}
	if step.listen && !t.leaving {
		p.Listen(work, step.row.ExpiresAt.Add(-dateGrain-t.ahead))
	}
}

// dropExpired stops reading queues whose lease has ended because the table was
// out of reach: others may have them by now.
func (t *tablePartitions) dropExpired(work context.Context) {
	for _, p := range t.worker.Partitions {
		if p.Expired(time.Now()) {
			t.worker.Log.Warn("partition lost: its lease ended before it could be renewed", "event", "LeaseRenewalFailed", "partition", p.Name())
			t.worker.Meter.Partition(p.Name(), metering.Lost)
			t.worker.Tasks.Go(p.StopReading(work))
		}
	}
}

// sortedKeys returns the keys of m in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
