package leases

import (
	"context"
	"errors"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
)

// blobPartitions is the common part of the blob partition managers. It passes over the leases
// periodically, and releases them at the end.
type blobPartitions struct {
	worker  *Worker
	byQueue map[string]Partition
	leases  leasing
	leaving bool
}

// leasing is the part that differs: the leases that a worker needs to read a queue.
type leasing interface {
	// pass passes over the leases once, and reads the queues whose leases this worker holds. unsettled
	// asks for another pass soon.
	pass(ctx, work context.Context) (unsettled bool, err error)
	// releaseLeases releases the leases of a queue that is no longer read.
	releaseLeases(ctx context.Context, queue string) error
	// held returns the queues with a lease that this worker holds.
	held() []string
	// interval returns the time between two passes.
	interval() time.Duration
}

func newBlobPartitions(w *Worker) *blobPartitions {
	b := &blobPartitions{worker: w, byQueue: map[string]Partition{}}
	for _, p := range w.Partitions {
		b.byQueue[p.Name()] = p
	}
	if w.Kind == LegacyBlobs {
		b.leases = &legacyLeasing{blobPartitions: b, keeper: newLeaseKeeper(w.leaseSet(defaultLeases)), stolen: map[string]time.Time{}}
	} else {
		b.leases = &safeLeasing{
			blobPartitions: b, intent: newLeaseKeeper(w.leaseSet(intentLeases)), ownership: newLeaseKeeper(w.leaseSet(ownershipLeases)),
		}
	}
	return b
}

// Run implements [Manager].
func (b *blobPartitions) Run(ctx, work context.Context) {
	for ctx.Err() == nil {
		unsettled, err := b.pass(work)
		b.dropExpired(work)
		switch {
		case work.Err() != nil:
			return
		case err == nil:
			b.worker.Health.OK("partition leases")
		default:
			b.worker.Health.Failed("partition leases", err)
		}
		wait := b.leases.interval()
		if unsettled || err != nil {
			wait = min(wait, unsettledInterval)
		}
		if !pause.For(ctx, wait) {
			break
		}
	}
	b.leave(work)
}

func (b *blobPartitions) pass(work context.Context) (unsettled bool, err error) {
	ctx, cancel := context.WithTimeout(work, leasePassTimeout)
	defer cancel()
	return b.leases.pass(ctx, work)
}

// leasePassTimeout limits one pass over the leases, including its writes.
const leasePassTimeout = 8 * time.Second

// leave stops reading all queues, and releases each queue's leases when its sessions have ended.
func (b *blobPartitions) leave(work context.Context) {
	b.leaving = true
	for _, p := range b.worker.Partitions {
		if p.IsReading() {
			p.BeginDrain(work, b.worker.DrainTimeout)
		}
	}
	for wait := time.Millisecond; pause.For(work, wait); wait = leavePause { // idle drains end immediately
		held := b.leases.held()
		if len(held) == 0 {
			return
		}
		for _, queue := range held {
			if p := b.byQueue[queue]; p == nil || p.DrainState() != Draining {
				b.release(work, queue)
			}
		}
	}
}

// leavePause is the time between checks of a leaving worker for ended sessions.
const leavePause = 20 * time.Millisecond

// release releases the leases of a queue that is no longer read.
func (b *blobPartitions) release(work context.Context, queue string) {
	ctx, cancel := context.WithTimeout(work, leasePassTimeout)
	defer cancel()
	if err := b.leases.releaseLeases(ctx, queue); err != nil {
		b.worker.Log.Warn("cannot release the partition's lease; it remains until it expires", "partition", queue, "error", err)
		return
	}
	if p := b.byQueue[queue]; p != nil {
		p.Released()
	}
	b.worker.Log.Info("partition released", "event", "LeaseRemoved", "partition", queue, "to", "any worker")
	b.worker.Meter.RecordOwnership(queue, metering.Released)
}

// lost stops reading a queue whose lease was lost to another worker.
func (b *blobPartitions) lost(work context.Context, queue string) {
	if p := b.byQueue[queue]; p != nil {
		b.worker.Log.Warn("partition lost", "event", "PartitionRemoved", "partition", queue, "workerId", b.worker.ID)
		b.worker.Meter.RecordOwnership(queue, metering.Lost)
		b.worker.Tasks.Go(p.StopReading(work))
	}
}

// dropExpired stops reading queues whose lease expired while the storage was unreachable. Other
// workers may own them now.
func (b *blobPartitions) dropExpired(work context.Context) {
	for _, p := range b.worker.Partitions {
		if p.Expired(b.worker.Clock.Now()) {
			b.lost(work, p.Name())
		}
	}
}

// isOurs reports whether a queue belongs to the hub's current configuration.
func (b *blobPartitions) isOurs(queue string) bool { return b.byQueue[queue] != nil }

// legacyLeasing reads a queue under one lease. A worker whose lease was taken over detects this at its
// next renewal. The new owner does not read the queue before that; .NET's new owner does
// (DurableTask.AzureStorage/Partitioning/LegacyPartitionManager.cs).
type legacyLeasing struct {
	*blobPartitions
	keeper *leaseKeeper
	stolen map[string]time.Time // times of takeovers, until the queue is read
}

func (l *legacyLeasing) interval() time.Duration { return l.worker.AcquireInterval }
func (l *legacyLeasing) held() []string          { return l.keeper.partitions() }

func (l *legacyLeasing) releaseLeases(ctx context.Context, queue string) error {
	return l.keeper.drop(ctx, queue)
}

func (l *legacyLeasing) pass(ctx, work context.Context) (unsettled bool, err error) {
	lost, errRenew := l.keeper.renew(ctx)
	for _, queue := range lost {
		l.lost(work, queue)
	}
	stolen, errTake := l.keeper.balance(ctx, l.isOurs, true)
	for _, queue := range stolen {
		l.worker.Log.Info("AttemptingToStealLease", "partition", queue)
		l.worker.Meter.RecordOwnership(queue, metering.Stolen)
		l.stolen[queue] = time.Now()
	}
	for _, queue := range l.keeper.partitions() {
		until, _ := l.keeper.has(queue)
		if at, ok := l.stolen[queue]; ok && time.Since(at) < l.interval() || !l.isOurs(queue) {
			continue
		}
		delete(l.stolen, queue)
		l.byQueue[queue].StartReading(work, until)
	}
	return false, errors.Join(errRenew, errTake)
}

// safeLeasing reads a queue under two leases. The intent names the next owner and can be taken over at
// any time. The ownership names the current owner and is never taken over: its owner releases it when
// the queue's sessions have ended (DurableTask.AzureStorage/Partitioning/SafePartitionManager.cs).
// .NET lets it expire instead, and no worker reads the queue for half a minute.
type safeLeasing struct {
	*blobPartitions
	intent, ownership *leaseKeeper

	looked time.Time // time of the last balance of intents
}

// interval is half the acquire interval: ownerships are checked twice as often as intents
// (SafePartitionManager.cs).
func (l *safeLeasing) interval() time.Duration { return l.worker.AcquireInterval / 2 }

func (l *safeLeasing) held() []string {
	all := map[string]bool{}
	for _, k := range []*leaseKeeper{l.intent, l.ownership} {
		for _, queue := range k.partitions() {
			all[queue] = true
		}
	}
	return sortedKeys(all)
}

func (l *safeLeasing) releaseLeases(ctx context.Context, queue string) error {
	if err := l.intent.drop(ctx, queue); err != nil {
		return err
	}
	return l.ownership.drop(ctx, queue)
}

func (l *safeLeasing) pass(ctx, work context.Context) (unsettled bool, err error) {
	errIntent := l.passIntents(ctx, work)
	errOwnership := l.passOwnerships(ctx, work)
	for _, queue := range l.intent.partitions() {
		if _, ok := l.ownership.has(queue); !ok && l.isOurs(queue) {
			unsettled = true // the previous owner is draining it
		}
	}
	for _, queue := range l.ownership.partitions() {
		unsettled = unsettled || l.byQueue[queue].DrainState() != NotDraining
	}
	return unsettled, errors.Join(errIntent, errOwnership)
}

func (l *safeLeasing) passIntents(ctx, work context.Context) error {
	lost, err := l.intent.renew(ctx)
	for _, queue := range lost {
		if p := l.byQueue[queue]; p != nil && p.IsReading() {
			l.worker.Log.Info("another worker requested the partition", "event", "PartitionManagerInfo", "partition", queue)
			p.BeginDrain(work, drainLimit)
		}
	}
	if time.Since(l.looked) < l.worker.AcquireInterval-time.Millisecond {
		return err
	}
	stolen, errTake := l.intent.balance(ctx, l.isOurs, true)
	for _, queue := range stolen {
		l.worker.Log.Info("AttemptingToStealLease", "partition", queue)
		l.worker.Meter.RecordOwnership(queue, metering.Stolen)
	}
	if errTake == nil {
		l.looked = time.Now()
	}
	return errors.Join(err, errTake)
}

func (l *safeLeasing) passOwnerships(ctx, work context.Context) error {
	lost, err := l.ownership.renew(ctx)
	for _, queue := range lost {
		l.lost(work, queue)
	}
	for _, queue := range l.ownership.partitions() {
		if _, wanted := l.intent.has(queue); wanted || l.byQueue[queue].DrainState() == Draining {
			continue
		}
		if !l.byQueue[queue].IsReading() {
			err = errors.Join(err, l.releaseOwnership(ctx, queue))
		}
	}
	_, errTake := l.ownership.balance(ctx, func(queue string) bool {
		_, wanted := l.intent.has(queue)
		return wanted && l.isOurs(queue)
	}, false)
	for _, queue := range l.ownership.partitions() {
		until, _ := l.ownership.has(queue)
		if _, wanted := l.intent.has(queue); wanted && l.byQueue[queue].DrainState() != Draining {
			l.byQueue[queue].StartReading(work, until)
		}
	}
	return errors.Join(err, errTake)
}

// releaseOwnership releases the ownership of a queue whose sessions have ended.
func (l *safeLeasing) releaseOwnership(ctx context.Context, queue string) error {
	if err := l.ownership.drop(ctx, queue); err != nil {
		return err
	}
	l.byQueue[queue].Released()
	l.worker.Log.Info("partition released", "event", "LeaseRemoved", "partition", queue, "to", "the worker that requested it")
	l.worker.Meter.RecordOwnership(queue, metering.Released)
	return nil
}
