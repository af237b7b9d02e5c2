package partitionlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/bloblog"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// worker is what a hub needs to hand out work: what its partitions have ready.
type worker struct {
	orchestrations chan *provider.OrchestrationWorkItem
	activities     chan *provider.ActivityWorkItem

	idle atomic.Int32 // calls of NextActivity that wait

	state   sync.Mutex // protects the following
	running context.Context
}

func newWorker() worker {
	return worker{orchestrations: make(chan *provider.OrchestrationWorkItem), activities: make(chan *provider.ActivityWorkItem)}
}

// isRunning reports whether Run runs and has not been asked to end.
func (w *worker) isRunning() bool {
	w.state.Lock()
	defer w.state.Unlock()
	return w.running != nil && w.running.Err() == nil
}

// begin notes that Run runs with a context. It fails if it does already.
func (w *worker) begin(ctx context.Context) error {
	w.state.Lock()
	defer w.state.Unlock()
	if w.running != nil {
		return errors.New("task hub is running already")
	}
	w.running = ctx
	return nil
}

// ended notes that Run has ended.
func (w *worker) ended() {
	w.state.Lock()
	defer w.state.Unlock()
	w.running = nil
}

// NextOrchestration implements [provider.Worker].
func (w *worker) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	return next(ctx, w.orchestrations)
}

// NextActivity implements [provider.Worker].
func (w *worker) NextActivity(ctx context.Context) (*provider.ActivityWorkItem, error) {
	w.idle.Add(1)
	defer w.idle.Add(-1)
	return next(ctx, w.activities)
}

func next[T any](ctx context.Context, items chan T) (item T, err error) {
	if err := ctx.Err(); err != nil {
		return item, err
	}
	select {
	case item = <-items:
		return item, nil
	case <-ctx.Done():
		return item, ctx.Err()
	}
}

const (
	// tick is how often a worker tries to take partitions that it should have, and looks
	// whether those of others have changed, unless it is to ask the storage for less.
	tick = 500 * time.Millisecond
	// soon is how long it waits when it has other partitions than it said.
	soon = 20 * time.Millisecond
)

// Run implements [provider.Worker]. It takes the partitions that are this worker's share,
// and gives up those that others should have.
func (h *Hub) Run(ctx context.Context) error {
	if err := h.begin(ctx); err != nil {
		return err
	}
	defer h.ended()
	stop, err := h.meter.Observe(h.observe)
	if err != nil {
		h.log.Warn("the metrics do not tell what waits in the partitions", "error", err)
	} else {
		defer func() { _ = stop() }() // it cannot be undone twice
	}
	began := time.Now()
	var workers map[string]*heartbeat
	var beaten time.Time
	roster := roster{listener: listener{hub: h}}
	leaving := leaving{hub: h, over: make(chan struct{}, 1)}
	defer leaving.tasks.Wait()
	wants := true // this worker should have more partitions than it has
	heard := true // the last heartbeat was written, and those of the others read
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
		retry, giveUp := store.AccessWait(err, time.Since(began))
		if giveUp {
			return err
		}
		if retry {
			h.log.Warn(store.AwaitRole, "patience", store.RolePatience, "error", err)
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
		const silent = "the task hub's storage does not answer; trying again"
		if err != nil && ctx.Err() == nil && h.deleted() == nil && h.blocked.isNews(silent, err) {
			h.log.Warn(silent, "error", err)
		}
		switch {
		case !heard:
			wait = max(wait, time.Second)
		case err == nil && roster.isOutdated():
			beaten, wait = time.Time{}, soon
		}
		leaving.pause(ctx, wait)
	}
	h.notOpened(nil)
	deleted := h.deleted()
	if deleted == nil {
		leaving.tasks.Go(func() { roster.leave(context.WithoutCancel(ctx)) }) // others try to take the partitions until they are given up
	}
	for _, s := range h.shares {
		leaving.giveUp(s)
	}
	return deleted
}

// balance releases partitions that other workers should have, and takes free partitions that this
// worker should have. It reports whether this worker should have more partitions.
func (h *Hub) balance(ctx context.Context, all map[string]*heartbeat, leaving *leaving) (wants bool) {
	workers, young := map[string][]int{}, map[string]bool{}
	for id, b := range all {
		workers[id], young[id] = slices.Sorted(maps.Keys(b.Backlogs)), b.Young
	}
	var mine []int
	owners := h.owners()
	for _, o := range owners {
		o.serve(ctx) // it may be one that a client took
		mine = append(mine, o.share.number)
	}
	workers[h.cfg.WorkerID] = mine
	release, want, from := plan(h.cfg.WorkerID, workers, young, len(h.shares))
	for _, o := range owners[len(owners)-release:] {
		if !o.share.leaving.Load() {
			h.log.Info("giving up a partition, which another worker should have", "partition", o.share.number)
			leaving.giveUp(o.share)
		}
	}
	failed := make(map[int]error)
	for want > 0 && len(from) > 0 && ctx.Err() == nil {
		some := from[:min(want, len(from))]
		from = from[len(some):]
		want -= h.takeAll(ctx, some, failed)
	}
	if ctx.Err() == nil {
		h.notOpened(failed)
	}
	return want > 0
}

// takeAll acquires the given partitions that have no owner, and returns their number. It adds the
// errors of partitions that cannot be opened to failed.
func (h *Hub) takeAll(ctx context.Context, some []int, failed map[int]error) (taken int) {
	var mu sync.Mutex // protects taken and failed
	var all sync.WaitGroup
	for _, n := range some {
		all.Go(func() {
			o, err := h.shares[n].take(ctx)
			if err == nil {
				o.serve(ctx)
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

// Activities that have waited for so long are run by others that have nothing to do.
const offloadAfter = time.Second

// offload gives activities that wait here, since all places are taken, to workers that have
// nothing to do.
func (h *Hub) offload(ctx context.Context, all map[string]*heartbeat) {
	if !slices.ContainsFunc(h.owners(), func(o *owner) bool { return o.Backlog().Activities.Latency >= offloadAfter }) {
		return
	}
	if err := h.refresh(ctx, all); err != nil {
		return // the storage does not answer
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
				h.log.Warn("activities cannot be given to another worker", "partition", o.share.number, "error", err)
			}
			if b.Idle -= moved; b.Idle == 0 {
				break
			}
		}
	}
}

// owners returns the partitions that this process owns, in their order. Any of them may be
// lost meanwhile.
func (h *Hub) owners() (mine []*owner) {
	for _, s := range h.shares {
		if o := s.owner(); o != nil {
			mine = append(mine, o)
		}
	}
	return mine
}

// serve lets the partition's work be dispatched until ctx ends or it is given up.
func (o *owner) serve(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.serving != nil {
		return
	}
	ctx, o.serving = context.WithCancel(ctx)
	o.served = make(chan struct{})
	h, done, began := o.share.hub, o.served, o.share.hub.moment()
	go func() { // stopServing waits for it
		defer close(done)
		_ = o.drainSince(ctx, began) // what was sent before counts from the beginning; after an error it comes later
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
					_ = item.Session.Release(context.WithoutCancel(ctx)) // it is in memory only
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
					_ = item.Lock.Abandon(context.WithoutCancel(ctx), ctx.Err()) // it is in memory only
				}
			}
		})
		_ = o.Partition.Run(ctx) // nil, or that the partition is closed
		feeding.Wait()
	}()
}

// stopServing ends what serve began, and waits for the work in flight.
func (o *owner) stopServing() {
	o.mu.Lock()
	stop, done := o.serving, o.served
	o.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
}

// heartbeat is a report of a worker about itself, see [roster].
type heartbeat struct {
	size int64 // of the blob whose metadata has it; 0 if it is not older than the blob's content

	// Idle is how many activities more it could run.
	Idle int `json:"idle"`
	// Young says that it has worked for a short time only: others give it no partitions.
	Young bool `json:"young,omitempty"`
	// Build says which program it is, in ASCII.
	Build string `json:"build,omitempty"`
	// Backlogs are of its partitions, by their numbers.
	Backlogs map[int]backlog `json:"partitions"`
}

// backlog is a [partition.Backlog]: numbers, and ages in milliseconds.
type backlog struct {
	Messages      int   `json:"m,omitempty"`
	MessagesAge   int64 `json:"ma,omitempty"`
	Activities    int   `json:"a,omitempty"`
	ActivitiesAge int64 `json:"aa,omitempty"`
}

const (
	workersPrefix = "workers/"
	heartbeatKey  = "heartbeat"
)

// heartbeat returns what this worker says of itself.
func (h *Hub) heartbeat() *heartbeat {
	b := &heartbeat{Idle: int(h.idle.Load()), Build: ascii(h.cfg.Build, 200), Backlogs: map[int]backlog{}}
	for _, o := range h.owners() {
		waits := o.Backlog()
		b.Backlogs[o.share.number] = backlog{
			waits.Messages.Length, waits.Messages.Latency.Milliseconds(), waits.Activities.Length, waits.Activities.Latency.Milliseconds(),
		}
	}
	return b
}

// ascii returns the first bytes of a text, at most so many, with "?" for what no HTTP header
// can have.
func ascii(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return text[:min(len(text), most)]
}

// observe tells the metrics what waits in the partitions that this worker serves.
func (h *Hub) observe(context.Context) (states []metering.QueueState, err error) {
	activities := metering.QueueState{Queue: h.blobs.Name + "/activities"}
	for _, o := range h.owners() {
		waits := o.Backlog()
		states = append(states, metering.QueueState{Queue: o.share.queue(), Length: waits.Messages.Length, Latency: waits.Messages.Latency})
		activities.Length += waits.Activities.Length
		activities.Latency = max(activities.Latency, waits.Activities.Latency)
	}
	return append(states, activities), nil
}

// Load implements [provider.LoadReporter]. Of partitions that other workers have, it is what
// those said last; of those that nobody has, what is stored.
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
		ControlQueues: make([]provider.QueueLoad, len(h.shares)), Owners: make([]string, len(h.shares)), Builds: make(map[string]string),
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
		for n, b := range beat.Backlogs {
			known[n] = true
			load.Owners[n] = id
			load.ControlQueues[n] = provider.QueueLoad{Length: b.Messages, Latency: time.Duration(b.MessagesAge) * time.Millisecond, Stored: b.Messages}
			load.WorkItems.Length += b.Activities
			load.WorkItems.Latency = max(load.WorkItems.Latency, time.Duration(b.ActivitiesAge)*time.Millisecond)
		}
	}
	for n, s := range h.shares {
		if known[n] {
			continue
		}
		err := s.readIfAny(ctx, func(r *partition.Reader) error {
			messages, activities, err := r.Pending()
			load.ControlQueues[n].Length = messages
			load.WorkItems.Length += activities
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read the hub's load: %w", err)
		}
	}
	return load, nil
}
