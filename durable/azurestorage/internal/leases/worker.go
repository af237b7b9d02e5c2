// Package leases assigns the control queues of a task hub to its workers, and the task hub to one of
// the apps that share it.
//
// Leases are rows of a table or leases on blobs, in the formats of DurableTask.AzureStorage. A [Manager]
// acquires and renews the leases of one [Worker] and balances them with other workers. It tells each
// [Partition] when to start and stop reading its queue. An [AppManager] lets a manager run only while its
// app holds the app lease. The package does not depend on messages or sessions.
package leases

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
)

// A Kind is a storage format of leases.
type Kind int

// The kinds, in the order of azurestorage.PartitionManager.
const (
	TableRows   Kind = iota // one row per partition
	SafeBlobs               // two blobs per partition
	LegacyBlobs             // one blob per partition
)

// A Partition is a control queue that a worker can read.
type Partition interface {
	// Name returns the name of the queue.
	Name() string
	// StartReading starts to read the queue, or continues to read it. The lease expires at until.
	StartReading(work context.Context, until clocks.Moment)
	// IsReading reports whether the queue is being read.
	IsReading() bool
	// Expired reports whether the queue is being read although its lease has expired.
	Expired(now clocks.Moment) bool
	// StopReading stops reading the queue. The returned function does the slow part of the work.
	StopReading(work context.Context) (finish func())
	// BeginDrain stops reading the queue. In the background, it waits until nothing of the partition
	// is in use, but no longer than limit.
	BeginDrain(work context.Context, limit time.Duration)
	// DrainState returns the progress of the drain.
	DrainState() DrainState
	// Released records that the partition was released.
	Released()
}

// App configures the app lease. azurestorage.AppLease documents the fields.
type App struct {
	Disabled        bool
	AppName         string
	Interval        time.Duration
	RenewInterval   time.Duration
	AcquireInterval time.Duration
}

// A Worker is an owner of leases, with its partitions and its storage.
type Worker struct {
	ID         string
	Kind       Kind
	App        App
	Partitions []Partition
	Names      wire.HubNames

	Interval        time.Duration // lease duration without renewal
	AcquireInterval time.Duration // time between two passes over all leases
	DrainTimeout    time.Duration // maximum time for sessions to end when the worker stops

	Table    *store.Table     // partition rows
	Blobs    *store.Container // partition leases
	AppBlobs *store.Container // app lease

	Clock        *clocks.Clock        // counts the duration of leases
	TableLatency func() time.Duration // current latency of tables
	Missing      func(err error)      // called if the table does not exist
	Health       store.Health
	Log          *slog.Logger
	Meter        *metering.Hub
	Tasks        *sync.WaitGroup // goroutines that the worker waits for
}

// A Manager acquires and renews partitions, and releases them when ctx ends. Run returns when all
// partitions are released or work ends.
type Manager interface {
	Run(ctx, work context.Context)
}

// NewManager returns the partition manager for w.
func NewManager(w *Worker) Manager {
	if w.Kind == TableRows {
		return newTablePartitions(w)
	}
	return newBlobPartitions(w)
}

// ActiveKinds returns the kinds that have unexpired leases. If the worker's own kind is TableRows, it
// omits that kind.
func (w *Worker) ActiveKinds(ctx context.Context) (map[Kind]bool, error) {
	active := map[Kind]bool{}
	if w.Kind != TableRows {
		rows, err := w.OwnedRows(ctx)
		if err != nil && !store.IsNotFound(err) {
			return nil, err
		}
		active[TableRows] = len(rows) > 0
	}
	pages := w.Blobs.Client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if store.IsNotFound(err) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("list leases: %w", err)
		}
		for _, item := range page.Segment.BlobItems {
			folder, _, _ := strings.Cut(*item.Name, "/")
			kind, known := kindOf[folder]
			if known && item.Properties != nil && item.Properties.LeaseState != nil && *item.Properties.LeaseState == lease.StateTypeLeased {
				active[kind] = true
			}
		}
	}
	return active, nil
}

// kindOf is the kind that uses the lease blobs in a folder.
var kindOf = map[string]Kind{defaultLeases: LegacyBlobs, intentLeases: SafeBlobs, ownershipLeases: SafeBlobs}

// Owners returns the current owners of control queues, by queue.
func (w *Worker) Owners(ctx context.Context) (map[string]string, error) {
	owners := map[string]string{}
	if w.Kind == TableRows {
		rows, err := w.OwnedRows(ctx)
		for _, row := range rows {
			owners[row.Queue] = row.CurrentOwner
		}
		return owners, err
	}
	leases, err := w.Leases(ctx, w.folders()[len(w.folders())-1])
	for _, l := range leases {
		if l.Leased && l.Owner != "" {
			owners[l.Partition] = l.Owner
		}
	}
	return owners, err
}

// OwnedRows returns the rows of the partitions table whose leases were valid when the service sent them.
func (w *Worker) OwnedRows(ctx context.Context) ([]wire.PartitionRow, error) {
	rows, sent, err := w.readRows(ctx)
	return slices.DeleteFunc(rows, func(row wire.PartitionRow) bool {
		return row.CurrentOwner == "" || !row.ExpiresAt.After(sent)
	}), err
}

// folders returns the blob folders of the worker's kind. The last folder names the owners of the
// queues.
func (w *Worker) folders() []string {
	if w.Kind == LegacyBlobs {
		return []string{defaultLeases}
	}
	return []string{intentLeases, ownershipLeases}
}

// Leases returns the leases in a folder.
func (w *Worker) Leases(ctx context.Context, folder string) ([]BlobLease, error) {
	return w.leaseSet(folder).list(ctx, nil)
}

func (w *Worker) leaseSet(folder string) *leaseSet {
	return &leaseSet{store: w.Blobs, folder: folder, worker: w.ID, duration: w.Interval, clock: w.Clock}
}

// ReadRows returns all rows of the partitions table, in its order.
func ReadRows(ctx context.Context, t *store.Table) (rows []wire.PartitionRow, err error) {
	err = t.All(ctx, store.Query{}, func(raw []byte) error {
		row, err := wire.DecodePartitionRow(raw)
		if err == nil {
			rows = append(rows, row)
		}
		return err
	})
	return rows, err
}

// readRows is [ReadRows] for the worker's table. sent is the result of sentAt for the last response.
func (w *Worker) readRows(ctx context.Context) (rows []wire.PartitionRow, sent time.Time, err error) {
	var answer *http.Response
	rows, err = ReadRows(policy.WithCaptureResponse(ctx, &answer), w.Table)
	return rows, sentAt(answer, w.Clock.Now().Wall), err
}

// dateGrain is the resolution of the Date header. A response may have been created this much later
// than its Date.
const dateGrain = time.Second

// sentAt returns the Date of a response, or now if it has no valid Date. It adds no local time to the
// Date. Otherwise, an expired lease could be valid again in the next response of the same second.
func sentAt(answer *http.Response, now time.Time) time.Time {
	if answer == nil {
		return now
	}
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return now
	}
	return date
}
