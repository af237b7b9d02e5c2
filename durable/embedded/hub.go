package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded/internal/hubfile"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/disk"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Hub is a task hub in one file, open in this process. It implements [provider.Provider],
// [provider.Purger], [provider.Rewinder] and the other interfaces that its methods name. It is safe
// for concurrent use.
type Hub struct {
	*engine

	path  string
	log   *slog.Logger
	file  *hubfile.File
	store *logstore.Store
	meter *metering.Hub
	began uint64 // number of the last group when the file was opened
}

// engine provides the methods of Hub that do not depend on the storage.
type engine = partition.Partition

var (
	_ provider.Provider        = (*Hub)(nil)
	_ provider.Checker         = (*Hub)(nil)
	_ provider.Purger          = (*Hub)(nil)
	_ provider.Rewinder        = (*Hub)(nil)
	_ provider.QueuePositioner = (*Hub)(nil)
	_ provider.ExactlyOnce     = (*Hub)(nil)
	_ provider.Portable        = (*Hub)(nil)

	_ provider.UsageReporter = (*Hub)(nil)
)

// Open opens the task hub in the file at path and creates it if it does not exist. While the hub is
// open, there are files beside it: path with the suffixes ".journal-0", ".journal-1" and ".owner".
// During a compaction there is also ".compact".
//
// Errors of Open:
//   - *[HeldError]: another process has the file open, or this process has opened it before.
//   - *[FormatError]: the file has a newer format.
//   - *[CorruptError]: the file is damaged or not a task hub.
//   - *[NetworkFileError]: the file is on a network file system.
func Open(path string, cfg Config) (*Hub, error) {
	h, err := open(path, cfg)
	if err != nil {
		return nil, fmt.Errorf("open task hub %s: %w", path, err)
	}
	return h, nil
}

func open(path string, cfg Config) (*Hub, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	h := &Hub{path: path, log: cfg.Logger}
	if h.meter, err = metering.NewHub(cfg.MeterProvider); err != nil {
		return nil, err
	}
	log := cfg.Logger.With("path", path)
	h.file, err = hubfile.Open(path, hubfile.Options{
		Tables: partition.Tables, LockTimeout: cfg.LockTimeout, Relaxed: cfg.Relaxed, Contact: cfg.Contact, Logger: log,
		Compact: cfg.compact, AllowNetwork: cfg.AllowNetworkFile,
	})
	if err != nil {
		return nil, fileError(path, err)
	}
	h.store = h.file.Store()
	h.began = h.store.Newest()
	h.engine, err = partition.Open(h.store, partition.Config{
		Name: "task hub " + path, OpenCount: h.file.OpenCount, CrashCount: h.file.CrashCount,
		DrainTimeout: cfg.DrainTimeout, AbandonDelay: cfg.AbandonDelay, MaxAbandonDelay: cfg.MaxAbandonDelay, PageSize: cfg.PageSize,
		Readable: h.file.CheckPathAtInterval, Error: h.fileError, Logger: log,
	})
	if err != nil {
		h.file.Abandon()
		return nil, err
	}
	return h, nil
}

// Compact rewrites the file of the task hub at path without its free space. It returns the size of
// the file before and after, in bytes. [Open] compacts a file by itself if most of it is free. The
// disk needs space for both files meanwhile. If the rewrite fails, the file does not change.
// Compact has the errors of Open, and [io/fs.ErrNotExist] if the file does not exist.
func Compact(path string, cfg Config) (before, after int64, err error) {
	if before, err = sizeOf(path); err != nil {
		return 0, 0, fmt.Errorf("compact task hub: %w", err)
	}
	cfg.compact = true
	h, err := Open(path, cfg)
	if err != nil {
		return 0, 0, err
	}
	if err := h.Close(); err != nil {
		return 0, 0, err
	}
	after, err = sizeOf(path)
	return before, after, err
}

func sizeOf(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Path returns the absolute path of the hub's file.
func (h *Hub) Path() string { return h.path }

// Close completes the pending writes and closes the file. Call it after Run has returned. It
// revokes locks that are still held.
func (h *Hub) Close() error {
	first, err := h.engine.Close()
	if !first {
		return nil
	}
	if err := errors.Join(err, h.store.Close(), h.file.RemoveOwner()); err != nil {
		return fmt.Errorf("close task hub %s: %w", h.path, err)
	}
	return nil
}

// fileError converts an error of the file to a public error type. It logs panics of the database.
func (h *Hub) fileError(err error) error {
	if panicked, ok := errors.AsType[*hubfile.PanicError](err); ok {
		h.log.Error("the database panicked", "path", h.path, "error", panicked, "stack", string(panicked.Stack))
	}
	return fileError(h.path, err)
}

// Run implements [provider.Worker].
func (h *Hub) Run(ctx context.Context) error {
	stop, err := h.meter.Observe(h.observe)
	if err != nil {
		h.log.Warn("cannot report the state of the hub as metrics", "error", err)
	} else {
		defer func() { _ = stop() }() // it cannot fail the first time
	}
	return h.engine.Run(ctx)
}

// observe returns the waiting work and the free disk space, for the metrics.
func (h *Hub) observe(context.Context) metering.HubState {
	waits, name := h.Backlog(), filepath.Base(h.path)
	state := metering.HubState{Queues: []metering.QueueState{
		{Queue: name, Length: waits.Messages.Length, Latency: waits.Messages.Latency, StartLatency: new(waits.StartLatency)},
		{Queue: name + "/activities", Length: waits.Activities.Length, Latency: waits.Activities.Latency},
	}}
	free, err := disk.Of(h.path).Free(filepath.Dir(h.path))
	switch {
	case err == nil:
		state.DiskFree = &free
	case !errors.Is(err, errors.ErrUnsupported):
		h.log.Debug("cannot read the free disk space for the metrics", "path", h.path, "error", err)
	}
	return state
}

// Check implements [provider.Checker]. It fails if the file was deleted, moved or cannot be
// written.
func (h *Hub) Check(ctx context.Context) error {
	if err := h.file.CheckPath(); err != nil {
		return err
	}
	return h.engine.Check(ctx)
}

// IsSingleWorker implements [provider.SingleWorker]: only one process can use the hub.
func (h *Hub) IsSingleWorker() bool { return true }

// Usage implements [provider.UsageReporter]. A request is a group of operations that were written
// together. Errors are not counted; [Hub.Check] reports errors of the file.
func (h *Hub) Usage() []provider.Usage {
	return []provider.Usage{{Part: "file", Requests: int64(h.store.Newest() - h.began), Errors: -1}}
}

// IsExactlyOnce implements [provider.ExactlyOnce]. A checkpoint is one record of the file. The
// result is false for a hub that was filled by Import, and for a hub of an older version that does not
// record imports.
func (h *Hub) IsExactlyOnce() bool { return h.file.IsExactlyOnce() }

// Import implements [provider.Portable]. After a failed import the hub looks like a complete one.
// Import into a file of another name and rename it afterwards.
func (h *Hub) Import(ctx context.Context, fill func(provider.HubWriter) error) error {
	return h.engine.Import(ctx, func(w provider.HubWriter) error {
		if err := h.file.SetInexact(); err != nil {
			return fileError(h.path, err)
		}
		return fill(w)
	})
}

// Backup writes the hub as of one moment to a new file at path and returns its size in bytes.
// Workers and clients may use the hub meanwhile. The backup contains everything acknowledged before
// that moment and nothing later. The file is a closed hub with mode 0600 and without free space. It
// gets its name when it is complete and on the disk. Backup fails with [io/fs.ErrExist] if there is a
// file at path.
//
// The hub's file grows during a backup, because the space of changed records is reused only
// afterwards. The file is memory-mapped; the map has 4 GiB, or the next whole GiB of a larger file.
// If the file outgrows the map, changes stay in memory until the backup ends. Reads of other
// records then wait, and writes wait when the changes reach 64 MB. On Windows, the map is only as
// large as the file, so any growth has this effect.
func (h *Hub) Backup(ctx context.Context, path string) (size int64, err error) {
	err = h.store.Snapshot(func(v *logstore.View) (err error) {
		size, err = h.file.Backup(ctx, path, v)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("back up task hub %s: %w", h.path, h.fileError(err))
	}
	return size, nil
}

// QueuePosition implements [provider.QueuePositioner].
func (h *Hub) QueuePosition(ctx context.Context, id string) (provider.QueuePosition, error) {
	before, served := h.MessagesAhead(id)
	place := provider.QueuePosition{Partition: -1, MessagesAhead: before, IsExact: true}
	if served {
		place.Owner = "this process"
	}
	return place, ctx.Err()
}
