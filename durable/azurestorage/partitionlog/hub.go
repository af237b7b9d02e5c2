package partitionlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/runs"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/uuid"
)

// Hub is a task hub in one blob container.
type Hub struct {
	cfg    Config
	log    *slog.Logger
	meter  *metering.Hub
	blobs  *store.Container
	leases *store.Container // the same, by a client whose requests never wait
	cache  *runs.Cache
	usage  func() []provider.Usage
	sender string // this process among those that send mail

	moments  atomic.Int64  // see moment
	creation chan struct{} // held by whoever creates the hub or reads what it is
	ready    atomic.Bool   // id is known
	imported atomic.Bool   // a partition that this process had says that something was imported
	id       string
	shares   []*share

	worker
	life      context.Context // ends with Close, or when the hub was deleted
	end       context.CancelCauseFunc
	borrowing sync.WaitGroup // who give up partitions that clients took
}

var (
	_ provider.Provider     = (*Hub)(nil)
	_ provider.Awaiter      = (*Hub)(nil)
	_ provider.LoadReporter = (*Hub)(nil)
	_ provider.Checker      = (*Hub)(nil)
	_ provider.Purger       = (*Hub)(nil)
	_ provider.Rewinder     = (*Hub)(nil)
	_ provider.Placer       = (*Hub)(nil)
	_ provider.Portable     = (*Hub)(nil)
	_ provider.Exact        = (*Hub)(nil)

	_ provider.UsageReporter = (*Hub)(nil)
)

// ErrClosed is the error of a [Hub] that is used after [Hub.Close].
var ErrClosed = errors.New("task hub is closed")

// FormatError is the error of a container that is no hub, or one of a newer format.
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

// DeletedError is the error of a hub that was deleted while this process used it. The process
// writes nothing into a hub that was created in its place, and cannot use the [Hub] any more.
type DeletedError struct {
	TaskHub string
	// Replaced means that another hub of this name exists now.
	Replaced bool
}

// Error names the hub and says what to do.
func (e *DeletedError) Error() string {
	if e.Replaced {
		return fmt.Sprintf("task hub %s was deleted and created again while this process used it; restart the process to use the new hub", e.TaskHub)
	}
	return fmt.Sprintf("task hub %s was deleted while this process used it; restart the process to create the hub again", e.TaskHub)
}

// Open returns the hub of an account. It sends nothing: the first use of the hub makes it
// if it does not exist. Close it in the end.
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
		return nil, fmt.Errorf("make the metrics of task hub %s: %w", cfg.TaskHub, err)
	}
	container := func(c *azblob.Client) *store.Container {
		return store.NewContainer(c, strings.TrimSuffix(c.URL(), "/"), ContainerName(cfg.TaskHub))
	}
	h := &Hub{
		cfg: cfg, log: cfg.Logger.With("taskHub", cfg.TaskHub), meter: meter, blobs: container(clients.Bounded), leases: container(clients.Urgent), usage: clients.Usage,
		cache: runs.NewCache(32<<20, 32<<20), sender: partition.ClientSender(uuid.NewString()),
		creation: make(chan struct{}, 1), worker: newWorker(),
	}
	h.life, h.end = context.WithCancelCause(context.Background())
	for n := range cfg.PartitionCount {
		h.shares = append(h.shares, newShare(h, n))
	}
	return h, nil
}

// untilClosed returns a context with the values of ctx that ends when ctx or the hub does.
func (h *Hub) untilClosed(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(h.life, cancel)
	return ctx, func() {
		unhook()
		cancel()
	}
}

// ContainerName returns the name of a hub's container.
func ContainerName(taskHub string) string { return strings.ToLower(taskHub) + "-log" }

// Close lets go of the partitions that clients of this process took. Call it after Run has
// returned.
func (h *Hub) Close() error {
	h.end(ErrClosed)
	h.borrowing.Wait()
	var errs []error
	for _, s := range h.shares {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

// formatVersion is the version of a hub's layout.
const formatVersion = 1

// hubInfo is the content of hub.json.
type hubInfo struct {
	Format     int    `json:"format"`
	Partitions int    `json:"partitions"`
	ID         string `json:"id"`
}

const infoName = "hub.json"

// ensure makes the hub unless it exists, and reads what it is. It does so once.
func (h *Hub) ensure(ctx context.Context) error {
	if err := h.deleted(); err != nil {
		return err
	}
	if h.ready.Load() {
		return nil
	}
	select {
	case h.creation <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-h.life.Done():
		return ErrClosed
	}
	defer func() { <-h.creation }()
	if h.ready.Load() {
		return nil
	}
	info, err := h.readInfo(ctx)
	if store.StatusOf(err) == http.StatusNotFound {
		info, err = h.create(ctx)
	}
	if err != nil {
		return fmt.Errorf("open task hub %s: %w", h.cfg.TaskHub, err)
	}
	if info.Partitions != h.cfg.PartitionCount {
		return &azurestorage.PartitionCountError{TaskHub: h.cfg.TaskHub, Configured: h.cfg.PartitionCount, Existing: info.Partitions}
	}
	h.id = info.ID
	h.ready.Store(true)
	return nil
}

// confirm reads again which hub the container holds, and stops this process's use of the hub if
// it is not the one that the process has used: the error is a *[DeletedError] then.
func (h *Hub) confirm(ctx context.Context) error {
	info, err := h.readInfo(ctx)
	switch {
	case store.IsContainerMissing(err):
		err = &DeletedError{TaskHub: h.cfg.TaskHub}
		h.end(err)
	case store.IsNotFound(err):
		err = fmt.Errorf("blob %s of container %s is missing; restore it, or delete the task hub", infoName, h.blobs.Name)
	case err == nil && info.ID != h.id:
		err = &DeletedError{TaskHub: h.cfg.TaskHub, Replaced: true}
		h.end(err)
	}
	return err
}

// deleted returns a *[DeletedError] if the hub was found to be deleted, else nil.
func (h *Hub) deleted() error {
	if err, deleted := errors.AsType[*DeletedError](context.Cause(h.life)); deleted {
		return err
	}
	return nil
}

// create makes the hub. If another process does so at the same time, one of them wins.
func (h *Hub) create(ctx context.Context) (hubInfo, error) {
	if err := h.blobs.Create(ctx); err != nil {
		return hubInfo{}, err
	}
	content, err := json.Marshal(hubInfo{Format: formatVersion, Partitions: h.cfg.PartitionCount, ID: uuid.NewString()})
	if err != nil {
		return hubInfo{}, err
	}
	if err := h.blobs.CreateBlob(ctx, infoName, content); err != nil {
		return hubInfo{}, err
	}
	return h.readInfo(ctx)
}

func (h *Hub) readInfo(ctx context.Context) (info hubInfo, err error) {
	part, err := h.blobs.ReadPart(ctx, infoName, 0, 1<<16)
	if err != nil {
		return info, err
	}
	decoder := json.NewDecoder(bytes.NewReader(part.Content))
	if err := decoder.Decode(&info); err != nil {
		return info, &FormatError{h.blobs.Name, fmt.Errorf("%s: %w", infoName, err)}
	}
	if info.Format != formatVersion || info.ID == "" {
		return info, &FormatError{h.blobs.Name, fmt.Errorf("its format is version %d; this program knows version %d", info.Format, formatVersion)}
	}
	return info, nil
}

// moment returns a number that is greater than all that it returned before. Moments say which
// of two things in this process came first; readings of the clock can be the same.
func (h *Hub) moment() int64 { return h.moments.Add(1) }

// share returns the partition that an instance belongs to.
func (h *Hub) share(id string) *share { return h.shares[h.numberOf(id)] }

func (h *Hub) numberOf(id string) int {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(id))
	return int(sum.Sum32() % uint32(len(h.shares)))
}

// StartInstance implements [provider.Client].
func (h *Hub) StartInstance(ctx context.Context, msg provider.TaskMessage, refuse []history.RuntimeStatus) error {
	if err := partition.CheckID(msg.Target.InstanceID); err != nil {
		return err
	}
	record, err := partition.EncodeMessage(msg)
	if err != nil {
		return err
	}
	return h.share(msg.Target.InstanceID).ask(ctx, partition.Request{Kind: partition.RequestStart, Message: record, Refuse: refuse},
		func(p *partition.Partition) error { return p.StartInstance(ctx, msg, refuse) })
}

// Send implements [provider.Client].
func (h *Hub) Send(ctx context.Context, msg provider.TaskMessage) error {
	if err := partition.CheckID(msg.Target.InstanceID); err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	record, err := partition.EncodeMessage(msg)
	if err == nil {
		err = h.share(msg.Target.InstanceID).ask(ctx, partition.Request{Kind: partition.RequestMessage, Message: record},
			func(p *partition.Partition) error { return p.Send(ctx, msg) })
	}
	if err != nil {
		return fmt.Errorf("send message to instance %s: %w", msg.Target.InstanceID, err)
	}
	return nil
}

// Purge implements [provider.Purger].
func (h *Hub) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	return h.share(id).ask(ctx, partition.Request{Kind: partition.RequestPurge, ID: id, Seen: seen},
		func(p *partition.Partition) error { return p.Purge(ctx, id, seen) })
}

// Check implements [provider.Checker]. It reads which hub the container holds, and has the partitions of
// this process write.
func (h *Hub) Check(ctx context.Context) error {
	if err := h.ensure(ctx); err != nil {
		return err
	}
	if err := h.confirm(ctx); err != nil {
		return err
	}
	for _, s := range h.shares {
		if o := s.owner(); o != nil {
			if err := o.Check(ctx); err != nil && !o.hasGone(err) {
				return err
			}
		}
	}
	return nil
}

// maxWaiting is how many requests wait for a partition's log, or for its mailbox, before
// clients are asked to come later.
const maxWaiting = 5000

// IsBusy implements [provider.Checker].
func (h *Hub) IsBusy() bool {
	for _, s := range h.shares {
		if o := s.owner(); o != nil && o.Waiting() > maxWaiting || s.mail.isBusy() {
			return true
		}
	}
	return false
}
