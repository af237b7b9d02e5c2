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

// worker passes work items from the owned partitions to the dispatcher.
type worker struct {
	orchestrations chan *provider.OrchestrationWorkItem
	activities     chan *provider.ActivityWorkItem

	idle atomic.Int32 // waiting calls of NextActivity

	state   sync.Mutex // protects the fields below
	running context.Context
}

func newWorker() worker {
	return worker{orchestrations: make(chan *provider.OrchestrationWorkItem), activities: make(chan *provider.ActivityWorkItem)}
}

// isRunning reports whether Run is running and its context has not ended.
func (w *worker) isRunning() bool {
	w.state.Lock()
	defer w.state.Unlock()
	return w.running != nil && w.running.Err() == nil
}

// begin records that Run has started with ctx. It fails if Run is running already.
func (w *worker) begin(ctx context.Context) error {
	w.state.Lock()
	defer w.state.Unlock()
	if w.running != nil {
		return errors.New("task hub is running already")
	}
	w.running = ctx
	return nil
}

// ended records that Run has returned.
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

// acquireAll acquires the given partitions that have no owner and returns their number. It adds the
// errors of partitions that cannot be opened to failed.
func (h *Hub) acquireAll(ctx context.Context, some []int, failed map[int]error) (taken int) {
	var mu sync.Mutex // protects taken and failed
	var all sync.WaitGroup
	for _, n := range some {
		all.Go(func() {
			o, err := h.partitions[n].acquire(ctx)
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

// owners returns the partitions that this process owns, in order. Any of them may be lost at any
// time.
func (h *Hub) owners() (mine []*owner) {
	for _, s := range h.partitions {
		if o := s.owner(); o != nil {
			mine = append(mine, o)
		}
	}
	return mine
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
		_ = o.drainSince(ctx, o.opened) // earlier mail is processed first; after an error it is processed later
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

// heartbeat is the report of a worker about itself, see [roster].
type heartbeat struct {
	size int64 // size of the blob with the heartbeat in its metadata; 0 if the blob has no newer heartbeat

	// Idle is the number of free activity slots.
	Idle int `json:"idle"`
	// Young means that the worker started recently: other workers give it no partitions.
	Young bool `json:"young,omitempty"`
	// Build names the worker's program, in ASCII.
	Build string `json:"build,omitempty"`
	// Steps is the number of steps that run or wait for a slot. StepsAge is the age of the first
	// that waits, in milliseconds.
	Steps    int   `json:"steps,omitempty"`
	StepsAge int64 `json:"stepsAge,omitempty"`
	// Backlogs contains the backlogs of the worker's partitions, by partition number.
	Backlogs map[int]backlog `json:"partitions"`
}

// backlog is a [partition.Backlog]: counts, and ages in milliseconds.
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

// heartbeat returns the current heartbeat of this worker.
func (h *Hub) heartbeat() *heartbeat {
	b := &heartbeat{Idle: int(h.idle.Load()), Build: ascii(h.cfg.Build, 200), Backlogs: map[int]backlog{}}
	if steps := h.steps.Load(); steps != nil {
		load := (*steps)()
		b.Steps, b.StepsAge = load.Length, load.Latency.Milliseconds()
	}
	for _, o := range h.owners() {
		waits := o.Backlog()
		b.Backlogs[o.handle.number] = backlog{
			waits.Messages.Length, waits.Messages.Latency.Milliseconds(), waits.Activities.Length, waits.Activities.Latency.Milliseconds(),
		}
	}
	return b
}

// ascii returns the first most bytes of a text, with "?" for each character that an HTTP header
// cannot contain.
func ascii(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return text[:min(len(text), most)]
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
			load.ControlQueues[n] = provider.QueueLoad{Length: b.Messages, Latency: time.Duration(b.MessagesAge) * time.Millisecond, Stored: b.Messages}
			load.WorkItems.Length += b.Activities
			load.WorkItems.Latency = max(load.WorkItems.Latency, time.Duration(b.ActivitiesAge)*time.Millisecond)
		}
	}
	for n, s := range h.partitions {
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
