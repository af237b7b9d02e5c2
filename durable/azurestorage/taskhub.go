package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/jumpstart"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/leases"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A TaskHub is a task hub in an Azure Storage account. Make one with [Open].
// One value serves any number of clients, and one worker.
type TaskHub struct {
	cfg      Config
	log      *slog.Logger
	meter    *metering.Hub
	names    wire.HubNames
	services *store.Services

	partitionsTable *store.Table
	workItems       *store.Queue
	controlQueues   []*store.Queue
	largeMessages   *store.Container
	appLeases       *store.Container
	leases          *leases.Worker
	appLease        *leases.AppManager

	resources *resources
	sender    *sender
	health    health
	routine   routine
	hidden    hiddenMessages
	starts    *starter
	overdue   *overdueStarts
	instances *instances.Store
	held      *heldMessages
	// undecodable are messages that this version cannot decode.
	undecodable *undecodable
	endings     endings
	pendingRows sync.Map // of *pendingRow, by instance
	begun       begun
	// superseded are executions that this process has replaced by their next generation.
	superseded recentExecutions
	partitions []*partition
	inbox      *inbox
	tracking   *tracker
	activities *activityQueue

	running  atomic.Bool    // Run was called
	cutShort atomic.Bool    // Run ended although there was work in progress
	tasks    sync.WaitGroup // the goroutines that Run waits for
}

var (
	_ provider.Provider          = (*TaskHub)(nil)
	_ provider.LoadReporter      = (*TaskHub)(nil)
	_ provider.Checker           = (*TaskHub)(nil)
	_ provider.Primary           = (*TaskHub)(nil)
	_ provider.Awaiter           = (*TaskHub)(nil)
	_ provider.UndecodableKeeper = (*TaskHub)(nil)
	_ provider.Tracker           = (*TaskHub)(nil)
	_ provider.Rewinder          = (*TaskHub)(nil)
	_ provider.Placer            = (*TaskHub)(nil)
	_ provider.UsageReporter     = (*TaskHub)(nil)
	_ provider.Purger            = (*TaskHub)(nil)
	_ provider.Portable          = (*TaskHub)(nil)
	_ provider.Follower          = (*TaskHub)(nil)
)

// Open returns the task hub that c and cfg describe. It makes no request: the
// hub comes to be, if it does not exist, when it is first used.
func Open(c Connection, cfg Config) (*TaskHub, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("task hub configuration: %w", err)
	}
	cfg = cfg.WithDefaults()
	meter, err := metering.NewHub(cfg.MeterProvider)
	if err != nil {
		return nil, fmt.Errorf("make the task hub's metrics: %w", err)
	}
	h := &TaskHub{}
	s, err := store.NewServices(c.account, c.tables(), cfg.Transport, meter, func(err error) { h.resources.noteMissing(err) })
	if err != nil {
		return nil, err
	}
	names := wire.NewHubNames(cfg.TaskHub)
	if c.tracking != nil {
		names = names.WithTrackingStore(cfg.TrackingStoreNamePrefix)
	}
	*h = TaskHub{
		cfg:             cfg,
		log:             cfg.Logger.With("taskHub", cfg.TaskHub),
		meter:           meter,
		names:           names,
		services:        s,
		partitionsTable: store.NewTable(s.Tables, s.TableEndpoint, names.PartitionsTable()),
		workItems:       store.NewQueue(s.Queues, names.WorkItemQueue()),
		largeMessages:   store.NewContainer(s.Blobs, s.BlobEndpoint, names.LargeMessages()),
		appLeases:       store.NewContainer(s.LeaseBlobs, s.BlobEndpoint, names.AppLease()),
	}
	h.health.log, h.routine.log = h.log, h.log
	h.resources = &resources{hub: h, creation: make(chan struct{}, 1), deleted: store.NewNudge()}
	h.held = newHeldMessages(h)
	h.sender = &sender{hub: h, armedFor: armedForDefault}
	h.undecodable = &undecodable{hub: h}
	h.instances = instances.New(instances.Config{
		TaskHub:      cfg.TaskHub,
		HistoryTable: store.NewTable(s.Tables, s.TableEndpoint, names.HistoryTable()),
		RowTable:     store.NewTable(s.Tables, s.TableEndpoint, names.InstancesTable()),
		Blobs:        h.largeMessages, CacheBytes: cfg.HistoryCacheBytes, Tolerance: cfg.LastUpdatedTolerance, BeginWithin: h.held.controlLock() / 2,
		Ended: h.endings.announce, Log: h.log,
	})
	h.inbox = newInbox(h)
	h.tracking = newTracker(h)
	h.starts = &starter{hub: h, records: &jumpstart.Records{
		Table: store.NewTable(s.Tables, s.TableEndpoint, names.JumpStartTable()), Blobs: h.largeMessages,
	}}
	h.overdue = &overdueStarts{hub: h, soon: store.NewNudge()}
	h.activities = newActivityQueue(h)
	for i := range cfg.PartitionCount {
		q := store.NewQueue(s.Queues, names.ControlQueue(i))
		h.controlQueues = append(h.controlQueues, q)
		h.partitions = append(h.partitions, newPartition(h, q))
	}
	h.leases = h.resources.newLeases(s)
	h.appLease = leases.NewAppManager(h.leases)
	return h, nil
}

// errRunning says that Run was called twice.
var errRunning = errors.New("task hub: Run was called before; it may be called once")

// Run implements [provider.Worker]. It may be called once in the life of h.
func (h *TaskHub) Run(ctx context.Context) error {
	if !h.running.CompareAndSwap(false, true) {
		return errRunning
	}
	inuse.Tell(ctx, h.inUse)
	err := h.run(ctx)
	if err != nil {
		return err
	}
	h.log.Info("task hub stopped", "workerId", h.cfg.WorkerID)
	return nil
}

func (h *TaskHub) run(ctx context.Context) error {
	if err := h.resources.awaitCreated(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	if err := h.resources.awaitSoleManager(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	h.resources.warnOfLogs(ctx)
	h.log.Info("task hub ready", "workerId", h.cfg.WorkerID, "partitions", len(h.partitions))
	defer h.observeQueues()()

	// Work goes on when ctx has ended, until everything handed out is settled or
	// the drain time is over.
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(errStopped)

	h.tasks.Go(func() { h.held.renew(work) })
	h.tasks.Go(func() { h.activities.fetch(ctx, work) })
	h.tasks.Go(func() { h.overdue.run(ctx) })
	h.tasks.Go(func() { h.resources.recreate(ctx) })
	managerDone := make(chan struct{})
	h.tasks.Go(func() {
		defer close(managerDone)
		if h.cfg.AppLease.Disabled {
			leases.NewManager(h.leases).Run(ctx, work)
		} else {
			h.appLease.Run(ctx, work)
		}
	})

	<-ctx.Done()
	h.inbox.close()
	deadline := time.NewTimer(h.cfg.DrainTimeout + releaseTime)
	defer deadline.Stop()
	drained := h.drained(work, managerDone)
	select {
	case <-drained:
	case <-deadline.C:
		h.log.Warn("task hub stops with work in progress; it will be delivered again", "drainTimeout", h.cfg.DrainTimeout)
		h.cutShort.Store(true)
	}
	stop(errStopped)
	h.tasks.Wait()
	h.routine.report()
	return nil
}

// releaseTime is for giving up partitions once the drain time is over.
const releaseTime = time.Second

// errStopped is why the storage operations of a worker end.
var errStopped = errors.New("task hub stopped")

// drained returns a channel that is closed when all partitions are given up
// and all activities settled.
func (h *TaskHub) drained(work context.Context, managerDone <-chan struct{}) <-chan struct{} {
	done := make(chan struct{})
	h.tasks.Go(func() {
		defer close(done)
		select {
		case <-managerDone:
		case <-work.Done():
			return
		}
		h.held.awaitNone(work)
	})
	return done
}

// partitionOf returns the partition that an instance's messages go to.
func (h *TaskHub) partitionOf(instanceID string) *partition {
	return h.partitions[wire.PartitionOf(instanceID, len(h.partitions))]
}

// StartInstance implements [provider.Client].
//
// The message goes out before the row, so that a row whose client has died, or was
// cut off, never waits for a message that was not sent
// (DurableTask.AzureStorage/AzureStorageOrchestrationService.cs,
// CreateTaskOrchestrationAsync). The row decides: a worker that receives a message
// without its row holds it back for a while, and then discards it. So a start that was
// begun either runs or leaves nothing behind, whatever becomes of the caller, and an
// instance that a caller was told of stays. A start that this process takes itself is in
// no queue; if the process dies before the history has it, the worker that owns the partition
// sends it within 90 seconds.
//
// Of two callers who start the same ID at the same time, the one who writes the
// row wins; the other gets the error, which .NET does not tell it.
func (h *TaskHub) StartInstance(ctx context.Context, start provider.TaskMessage, refuse []history.RuntimeStatus) error {
	given, ok := start.Event.(*history.ExecutionStarted)
	if !ok {
		return fmt.Errorf("the event is %s; want ExecutionStarted", start.Event.Type())
	}
	id := given.Instance.InstanceID
	if id == "" {
		return errors.New("the instance has no ID")
	}
	if err := wire.CheckID(id); err != nil {
		return err
	}
	return h.starts.start(ctx, start, *given, refuse)
}

// Send implements [provider.Client]. If it is not known whether the message
// arrived, the error says so; the message is then not sent again, since an event
// that is raised twice is two events.
func (h *TaskHub) Send(ctx context.Context, msg provider.TaskMessage) error {
	what := fmt.Sprintf("send %s to %q", msg.Event.Type(), msg.Target.InstanceID)
	if msg.Target.InstanceID == "" {
		return fmt.Errorf("%s: no instance is named", what)
	}
	if err := wire.CheckID(msg.Target.InstanceID); err != nil {
		return fmt.Errorf("send %s: %w", msg.Event.Type(), err)
	}
	if err := h.resources.ensureCreated(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	p := h.partitionOf(msg.Target.InstanceID)
	out := []*outgoing{{queue: p.queue, partition: p, env: &wire.Envelope{Message: &msg, Sender: &history.OrchestrationInstance{}}}}
	h.sender.reserve(out)
	taken, err := h.sendDirectly(ctx, out[0])
	if !taken {
		var sent sentMessage
		if sent, err = h.sender.post(ctx, out[0]); err == nil {
			h.sender.handOver(ctx, []sentMessage{sent})
		} else {
			err = notSent(err)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// History implements [provider.Client].
func (h *TaskHub) History(ctx context.Context, id string) ([]history.Event, error) {
	if wire.CheckID(id) != nil {
		return nil, nil
	}
	if err := h.resources.ensureCreated(ctx); err != nil {
		return nil, err
	}
	stored, err := h.instances.Histories.View(ctx, id)
	return stored.Events, err
}

// Instance implements [provider.Client].
func (h *TaskHub) Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	if err := wire.CheckID(id); err != nil {
		return nil, err
	}
	if err := h.resources.ensureCreated(ctx); err != nil {
		return nil, err
	}
	begun := h.begun.of(id)
	state, err := h.instances.Rows.State(ctx, id, fetch)
	if state != nil {
		begun.tell(state)
	}
	return state, err
}

// Instances implements [provider.Client]. See [instances.Rows.Page] for the order and the size of pages.
func (h *TaskHub) Instances(ctx context.Context, q provider.Query) (page *provider.Page, err error) {
	begun, asked := h.begun.each(), q.Statuses
	if len(begun) > 0 && slices.Contains(asked, history.Running) && !slices.Contains(asked, history.Pending) {
		q.Statuses = append(slices.Clone(asked), history.Pending) // as the rows of those say
	}
	if err = h.resources.ensureCreated(ctx); err == nil {
		page, err = h.instances.Rows.Page(ctx, q)
	}
	if err != nil {
		return nil, fmt.Errorf("query instances: %w", err)
	}
	page.Instances = slices.DeleteFunc(page.Instances, func(state *provider.InstanceState) bool {
		begun.tell(state)
		return len(asked) > 0 && !slices.Contains(asked, state.Status)
	})
	return page, nil
}

// AwaitEnd implements [provider.Awaiter]. It notices the ends that this process
// writes; those of other workers it does not.
func (h *TaskHub) AwaitEnd(ctx context.Context, id string) error {
	_, err := h.endings.await(ctx, id, func() bool { return true })
	return err
}

// Follow implements [provider.Follower].
func (h *TaskHub) Follow(ctx context.Context, id string) *provider.InstanceState {
	state, _ := h.endings.await(ctx, id, func() bool { return h.Runs(id) }) // the error is ctx's
	return state
}

// Runs implements [provider.Follower]: this process wrote the row last, and the
// partition is its own.
func (h *TaskHub) Runs(id string) bool {
	return h.instances.CachedRows.Get(id) != nil && h.partitionOf(id).isListening()
}

// noInstance is asked for to see whether the tables answer. No instance can have it.
const noInstance = "@@check"

// Check implements [provider.Checker]. It makes a request to a table and one to a queue
// of the hub, for which both must exist.
func (h *TaskHub) Check(ctx context.Context) error {
	if err := h.resources.ensureCreated(ctx); err != nil {
		return err
	}
	ctx = store.Urgent(ctx)
	if _, err := h.instances.Rows.Read(ctx, noInstance); err != nil {
		return err
	}
	if _, err := h.workItems.Client.GetProperties(ctx, nil); err != nil {
		return fmt.Errorf("look at queue %s: %w", h.workItems.Name, err)
	}
	return h.undecodable.lookAside(ctx)
}

// IsBusy implements [provider.Checker].
func (h *TaskHub) IsBusy() bool {
	return h.services.QueuePace.IsBusy() || h.services.TablePace.IsBusy() || h.services.BlobPace.IsBusy()
}

// inUse counts the resources that are in use, which is none once a worker has nothing
// to do, or has stopped in time.
func (h *TaskHub) inUse() inuse.Counts {
	all := inuse.Counts{}
	if h.cutShort.Load() {
		return all
	}
	h.inbox.count(all)
	h.activities.count(all)
	h.held.count(all)
	h.endings.count(all)
	for _, p := range h.partitions {
		p.count(all)
	}
	for service, p := range map[string]*store.Pace{"queues": h.services.QueuePace, "tables": h.services.TablePace, "blobs": h.services.BlobPace} {
		p.Count(all, service)
	}
	for what, s := range map[string]interface {
		TryAcquire(int64) bool
		Release(int64)
	}{"bytes that are downloaded": store.Downloading, "bytes that are unpacked": store.Unpacking} {
		if s.TryAcquire(2 * wire.MaxDecompressed) {
			s.Release(2 * wire.MaxDecompressed)
		} else {
			all[what]++
		}
	}
	return all
}

// NextActivity implements [provider.Worker].
func (h *TaskHub) NextActivity(ctx context.Context) (*provider.ActivityWorkItem, error) {
	d, err := h.activities.next(ctx)
	if err != nil {
		return nil, err
	}
	task, _ := d.event().(*history.TaskScheduled) // take lets nothing else pass
	return &provider.ActivityWorkItem{
		Instance: d.target(), Task: task, Attempt: d.dequeueCount, Lock: &activityLock{hub: h, d: d},
	}, nil
}

// NextOrchestration implements [provider.Worker].
func (h *TaskHub) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	s, err := h.inbox.next(ctx)
	if err != nil {
		return nil, err
	}
	return s.workItem(), nil
}

// Purge implements [provider.Purger]. What was seen is compared with the instance row,
// which is read after the history: what began in between is not purged in the place of
// what was before. The row goes last: a caller that was cut off finds it, and completes
// the purge by another one. So that it can be read, it names no blobs any more when they go. Rows
// are deleted as they were read, the sentinel first, and no blobs that were not there
// before that: if somebody starts the ID anew meanwhile, that one stays, and the error
// says so
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// DeleteAllDataForOrchestrationInstance).
//
// Messages that are still on their way to the instance are discarded when they
// arrive, but those to an entity, which begins anew with them.
func (h *TaskHub) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	if err := wire.CheckID(id); err != nil {
		return err
	}
	if err := h.resources.ensureCreated(ctx); err != nil {
		return err
	}
	h.writePutOff(ctx, id) // else the row may change meanwhile
	return h.instances.Purge(ctx, id, seen, h.starts.dropRecords)
}

// errNoAppLease says that a hub has no app lease to get.
var errNoAppLease = errors.New("the app lease is turned off (useAppLease)")

// MakePrimary has this app become the one whose workers work on the hub. The
// workers of the app that was so before find out when they renew the lease
// (DurableTask.AzureStorage/Partitioning/AppLeaseManager.cs,
// ForceChangeAppLeaseAsync).
func (h *TaskHub) MakePrimary(ctx context.Context) error {
	if h.cfg.AppLease.Disabled {
		return errNoAppLease
	}
	if err := h.resources.ensureCreated(ctx); err != nil {
		return fmt.Errorf("make this app the hub's primary one: %w", err)
	}
	return h.appLease.MakePrimary(ctx)
}
