// Package leases keeps which worker of a task hub reads which control queue: by rows of a
// table or by leases on blobs, as DurableTask.AzureStorage does, and which of the apps that
// share a hub works on it. It knows neither messages nor sessions.
package leases

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
)

// A Kind is a way to keep leases.
type Kind int

// The kinds, in the order of azurestorage.PartitionManager.
const (
	TableRows   Kind = iota // a row for each partition
	SafeBlobs               // two blobs for each partition
	LegacyBlobs             // one blob for each partition
)

// A Partition is a control queue that a worker can read.
type Partition interface {
	// Name is that of the queue.
	Name() string
	// Listen begins to read the queue, or goes on; the right to read it ends at until.
	Listen(work context.Context, until time.Time)
	// IsRead reports whether the queue is being read.
	IsRead() bool
	// Expired reports whether it is being read though the right to ended before now.
	Expired(now time.Time) bool
	// StopReading ends the reading. The function that it returns does what takes time.
	StopReading(work context.Context) (finish func())
	// BeginDrain stops reading and waits, in the background and for limit at most, until
	// nothing of the partition is in use.
	BeginDrain(work context.Context, limit time.Duration)
	// DrainState says how far that is.
	DrainState() DrainState
	// Released notes that the partition was given up.
	Released()
}

// App says how apps that share a hub take turns; azurestorage.AppLease documents its
// fields.
type App struct {
	Disabled        bool
	AppName         string
	Interval        time.Duration
	RenewInterval   time.Duration
	AcquireInterval time.Duration
}

// A Worker is the owner of leases, and the storage that they are in.
type Worker struct {
	ID         string
	Kind       Kind
	App        App
	Partitions []Partition
	Names      wire.HubNames

	Interval        time.Duration // how long a lease lasts without being renewed
	AcquireInterval time.Duration // between two looks at all leases
	DrainTimeout    time.Duration // for sessions, when the worker stops

	Table    *store.Table     // of partition rows
	Blobs    *store.Container // of leases
	AppBlobs *store.Container // of the app lease

	TableLatency func() time.Duration // how slowly tables answer
	Missing      func(err error)      // is called if the table does not exist
	Health       store.Health
	Log          *slog.Logger
	Meter        *metering.Hub
	Tasks        *sync.WaitGroup // of the goroutines that the worker waits for
}

// A Manager acquires partitions, keeps them, and gives them up when ctx has ended. Run
// returns when it holds none any more, or when work has ended.
type Manager interface {
	Run(ctx, work context.Context)
}

// NewManager returns what decides which partitions w reads.
func NewManager(w *Worker) Manager {
	if w.Kind == TableRows {
		return newTablePartitions(w)
	}
	return newBlobPartitions(w)
}

// Active returns the kinds that have unexpired leases. It leaves table rows out if that is
// the worker's own kind.
func (w *Worker) Active(ctx context.Context) (map[Kind]bool, error) {
	active := map[Kind]bool{}
	if w.Kind != TableRows {
		owners, err := w.tableOwners(ctx)
		if err != nil && !store.IsNotFound(err) {
			return nil, err
		}
		active[TableRows] = len(owners) > 0
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

// kindOf says whose leases are in a folder.
var kindOf = map[string]Kind{defaultLeases: LegacyBlobs, intentLeases: SafeBlobs, ownershipLeases: SafeBlobs}

// Owners returns the workers that have partitions now, by their queues.
func (w *Worker) Owners(ctx context.Context) (map[string]string, error) {
	if w.Kind == TableRows {
		return w.tableOwners(ctx)
	}
	owners := map[string]string{}
	leases, err := w.Leases(ctx, w.folders()[len(w.folders())-1])
	for _, l := range leases {
		if l.Leased && l.Owner != "" {
			owners[l.Partition] = l.Owner
		}
	}
	return owners, err
}

func (w *Worker) tableOwners(ctx context.Context) (map[string]string, error) {
	owners := map[string]string{}
	rows, ahead, err := ReadRows(ctx, w.Table)
	for _, row := range rows {
		if row.CurrentOwner != "" && row.ExpiresAt.After(time.Now().Add(ahead)) {
			owners[row.Queue] = row.CurrentOwner
		}
	}
	return owners, err
}

// folders are those of the blobs of the worker's kind. The last one says who reads a
// queue.
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
	return &leaseSet{store: w.Blobs, folder: folder, worker: w.ID, duration: w.Interval}
}

// ReadRows returns all rows of the partitions table, in its order, and
// by how much the service's clock is ahead of ours.
func ReadRows(ctx context.Context, t *store.Table) (rows []wire.PartitionRow, ahead time.Duration, err error) {
	var answer *http.Response
	err = t.All(policy.WithCaptureResponse(ctx, &answer), store.Query{}, func(raw []byte) error {
		row, err := wire.DecodePartitionRow(raw)
		if err == nil {
			rows = append(rows, row)
		}
		return err
	})
	return rows, clockAhead(answer, time.Now()), err
}

// dateGrain is how much later than its Date an answer can have been made: it
// has whole seconds.
const dateGrain = time.Second

// clockAhead returns by how much the clock of who made an answer is ahead of
// ours, which may be negative: at least, for it can be more by dateGrain and the
// answer's time on its way. It is 0 if the answer has no date.
func clockAhead(answer *http.Response, now time.Time) time.Duration {
	if answer == nil {
		return 0
	}
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return 0
	}
	return date.Sub(now)
}
