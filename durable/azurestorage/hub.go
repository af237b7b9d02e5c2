package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/leases"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/monitor"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/tracking"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"golang.org/x/sync/errgroup"
)

// A PartitionCountError means that the existing hub has another number of partitions than
// configured. Processes with different numbers would send messages of the same instance to
// different queues. Partition log hubs return it too.
type PartitionCountError struct {
	TaskHub    string
	Configured int
	Existing   int
}

// Error names both numbers.
func (e *PartitionCountError) Error() string {
	return fmt.Sprintf("task hub %s has %d partitions, but PartitionCount is %d: set PartitionCount to the hub's count, or choose another name for the hub",
		e.TaskHub, e.Existing, e.Configured)
}

// storage has the queues, tables and containers of a hub.
type storage struct {
	cfg      Config
	names    wire.HubNames
	services *store.Services

	partitionsTable *store.Table
	historyTable    *store.Table
	rowTable        *store.Table
	startTable      *store.Table // of JumpStart records
	workItems       *store.Queue
	controlQueues   []*store.Queue
	trackingQueue   *store.Queue
	trackingTable   *store.Table
	largeMessages   *store.Container
	appLeases       *store.Container
}

func newStorage(cfg Config, names wire.HubNames, s *store.Services) *storage {
	table := func(name string) *store.Table { return store.NewTable(s.Tables, s.TableEndpoint, name) }
	all := &storage{
		cfg: cfg, names: names, services: s,
		partitionsTable: table(names.PartitionsTable()),
		historyTable:    table(names.HistoryTable()),
		rowTable:        table(names.InstancesTable()),
		startTable:      table(names.JumpStartTable()),
		trackingTable:   table(names.InstanceHistoryTable()),
		workItems:       store.NewQueue(s.Queues, names.WorkItemQueue()),
		trackingQueue:   store.NewQueue(s.Queues, names.TrackingQueue()),
		largeMessages:   store.NewContainer(s.Blobs, s.BlobEndpoint, names.LargeMessageContainer()),
		appLeases:       store.NewContainer(s.LeaseBlobs, s.BlobEndpoint, names.AppLeaseContainer()),
	}
	for i := range cfg.PartitionCount {
		all.controlQueues = append(all.controlQueues, store.NewQueue(s.Queues, names.ControlQueue(i)))
	}
	return all
}

// messageQueues returns the queues of messages to instances and activities.
func (s *storage) messageQueues() []*store.Queue {
	return append(slices.Clone(s.controlQueues), s.workItems)
}

// aside returns the poison queue of a queue. The first message that is set aside creates it.
func (s *storage) aside(queue string) *store.Queue {
	return store.NewQueue(s.services.Queues, s.names.PoisonQueue(queue))
}

// resources creates, checks and deletes the queues, tables and blobs of the hub.
type resources struct {
	*storage
	*monitor.Monitor
	leases   *leases.Worker
	tracking *tracking.Queue
	forget   func() // forgets all instances

	creation chan struct{} // held while the hub is being created
	created  atomic.Bool
	deleted  store.Nudge // a resource of the existing hub was deleted
}

// ensureCreated creates the hub once per TaskHub. It creates it again after a failure, or after a
// request has shown that the hub was deleted. Concurrent callers wait for the one that creates it.
func (r *resources) ensureCreated(ctx context.Context) error {
	select {
	case r.creation <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("create task hub %s: %w", r.cfg.TaskHub, context.Cause(ctx))
	}
	defer func() { <-r.creation }()
	if r.created.Load() {
		return nil
	}
	if err := r.create(ctx); err != nil {
		return fmt.Errorf("create task hub %s: %w", r.cfg.TaskHub, err)
	}
	r.created.Store(true)
	return nil
}

// markMissing records that a queue or a table does not exist, so that the next use of the hub
// creates it again.
func (r *resources) markMissing(err error) {
	if !r.created.CompareAndSwap(true, false) {
		return // not created yet
	}
	r.Log.Warn("part of the task hub was deleted; creating it again", "event", "GeneralWarning", "error", err)
	r.forget()
	r.deleted.Send()
}

// recreate creates the hub again each time it was deleted. It returns when ctx ends.
func (r *resources) recreate(ctx context.Context) {
	for {
		select {
		case <-r.deleted:
		case <-ctx.Done():
			return
		}
		if err := r.awaitCreated(ctx); err != nil {
			r.Log.Error("the task hub that replaced the deleted one cannot be used", "error", err)
		}
	}
}

// create creates the resources of the hub in .NET's order. It keeps existing resources
// (DurableTask.AzureStorage/AzureStorageOrchestrationService.cs, EnsureTaskHubAsync and
// CreateAsync). The first large message creates the container for large messages.
func (r *resources) create(ctx context.Context) error {
	if err := r.appLeases.Create(ctx); err != nil {
		return err
	}
	if err := r.appLeases.CreateBlob(ctx, r.names.AppLeaseInfoBlob(), []byte("{}")); err != nil {
		return err
	}
	if r.cfg.PartitionManager == TablePartitions {
		if err := r.partitionsTable.Create(ctx); err != nil {
			return err
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if r.cfg.PartitionManager == TablePartitions {
			return r.createPartitionRows(groupCtx)
		}
		return r.createLeaseBlobs(groupCtx)
	})
	if r.cfg.JumpStart.Enabled {
		group.Go(func() error { return r.startTable.Create(groupCtx) })
	}
	if r.cfg.Tracking {
		group.Go(func() error { return r.tracking.Create(groupCtx) })
	}
	group.Go(func() error { return r.historyTable.Create(groupCtx) })
	group.Go(func() error { return r.rowTable.Create(groupCtx) })
	group.Go(func() error { return r.workItems.Create(groupCtx) })
	if err := group.Wait(); err != nil {
		return err
	}
	// The control queues come last: if the partition count is wrong, no surplus queue is created.
	return store.ForEach(ctx, len(r.controlQueues), r.controlQueues, func(ctx context.Context, _ int, q *store.Queue) error { return q.Create(ctx) })
}

// createLeaseBlobs creates the blobs of a blob partition manager and checks the number of
// partitions.
func (r *resources) createLeaseBlobs(ctx context.Context) error {
	n, err := r.leases.CreateInfo(ctx, r.cfg.TaskHub)
	if err != nil {
		return err
	}
	if n != len(r.controlQueues) {
		return &PartitionCountError{TaskHub: r.cfg.TaskHub, Configured: len(r.controlQueues), Existing: n}
	}
	return r.leases.CreateBlobs(ctx)
}

// partialRowsTimeout limits how long rows may be missing in the partitions table. .NET inserts them
// one by one.
const partialRowsTimeout = 2 * time.Second

// createPartitionRows inserts the rows of all partitions in one transaction if the table is empty.
// Otherwise it checks their number.
func (r *resources) createPartitionRows(ctx context.Context) error {
	want := make([]store.Operation, len(r.controlQueues))
	for i, q := range r.controlQueues {
		want[i] = store.Operation{Method: http.MethodPost, Entity: wire.PartitionRow{Queue: q.Name}.Row()}
	}
	for deadline := time.Now().Add(partialRowsTimeout); ; {
		rows, err := leases.ReadRows(ctx, r.partitionsTable)
		switch {
		case err != nil:
			return err
		case len(rows) == len(want):
			return nil
		case len(rows) == 0:
			err := store.Retry(ctx, "insert partition rows", func(ctx context.Context) error {
				_, err := r.partitionsTable.Transact(ctx, want)
				return err
			})
			if err != nil && !store.IsConflict(err) {
				return err
			}
		case len(rows) > len(want) || time.Now().After(deadline):
			return &PartitionCountError{TaskHub: r.cfg.TaskHub, Configured: len(want), Existing: len(rows)}
		default:
			if !pause.For(ctx, store.Jitter(ctx, "partition rows", 200*time.Millisecond)) {
				return context.Cause(ctx)
			}
		}
	}
}

// warnAboutLogHub logs a warning if the account has a partition log hub of the same name. After an
// accidental change of the storage type, an app would see an empty hub without an explanation.
func (r *resources) warnAboutLogHub(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, logCheckTimeout)
	defer cancel()
	logs := store.NewContainer(r.services.LeaseBlobs, r.services.BlobEndpoint, r.names.PartitionLogContainer())
	if _, err := logs.ReadPart(ctx, r.names.PartitionLogInfoBlob(), 0, 0); err == nil { // otherwise the hub does not exist, or the check failed
		r.Log.Warn("the storage account also has a task hub of this name in partition logs; this app does not see its instances. "+
			"Set storageProvider.type to partitionLog to use that hub, copy it with `hub copy partitionlog azurestorage`, or delete it",
			"event", "GeneralWarning", "container", logs.Name)
	}
}

// logCheckTimeout limits how long warnAboutLogHub delays the start of a worker.
const logCheckTimeout = 5 * time.Second

// checkExists returns an error if the hub does not exist. It does not create it.
func (r *resources) checkExists(ctx context.Context) error {
	n, err := r.countPartitions(ctx)
	switch {
	case store.IsNotFound(err):
		return fmt.Errorf("task hub %s does not exist in the storage account", r.cfg.TaskHub)
	case err != nil:
		return fmt.Errorf("check task hub %s: %w", r.cfg.TaskHub, err)
	case n != len(r.controlQueues):
		return &PartitionCountError{TaskHub: r.cfg.TaskHub, Configured: len(r.controlQueues), Existing: n}
	}
	return nil
}

// countPartitions returns the number of partitions that the hub's partition manager has stored.
func (r *resources) countPartitions(ctx context.Context) (int, error) {
	if r.cfg.PartitionManager != TablePartitions {
		return r.leases.CountPartitions(ctx)
	}
	rows, err := leases.ReadRows(ctx, r.partitionsTable)
	return len(rows), err
}

// checkIdle returns [provider.ErrHubBusy] if a worker owns a partition of the hub under any
// partition manager.
func (r *resources) checkIdle(ctx context.Context) error {
	rows, err := r.leases.OwnedRows(ctx)
	if err != nil && !store.IsNotFound(err) {
		return err
	}
	if len(rows) > 0 {
		row := rows[0]
		return fmt.Errorf("%s: worker %s owns partition %s until %s: %w", r.cfg.TaskHub, row.CurrentOwner, row.Queue,
			row.ExpiresAt.UTC().Format(time.TimeOnly), provider.ErrHubBusy)
	}
	blobs := store.NewContainer(r.services.Blobs, r.services.BlobEndpoint, r.names.LeaseContainer())
	options := &container.ListBlobsFlatOptions{}
	for {
		var page container.ListBlobsFlatResponse
		err := store.Retry(ctx, "list blobs of "+blobs.Name, func(ctx context.Context) (err error) {
			page, err = blobs.Client.NewListBlobsFlatPager(options).NextPage(ctx)
			return err
		})
		if store.IsNotFound(err) {
			return nil // only the blob partition managers create the container
		}
		if err != nil {
			return err
		}
		for _, item := range page.Segment.BlobItems {
			if item.Properties != nil && store.Value(item.Properties.LeaseStatus) == lease.StatusTypeLocked {
				return fmt.Errorf("%s: a worker holds the lease %s: %w", r.cfg.TaskHub, store.Value(item.Name), provider.ErrHubBusy)
			}
		}
		if store.Value(page.NextMarker) == "" {
			return nil
		}
		options.Marker = page.NextMarker
	}
}

// checkManagers returns a *PartitionManagerError if there are active leases of another partition
// manager.
func (r *resources) checkManagers(ctx context.Context) error {
	active, err := r.leases.ActiveKinds(ctx)
	if err != nil {
		return err
	}
	for kind := range partitionManagerNames {
		if other := PartitionManager(kind); active[leases.Kind(kind)] && other != r.cfg.PartitionManager {
			return &PartitionManagerError{TaskHub: r.cfg.TaskHub, Configured: r.cfg.PartitionManager, Active: other}
		}
	}
	return nil
}

// awaitSoleManager waits until no worker is active with another partition manager. After twice the
// lease interval, when leases of stopped workers have expired, it returns the
// *PartitionManagerError. Only leases count: tools create the storage of a partition manager
// without using it.
func (r *resources) awaitSoleManager(ctx context.Context) error {
	for deadline := time.Now().Add(2 * r.cfg.LeaseInterval); ; {
		err := r.checkManagers(ctx)
		mismatch, isMismatch := errors.AsType[*PartitionManagerError](err)
		switch {
		case ctx.Err() != nil, err == nil:
			return nil
		case !isMismatch:
			r.Health.Failed("partition leases", err)
		case time.Now().After(deadline):
			return mismatch
		default:
			r.Log.Warn("waiting for other workers to stop", "reason", mismatch)
		}
		if !pause.For(ctx, store.Jitter(ctx, "look at the partitions", r.cfg.LeaseInterval/10)) {
			return nil
		}
	}
}

// awaitCreated creates the hub, and retries for as long as the storage account is unreachable. It
// returns an error only if the hub can never be used or the account denies access. It returns nil
// if ctx ends.
func (r *resources) awaitCreated(ctx context.Context) error {
	start := time.Now()
	for delay := store.FirstOutageDelay; ; delay = min(2*delay, store.MaxOutageDelay) {
		err := r.ensureCreated(ctx)
		if _, mismatch := errors.AsType[*PartitionCountError](err); mismatch {
			return err
		}
		if err == nil {
			r.Health.OK("storage account")
			return nil
		}
		retry, giveUp := store.DecideAccessRetry(err, time.Since(start))
		if giveUp {
			return err
		}
		if retry {
			r.Log.Warn(store.RoleMissingNotice, "patience", store.RoleAssignmentTimeout, "error", err)
		}
		if ctx.Err() == nil {
			r.Health.Failed("storage account", err)
		}
		if !pause.For(ctx, store.Jitter(ctx, "create the hub", delay)) {
			return nil
		}
	}
}

// delete deletes all resources. If one cannot be deleted, it still deletes the others and returns
// all errors.
func (r *resources) delete(ctx context.Context) error {
	var group sync.WaitGroup
	var mu sync.Mutex // protects failures
	var failures []error
	remove := func(what string, f func(ctx context.Context) error) {
		group.Go(func() {
			err := store.Retry(ctx, "delete "+what, func(ctx context.Context) error { return store.Ignore(f(ctx), http.StatusNotFound) })
			mu.Lock()
			defer mu.Unlock()
			failures = append(failures, err)
		})
	}
	queues := append(r.messageQueues(), r.trackingQueue)
	for _, q := range r.messageQueues() {
		queues = append(queues, r.aside(q.Name))
	}
	for _, q := range queues {
		remove("queue "+q.Name, func(ctx context.Context) error {
			_, err := q.Client.Delete(ctx, nil)
			return err
		})
	}
	for _, t := range []*store.Table{r.rowTable, r.historyTable, r.partitionsTable, r.startTable, r.trackingTable} {
		remove("table "+t.Name, func(ctx context.Context) error {
			_, err := t.Client.Delete(ctx, nil)
			return err
		})
	}
	for _, name := range []string{r.names.LargeMessageContainer(), r.names.LeaseContainer(), r.names.AppLeaseContainer()} {
		c := store.NewContainer(r.services.Blobs, r.services.BlobEndpoint, name)
		remove("container "+name, func(ctx context.Context) error {
			_, err := c.Client.Delete(ctx, nil)
			if store.CodeOf(err) != store.CodeLeaseIDMissing {
				return err
			}
			if err := c.BreakLease(ctx); err != nil {
				return err
			}
			_, err = c.Client.Delete(ctx, nil)
			return err
		})
	}
	group.Wait()
	return errors.Join(failures...)
}
