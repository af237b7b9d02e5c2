package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inbound"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/leases"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/monitor"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/outbound"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A TaskHub is a task hub in an Azure Storage account. Create it with [Open]. One TaskHub serves
// any number of clients and at most one worker. Its methods are safe for concurrent use.
type TaskHub struct {
	*storage
	*monitor.Monitor
	resources *resources
	leases    *leases.Worker
	appLease  *leases.AppManager

	instances   *instances.Store
	held        *inflight.Messages
	undecodable *inbound.Undecodable
	decoder     *inbound.Decoder
	sender      *outbound.Sender
	inbox       *inbound.Inbox
	partitions  inbound.Partitions
	activities  *inbound.ActivityQueue
	starts      *starter
	overdue     *overdueStarts
	late        *lateRows
	committer   *committer
	tracking    *tracker
	endings     endings

	steps         atomic.Pointer[func() provider.QueueLoad] // see [TaskHub.ObserveSteps]; nil without a worker
	running       atomic.Bool                               // Run was called
	drainTimedOut atomic.Bool                               // Run returned with work in flight
	tasks         sync.WaitGroup                            // the goroutines that Run waits for
}

// ErrMaybeSent is the error of a request whose message may have been sent.
var ErrMaybeSent = outbound.ErrMaybeSent

var (
	_ provider.Provider            = (*TaskHub)(nil)
	_ provider.LoadReporter        = (*TaskHub)(nil)
	_ provider.StepObserver        = (*TaskHub)(nil)
	_ provider.Checker             = (*TaskHub)(nil)
	_ provider.Primary             = (*TaskHub)(nil)
	_ provider.Awaiter             = (*TaskHub)(nil)
	_ provider.UndecodableReporter = (*TaskHub)(nil)
	_ provider.Tracker             = (*TaskHub)(nil)
	_ provider.Rewinder            = (*TaskHub)(nil)
	_ provider.QueuePositioner     = (*TaskHub)(nil)
	_ provider.UsageReporter       = (*TaskHub)(nil)
	_ provider.Purger              = (*TaskHub)(nil)
	_ provider.Portable            = (*TaskHub)(nil)
	_ provider.Follower            = (*TaskHub)(nil)
)

// Open returns the task hub that c and cfg describe. It makes no request: the first use of the hub
// creates it if it does not exist. Open fails if c or cfg is not valid.
func Open(c Connection, cfg Config) (*TaskHub, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("task hub configuration: %w", err)
	}
	cfg = cfg.WithDefaults()
	meter, err := metering.NewHub(cfg.MeterProvider)
	if err != nil {
		return nil, fmt.Errorf("create the task hub's metrics: %w", err)
	}
	h := &TaskHub{}
	s, err := store.NewServices(c.account, c.tables(), cfg.Transport, meter, func(err error) { h.resources.markMissing(err) })
	if err != nil {
		return nil, err
	}
	names := wire.NewHubNames(cfg.TaskHub)
	if c.tracking != nil {
		names = names.WithTrackingStore(cfg.TrackingStoreNamePrefix)
	}
	h.Monitor = monitor.New(cfg.Logger.With("taskHub", cfg.TaskHub), meter, clocks.Of(cfg.Transport))
	h.storage = newStorage(cfg, names, s)
	h.connect()
	return h, nil
}

// errRunning is the error of a second call of Run.
var errRunning = errors.New("task hub: Run was called twice")

// Run implements [provider.Worker]. Call it at most once per TaskHub. It fails with a
// *[PartitionCountError] if the hub has another number of partitions. It fails with a
// *[PartitionManagerError] if workers with another partition manager are active for two lease intervals.
func (h *TaskHub) Run(ctx context.Context) error {
	if !h.running.CompareAndSwap(false, true) {
		return errRunning
	}
	inuse.Register(ctx, h.inUse)
	err := h.run(ctx)
	if err != nil {
		return err
	}
	h.Log.Info("task hub stopped", "workerId", h.cfg.WorkerID)
	return nil
}

func (h *TaskHub) run(ctx context.Context) error {
	if err := h.resources.awaitCreated(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	if err := h.resources.awaitSoleManager(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	h.resources.warnAboutLogHub(ctx)
	h.Log.Info("task hub ready", "workerId", h.cfg.WorkerID, "partitions", len(h.partitions))
	defer h.observeHub()()

	// Work continues after the end of ctx until all dispatched items are settled or the drain
	// timeout is over.
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(errStopped)

	h.tasks.Go(func() { h.held.Renew(work, h.inbox.StopRenewals) })
	h.tasks.Go(func() { h.activities.Fetch(ctx, work) })
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
	h.inbox.Close()
	deadline := time.NewTimer(h.cfg.DrainTimeout + releaseTime)
	defer deadline.Stop()
	drained := h.drained(work, managerDone)
	select {
	case <-drained:
	case <-deadline.C:
		h.Log.Warn("task hub stopped with work in progress; its messages will be redelivered", "drainTimeout", h.cfg.DrainTimeout)
		h.drainTimedOut.Store(true)
	}
	stop(errStopped)
	h.tasks.Wait()
	h.Routine.Report()
	return nil
}

// releaseTime is the additional time for releasing partitions after the drain timeout.
const releaseTime = time.Second

// errStopped is the reason for which the storage operations of a stopped worker are canceled.
var errStopped = errors.New("task hub stopped")

// drained returns a channel that is closed when all partitions are released and all activities are
// settled.
func (h *TaskHub) drained(work context.Context, managerDone <-chan struct{}) <-chan struct{} {
	done := make(chan struct{})
	h.tasks.Go(func() {
		defer close(done)
		select {
		case <-managerDone:
		case <-work.Done():
			return
		}
		h.held.AwaitEmpty(work)
	})
	return done
}

// partitionOf returns the partition of an instance.
func (h *TaskHub) partitionOf(instanceID string) *inbound.Partition {
	return h.partitions.Of(instanceID)
}

// StartInstance implements [provider.Client].
//
// It sends the start message before it inserts the row. A row whose client died therefore never
// waits for a message that was not sent
// (DurableTask.AzureStorage/AzureStorageOrchestrationService.cs, CreateTaskOrchestrationAsync). The
// row decides: a worker that receives a start message without a row holds it back and finally
// discards it. An interrupted start thus either runs or leaves nothing behind. An instance whose
// start was reported as successful is never lost.
//
// If this process owns the partition, the start may be delivered in memory, without a message. If
// the process then dies before the history is written, the worker that owns the partition sends the
// start within 90 seconds.
//
// If two callers start the same ID at the same time, the one that inserts the row first succeeds.
// The other gets a *provider.InstanceExistsError; .NET reports no error.
func (h *TaskHub) StartInstance(ctx context.Context, start provider.TaskMessage, refuse []history.RuntimeStatus) error {
	given, ok := start.Event.(*history.ExecutionStarted)
	if !ok {
		return fmt.Errorf("the event is %s; want ExecutionStarted", start.Event.Type())
	}
	id := given.Instance.InstanceID
	if id == "" {
		return errors.New("the instance ID is empty")
	}
	if err := wire.CheckID(id); err != nil {
		return err
	}
	if err := h.resources.ensureCreated(ctx); err != nil {
		return err
	}
	return h.starts.start(ctx, start, *given, refuse)
}

// Send implements [provider.Client]. If the message may have been stored in spite of an error, the
// error says so. Send does not retry in that case, because an event that is enqueued twice is
// delivered twice.
func (h *TaskHub) Send(ctx context.Context, msg provider.TaskMessage) error {
	what := fmt.Sprintf("send %s to %q", msg.Event.Type(), msg.Target.InstanceID)
	if msg.Target.InstanceID == "" {
		return fmt.Errorf("%s: the instance ID is empty", what)
	}
	if err := wire.CheckID(msg.Target.InstanceID); err != nil {
		return fmt.Errorf("send %s: %w", msg.Event.Type(), err)
	}
	if err := h.resources.ensureCreated(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	err := h.sender.Deliver(ctx, h.partitionOf(msg.Target.InstanceID), &msg)
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
	started := h.late.started.of(id)
	state, err := h.instances.Rows.State(ctx, id, fetch)
	if state != nil {
		started.correct(state)
	}
	return state, err
}

// Instances implements [provider.Client]. A page has at most 1,000 instances, also by default. Pages are
// in the order of the table's keys, which are the escaped instance IDs.
func (h *TaskHub) Instances(ctx context.Context, q provider.Query) (page *provider.Page, err error) {
	started, asked := h.late.started.executions(), q.Statuses
	if len(started) > 0 && slices.Contains(asked, history.Running) && !slices.Contains(asked, history.Pending) {
		q.Statuses = append(slices.Clone(asked), history.Pending) // the rows of started instances may still say Pending
	}
	if err = h.resources.ensureCreated(ctx); err == nil {
		page, err = h.instances.Rows.Page(ctx, q)
	}
	if err != nil {
		return nil, fmt.Errorf("query instances: %w", err)
	}
	page.Instances = slices.DeleteFunc(page.Instances, func(state *provider.InstanceState) bool {
		started.correct(state)
		return len(asked) > 0 && !slices.Contains(asked, state.Status)
	})
	return page, nil
}

// AwaitEnd implements [provider.Awaiter]. It notices only the ends that this process writes.
func (h *TaskHub) AwaitEnd(ctx context.Context, id string) error {
	_, err := h.endings.await(ctx, id, func() bool { return true })
	return err
}

// Follow implements [provider.Follower].
func (h *TaskHub) Follow(ctx context.Context, id string) *provider.InstanceState {
	state, _ := h.endings.await(ctx, id, func() bool { return h.Runs(id) }) // it only returns the error of ctx
	return state
}

// Runs implements [provider.Follower]. It reports whether this process wrote the instance's row
// last and owns its partition.
func (h *TaskHub) Runs(id string) bool {
	return h.instances.CachedRows.Get(id) != nil && h.partitionOf(id).IsListening()
}

// checkID is the instance ID that Check reads. No instance can have it.
const checkID = "@@check"

// Check implements [provider.Checker]. It makes one request to a table and one to a queue; both
// fail if the hub does not exist.
func (h *TaskHub) Check(ctx context.Context) error {
	if err := h.resources.ensureCreated(ctx); err != nil {
		return err
	}
	ctx = store.Urgent(ctx)
	if _, err := h.instances.Rows.Read(ctx, checkID); err != nil {
		return err
	}
	if _, err := h.workItems.Client.GetProperties(ctx, nil); err != nil {
		return fmt.Errorf("read properties of queue %s: %w", h.workItems.Name, err)
	}
	return h.undecodable.RefreshSetAside(ctx)
}

// IsBusy implements [provider.Checker].
func (h *TaskHub) IsBusy() bool {
	return h.services.QueuePace.IsBusy() || h.services.TablePace.IsBusy() || h.services.BlobPace.IsBusy()
}

// inUse counts the resources in use. All counts are zero once the worker is idle or has stopped in
// time.
func (h *TaskHub) inUse() inuse.Counts {
	all := inuse.Counts{}
	if h.drainTimedOut.Load() {
		return all
	}
	h.inbox.Count(all)
	h.activities.Count(all)
	h.held.Count(all)
	h.endings.count(all)
	for _, p := range h.partitions {
		p.Count(all)
	}
	for service, p := range map[string]*store.Pace{"queues": h.services.QueuePace, "tables": h.services.TablePace, "blobs": h.services.BlobPace} {
		p.Count(all, service)
	}
	for what, s := range map[string]interface {
		TryAcquire(int64) bool
		Release(int64)
	}{"bytes being downloaded": store.DownloadLimit, "bytes being unpacked": store.DecompressionLimit} {
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
	d, err := h.activities.Next(ctx)
	if err != nil {
		return nil, err
	}
	task, _ := d.Event().(*history.TaskScheduled) // activityQueue.add admits no other event
	return &provider.ActivityWorkItem{
		Instance: d.Target(), Task: task, Attempt: d.DequeueCount, Lock: &activityLock{d: d, partitions: h.partitions, sender: h.sender},
	}, nil
}

// NextOrchestration implements [provider.Worker].
func (h *TaskHub) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	l, err := h.inbox.Next(ctx)
	if err != nil {
		return nil, err
	}
	return newSession(h.committer, l).workItem(), nil
}

// Purge implements [provider.Purger]. It reads the history and then the instance row. It returns
// provider.ErrInstanceChanged if the row differs from seen, so that it never purges a new execution
// in place of the previous one.
//
// Purge deletes the history rows, the sentinel first, then the blobs, and finally the row. The row
// loses its references to the blobs before they are deleted, so it stays readable. If the caller is
// interrupted, the row still exists, and another Purge completes the work. Each row is deleted on
// the condition that it is unchanged. If the ID is started again meanwhile, that instance stays and
// Purge returns an error (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// DeleteAllDataForOrchestrationInstance).
//
// A worker later discards messages that are still queued for a purged orchestration. Messages to an
// entity start it again.
func (h *TaskHub) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	if err := wire.CheckID(id); err != nil {
		return err
	}
	if err := h.resources.ensureCreated(ctx); err != nil {
		return err
	}
	h.late.flush(ctx, id) // a delayed row could change the row during the purge
	return h.instances.Purge(ctx, id, seen, h.starts.deleteRecords)
}

// errNoAppLease is the error of MakePrimary if the app lease is disabled.
var errNoAppLease = errors.New("the app lease is turned off (useAppLease)")

// MakePrimary makes this app the primary app of the hub, whose workers run its partitions. The
// workers of the previous primary app notice at their next lease renewal
// (DurableTask.AzureStorage/Partitioning/AppLeaseManager.cs, ForceChangeAppLeaseAsync).
func (h *TaskHub) MakePrimary(ctx context.Context) error {
	if h.cfg.AppLease.Disabled {
		return errNoAppLease
	}
	if err := h.resources.ensureCreated(ctx); err != nil {
		return fmt.Errorf("make this app the primary app of the task hub: %w", err)
	}
	return h.appLease.MakePrimary(ctx)
}

// Delete deletes the hub with its queues, tables and containers. Unless force is set, it fails with
// [provider.ErrHubBusy] if a worker owns a partition. It breaks the app lease. If a resource cannot
// be deleted, Delete still deletes the others and returns all errors. The service may reject the
// same names for about a minute afterwards.
func (h *TaskHub) Delete(ctx context.Context, force bool) error {
	if !force {
		if err := h.resources.checkIdle(ctx); err != nil {
			return err
		}
	}
	return h.resources.delete(ctx)
}

// Tracking implements [provider.Tracker]. It also returns existing records if tracking is disabled
// now.
func (h *TaskHub) Tracking(ctx context.Context, id string, q provider.TrackingQuery) (*provider.TrackingPage, error) {
	page, err := h.tracking.queue.Records(ctx, id, q)
	if store.IsNotFound(err) {
		return nil, fmt.Errorf("task hub %s keeps no tracking records of its orchestrations: %w", h.cfg.TaskHub, provider.ErrNotSupported)
	}
	return page, err
}

// Undecodable implements [provider.UndecodableReporter].
func (h *TaskHub) Undecodable() []provider.UndecodableMessage { return h.undecodable.All() }

// RetryUndecodable implements [provider.UndecodableReporter].
func (h *TaskHub) RetryUndecodable(ctx context.Context) (n int, err error) {
	if err := h.resources.ensureCreated(ctx); err != nil {
		return 0, err
	}
	n, err = h.undecodable.Retry(ctx, h.held.ControlTimeout)
	if err != nil {
		return n, err
	}
	if n > 0 {
		h.activities.Wake.Send()
		for _, p := range h.partitions {
			p.Wake.Send()
		}
	}
	return n, nil
}
