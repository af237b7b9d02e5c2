package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/jumpstart"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/leases"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
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

	// creation is held by whoever creates the hub.
	creation chan struct{}
	created  atomic.Bool
	deleted  store.Nudge // the hub was there, and is not any more

	// armedFor is how long an armed message is hidden.
	armedFor time.Duration

	health    health
	sequence  atomic.Int64 // of messages sent, over all queues
	starts    *starter
	instances *instances.Store
	held      *heldMessages
	// undecodable are messages that nobody here can decode.
	undecodable undecodable
	endings     endings
	partitions  []*partition
	inbox       *inbox
	tracking    *tracker
	activities  *activityQueue

	running  atomic.Bool    // Run was called
	cutShort atomic.Bool    // Run ended although there was work in progress
	tasks    sync.WaitGroup // the goroutines that Run waits for
}

var (
	_ provider.Provider     = (*TaskHub)(nil)
	_ provider.LoadReporter = (*TaskHub)(nil)
	_ provider.Checker      = (*TaskHub)(nil)
	_ provider.Primary      = (*TaskHub)(nil)
	_ provider.Awaiter      = (*TaskHub)(nil)
	_ provider.Follower     = (*TaskHub)(nil)
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
	s, err := store.NewServices(c.account, c.tables(), cfg.Transport, meter, h.noteMissing)
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
		creation:        make(chan struct{}, 1),
		deleted:         store.NewNudge(),
		armedFor:        armedForDefault,
	}
	h.health.log = h.log
	h.held = newHeldMessages()
	h.instances = instances.New(instances.Config{
		TaskHub:   cfg.TaskHub,
		Histories: store.NewTable(s.Tables, s.TableEndpoint, names.HistoryTable()),
		Rows:      store.NewTable(s.Tables, s.TableEndpoint, names.InstancesTable()),
		Blobs:     h.largeMessages, CacheBytes: cfg.HistoryCacheBytes, Tolerance: cfg.LastUpdatedTolerance, BeginWithin: h.controlLock() / 2,
		Ended: func(id string) { h.endings.tell(id, nil) }, Log: h.log,
	})
	h.inbox = newInbox(h)
	h.tracking = newTracker(h)
	h.starts = &starter{hub: h, records: &jumpstart.Records{
		Table: store.NewTable(s.Tables, s.TableEndpoint, names.JumpStartTable()), Blobs: h.largeMessages,
	}}
	h.activities = newActivityQueue(h)
	for i := range cfg.PartitionCount {
		q := store.NewQueue(s.Queues, names.ControlQueue(i))
		h.controlQueues = append(h.controlQueues, q)
		h.partitions = append(h.partitions, newPartition(h, q))
	}
	h.leases = h.newLeases(s)
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
	if err := h.awaitCreated(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	if err := h.awaitSoleManager(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	h.log.Info("task hub ready", "workerId", h.cfg.WorkerID, "partitions", len(h.partitions))
	defer h.observeQueues()()

	// Work goes on when ctx has ended, until everything handed out is settled or
	// the drain time is over.
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(errStopped)

	h.tasks.Go(func() { h.renewMessages(work) })
	h.tasks.Go(func() { h.activities.fetch(ctx, work) })
	h.tasks.Go(func() { (&overdueStarts{hub: h, sent: map[string]bool{}}).run(ctx) })
	h.tasks.Go(func() { h.recreate(ctx) })
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

// awaitCreated makes the hub exist, however long the storage account is down.
// It returns an error only if the hub can never be used, and nil if ctx ended.
func (h *TaskHub) awaitCreated(ctx context.Context) error {
	for delay := store.FirstOutageDelay; ; delay = min(2*delay, store.MaxOutageDelay) {
		err := h.ensureCreated(ctx)
		if _, mismatch := errors.AsType[*PartitionCountError](err); mismatch {
			return err
		}
		if err == nil {
			h.health.OK("storage account")
			return nil
		}
		if ctx.Err() == nil {
			h.health.Failed("storage account", err)
		}
		if !store.Sleep(ctx, store.Jitter(ctx, "create the hub", delay)) {
			return nil
		}
	}
}

// partitionOf returns the partition that an instance's messages go to.
func (h *TaskHub) partitionOf(instanceID string) *partition {
	return h.partitions[wire.PartitionOf(instanceID, len(h.partitions))]
}
