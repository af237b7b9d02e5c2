package partitionlog

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/bloblog"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
)

const (
	// tick is the interval at which a worker acquires missing partitions and looks for changes of
	// other workers. MaxPollingInterval can lengthen it to save requests.
	tick = 500 * time.Millisecond
	// rosterDelay is the wait after the worker's partitions have changed since its last heartbeat.
	rosterDelay = 20 * time.Millisecond
)

// Run implements [provider.Worker]. It acquires this worker's share of the partitions and releases
// partitions that other workers should own.
func (h *Hub) Run(ctx context.Context) error {
	if err := h.begin(ctx); err != nil {
		return err
	}
	defer h.ended()
	stop, err := h.meter.Observe(h.observe)
	if err != nil {
		h.log.Warn("cannot report the state of the hub as metrics", "error", err)
	} else {
		defer func() { _ = stop() }() // it cannot fail the first time
	}
	began := time.Now()
	var workers map[string]*heartbeat
	var beaten time.Time
	roster := roster{listener: listener{hub: h}}
	leaving := releaser{hub: h, over: make(chan struct{}, 1)}
	defer leaving.tasks.Wait()
	wants := true // this worker should own more partitions than it does
	heard := true // the last heartbeat was written, and the others were read
	warnOnce := sync.OnceFunc(func() { h.warnOfQueues(ctx) })
	for ctx.Err() == nil && h.deleted() == nil {
		wait := min(max(tick, h.cfg.MaxPollingInterval/2), h.cfg.BalanceInterval)
		err := h.ensure(ctx)
		if wrong := (*azurestorage.PartitionCountError)(nil); errors.As(err, &wrong) {
			return err
		}
		if wrong := (*FormatError)(nil); errors.As(err, &wrong) {
			return err
		}
		if errors.Is(err, ErrClosed) {
			return err
		}
		retry, giveUp := store.DecideAccessRetry(err, time.Since(began))
		if giveUp {
			return err
		}
		if retry {
			h.log.Warn(store.RoleMissingNotice, "patience", store.RoleAssignmentTimeout, "error", err)
		}
		if err == nil {
			warnOnce()
		}
		due := time.Since(beaten) >= h.cfg.BalanceInterval
		if err == nil && !due {
			due, err = roster.hasChanged(ctx, wants)
		}
		if err == nil && due {
			beaten = time.Now()
			all, failed := roster.beat(ctx)
			if heard = failed == nil; heard {
				workers = all
			} else {
				err = failed
			}
		}
		if err == nil {
			wants = h.balance(ctx, workers, &leaving)
			h.offload(ctx, workers)
		}
		const silent = "cannot use the storage of the task hub; trying again"
		if err != nil && ctx.Err() == nil && h.deleted() == nil && h.blocked.shouldLog(silent, err) {
			h.log.Warn(silent, "error", err)
		}
		switch {
		case !heard:
			wait = max(wait, time.Second)
		case err == nil && roster.isOutdated():
			beaten, wait = time.Time{}, rosterDelay
		}
		leaving.pause(ctx, wait)
	}
	h.recordNotOpened(nil)
	deleted := h.deleted()
	if deleted == nil {
		leaving.tasks.Go(func() { roster.leave(context.WithoutCancel(ctx)) }) // until the partitions are released, other workers try to acquire them
	}
	for _, s := range h.partitions {
		leaving.release(s)
	}
	return deleted
}

// balance releases partitions that other workers should own and acquires free partitions that this
// worker should own. It reports whether this worker should own more partitions.
func (h *Hub) balance(ctx context.Context, all map[string]*heartbeat, leaving *releaser) (wants bool) {
	workers, young := map[string][]int{}, map[string]bool{}
	for id, b := range all {
		workers[id], young[id] = slices.Sorted(maps.Keys(b.Backlogs)), b.Young
	}
	var mine []int
	owners := h.owners()
	for _, o := range owners {
		o.serve(ctx) // the partition may have been acquired for a client
		mine = append(mine, o.handle.number)
	}
	workers[h.cfg.WorkerID] = mine
	release, want, from := plan(h.cfg.WorkerID, workers, young, len(h.partitions))
	for _, o := range owners[len(owners)-release:] {
		if !o.handle.leaving.Load() {
			h.log.Info("releasing a partition that another worker should own", "partition", o.handle.number)
			leaving.release(o.handle)
		}
	}
	failed := make(map[int]error)
	for want > 0 && len(from) > 0 && ctx.Err() == nil {
		some := from[:min(want, len(from))]
		from = from[len(some):]
		want -= h.acquireAll(ctx, some, failed)
	}
	if ctx.Err() == nil {
		h.recordNotOpened(failed)
	}
	return want > 0
}

// damageRetryInterval is the time between attempts to open a partition whose blobs are damaged or
// missing. Each attempt reads the whole log. If only base files are missing, it also appends to the log.
const damageRetryInterval = 10 * time.Second

// acquireAll acquires the given partitions that have no owner and returns their number. It adds the
// errors of partitions that cannot be opened to failed.
func (h *Hub) acquireAll(ctx context.Context, some []int, failed map[int]error) (taken int) {
	var mu sync.Mutex // protects taken and failed
	var all sync.WaitGroup
	for _, n := range some {
		all.Go(func() {
			s := h.partitions[n]
			err := s.damage
			if err == nil || time.Since(s.damagedAt) >= damageRetryInterval {
				var o *owner
				if o, err = s.acquire(ctx); err == nil {
					o.serve(ctx)
				}
				if s.damage = nil; isDamage(err) || errors.As(err, new(*UnreadableError)) {
					s.damage, s.damagedAt = err, time.Now()
				}
			}
			mu.Lock()
			defer mu.Unlock()
			switch held := (*bloblog.HeldError)(nil); {
			case err == nil:
				taken++
			case !errors.As(err, &held):
				failed[n] = err
			}
		})
	}
	all.Wait()
	return taken
}

// offloadAfter is the waiting time after which an activity may be moved to an idle worker.
const offloadAfter = time.Second

// offload moves activities that wait for a free slot of this worker to workers with free slots.
func (h *Hub) offload(ctx context.Context, all map[string]*heartbeat) {
	if !slices.ContainsFunc(h.owners(), func(o *owner) bool { return o.Backlog().Activities.Latency >= offloadAfter }) {
		return
	}
	if err := h.refresh(ctx, all); err != nil {
		return // the storage does not answer; the next round tries again
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		b := all[id]
		to := slices.Sorted(maps.Keys(b.Backlogs))
		if id == h.cfg.WorkerID || b.Idle == 0 || len(to) == 0 {
			continue
		}
		for _, o := range h.owners() {
			n := int(chance.Float64(ctx, "offload") * float64(len(to)))
			moved, err := o.Offload(ctx, b.Idle, offloadAfter, to[n])
			if err != nil && ctx.Err() == nil {
				h.log.Warn("cannot hand activities over to another worker", "partition", o.handle.number, "error", err)
			}
			if b.Idle -= moved; b.Idle == 0 {
				break
			}
		}
	}
}

// serve dispatches the partition's work until ctx ends or the partition is released.
func (o *owner) serve(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.serving != nil {
		return
	}
	ctx, o.serving = context.WithCancel(ctx)
	o.served = make(chan struct{})
	h, done := o.handle.hub, o.served
	go func() { // stopServing waits for it
		defer close(done)
		_ = o.drainSince(ctx, o.opened) // mail from before the opening is processed first; after an error it is processed later
		var feeding sync.WaitGroup
		feeding.Go(func() {
			for {
				item, err := o.NextOrchestration(ctx)
				if err != nil {
					return
				}
				select {
				case h.orchestrations <- item:
				case <-ctx.Done():
					_ = item.Session.Release(context.WithoutCancel(ctx)) // it cannot fail: it only changes memory
				}
			}
		})
		feeding.Go(func() {
			for {
				item, err := o.NextActivity(ctx)
				if err != nil {
					return
				}
				select {
				case h.activities <- item:
				case <-ctx.Done():
					_ = item.Lock.Abandon(context.WithoutCancel(ctx), ctx.Err()) // it cannot fail: it only changes memory
				}
			}
		})
		_ = o.Partition.Run(ctx) // the only error is that the partition is closed
		feeding.Wait()
	}()
}

// stopServing stops serve and waits for the work in flight.
func (o *owner) stopServing() {
	o.mu.Lock()
	stop, done := o.serving, o.served
	o.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
}
