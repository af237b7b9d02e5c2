package partitionlog

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/runs"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/uuid"
)

// Hub is a task hub in one blob container. It is safe for concurrent use.
type Hub struct {
	cfg    Config
	log    *slog.Logger
	meter  *metering.Hub
	blobs  *store.Container
	leases *store.Container // the same container; requests do not queue behind others
	queues *store.Container // container of a hub of this name in queues and tables
	cache  *runs.Cache
	usage  func() []provider.Usage
	sender string // name of this process as a sender of mail

	blocked    blocked
	moments    atomic.Int64  // last result of moment
	creation   chan struct{} // held while the hub is created or hub.json is read
	ready      atomic.Bool   // id and chains are set
	imported   atomic.Bool   // a partition that this process opened contains imported data
	id         string
	chains     creation
	partitions []*partitionHandle
	maxMessage int // see the constant

	steps atomic.Pointer[func() provider.QueueLoad] // see [Hub.ObserveSteps]; nil without a worker
	worker
	life      context.Context // ends with Close, or when the hub is found deleted
	end       context.CancelCauseFunc
	borrowing sync.WaitGroup // goroutines that release partitions acquired for clients
}

var (
	_ provider.Provider        = (*Hub)(nil)
	_ provider.Awaiter         = (*Hub)(nil)
	_ provider.LoadReporter    = (*Hub)(nil)
	_ provider.StepObserver    = (*Hub)(nil)
	_ provider.Checker         = (*Hub)(nil)
	_ provider.Purger          = (*Hub)(nil)
	_ provider.Rewinder        = (*Hub)(nil)
	_ provider.QueuePositioner = (*Hub)(nil)
	_ provider.Portable        = (*Hub)(nil)
	_ provider.ExactlyOnce     = (*Hub)(nil)

	_ provider.UsageReporter     = (*Hub)(nil)
	_ provider.PartitionReporter = (*Hub)(nil)
)

// ErrClosed is returned by a [Hub] after [Hub.Close].
var ErrClosed = errors.New("task hub is closed")

// FormatError is the error of a container that does not hold a task hub, or holds one of a newer
// format.
type FormatError struct {
	Container string
	Cause     error
}

// Error names the container and the cause.
func (e *FormatError) Error() string {
	return fmt.Sprintf("container %s is not a task hub that this program knows: %v", e.Container, e.Cause)
}

// Unwrap returns the cause.
func (e *FormatError) Unwrap() error { return e.Cause }

// UncertainError is the error of a request with unknown result: this process lost the partition during
// the request, or could not read the answer in time.
type UncertainError = logstore.UncertainError

// DamageError reports a damaged or missing blob of a hub.
type DamageError = chain.DamageError

// Open returns the hub of an account. It makes no request: the first use of the hub creates it if
// it does not exist. The caller must call Close.
func Open(connection azurestorage.Connection, cfg Config) (*Hub, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("open task hub: %w", err)
	}
	cfg = cfg.WithDefaults()
	clients, err := connection.BlobClients(cfg.Transport, cfg.MeterProvider)
	if err != nil {
		return nil, fmt.Errorf("open task hub %s: %w", cfg.TaskHub, err)
	}
	meter, err := metering.NewHub(cfg.MeterProvider)
	if err != nil {
		return nil, fmt.Errorf("create the metrics of task hub %s: %w", cfg.TaskHub, err)
	}
	names := wire.NewHubNames(cfg.TaskHub)
	container := func(c *azblob.Client, name string) *store.Container {
		return store.NewContainer(c, strings.TrimSuffix(c.URL(), "/"), name)
	}
	h := &Hub{
		cfg: cfg, log: cfg.Logger.With("taskHub", cfg.TaskHub), meter: meter, usage: clients.Usage,
		blobs: container(clients.Bounded, names.PartitionLogContainer()), leases: container(clients.Urgent, names.PartitionLogContainer()), queues: container(clients.Urgent, names.AppLeaseContainer()),
		cache: runs.NewCache(32<<20, 32<<20), sender: partition.ClientSender(uuid.NewString()),
		creation: make(chan struct{}, 1), worker: newWorker(), maxMessage: maxMessage,
	}
	h.life, h.end = context.WithCancelCause(context.Background())
	for n := range cfg.PartitionCount {
		h.partitions = append(h.partitions, newPartitionHandle(h, n))
	}
	return h, nil
}

// untilClosed returns a context that ends with ctx or with the hub.
func (h *Hub) untilClosed(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(h.life, cancel)
	return ctx, func() {
		unhook()
		cancel()
	}
}

// ContainerName returns the name of a hub's container.
func ContainerName(taskHub string) string { return wire.NewHubNames(taskHub).PartitionLogContainer() }

// Close releases the partitions that this process acquired for clients. Call it after Run has
// returned.
func (h *Hub) Close() error {
	h.end(ErrClosed)
	h.borrowing.Wait()
	var errs []error
	for _, s := range h.partitions {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

// moment returns a number greater than all previous results. Moments order the events of this
// process; clock readings may be equal.
func (h *Hub) moment() int64 { return h.moments.Add(1) }

// partitionOf returns the partition that an instance belongs to.
func (h *Hub) partitionOf(id string) *partitionHandle { return h.partitions[h.numberOf(id)] }

func (h *Hub) numberOf(id string) int {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(id))
	return int(sum.Sum32() % uint32(len(h.partitions)))
}

// StartInstance implements [provider.Client].
func (h *Hub) StartInstance(ctx context.Context, msg provider.TaskMessage, refuse []history.RuntimeStatus) error {
	if err := partition.CheckID(msg.Target.InstanceID); err != nil {
		return err
	}
	return h.partitionOf(msg.Target.InstanceID).request(ctx, partition.Request{Kind: partition.RequestStart, Refuse: refuse}, &msg,
		func(p *partition.Partition) error { return p.StartInstance(ctx, msg, refuse) })
}

// Send implements [provider.Client].
func (h *Hub) Send(ctx context.Context, msg provider.TaskMessage) error {
	if err := partition.CheckID(msg.Target.InstanceID); err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	err := h.partitionOf(msg.Target.InstanceID).request(ctx, partition.Request{Kind: partition.RequestMessage}, &msg,
		func(p *partition.Partition) error { return p.Send(ctx, msg) })
	if err != nil {
		return fmt.Errorf("send message to instance %s: %w", msg.Target.InstanceID, err)
	}
	return nil
}

// Purge implements [provider.Purger].
func (h *Hub) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	return h.partitionOf(id).request(ctx, partition.Request{Kind: partition.RequestPurge, ID: id, Seen: seen}, nil,
		func(p *partition.Partition) error { return p.Purge(ctx, id, seen) })
}

// Check implements [provider.Checker]. It reads hub.json again and writes to the log of each
// partition that this process owns.
func (h *Hub) Check(ctx context.Context) error {
	if err := h.ensure(ctx); err != nil {
		return err
	}
	if err := h.confirm(ctx); err != nil {
		return err
	}
	for _, s := range h.partitions {
		if o := s.owner(); o != nil {
			if err := o.Check(ctx); err != nil && !o.isEnd(err) {
				return err
			}
		}
	}
	return nil
}

// maxWaiting is the number of requests that may wait for a partition's log or mailbox before IsBusy
// returns true.
const maxWaiting = 5000

// IsBusy implements [provider.Checker].
func (h *Hub) IsBusy() bool {
	for _, s := range h.partitions {
		if o := s.owner(); o != nil && o.Waiting() > maxWaiting || s.mail.isBusy() {
			return true
		}
	}
	return false
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

// stamp adds the hub's ID to the metadata of a blob.
func (h *Hub) stamp(metadata map[string]string) map[string]string {
	metadata[chain.HubKey] = h.id
	return metadata
}
