package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded/internal/hubfile"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Hub is a task hub in one file, open in this process.
type Hub struct {
	work

	path    string
	log     *slog.Logger
	file    *hubfile.File
	store   *logstore.Store
	writer  *logstore.Writer[*txn]
	opened  time.Time
	numbers atomic.Uint64 // the last number of a message, an activity or an execution
}

var (
	_ provider.Provider = (*Hub)(nil)
	_ provider.Checker  = (*Hub)(nil)
	_ provider.Purger   = (*Hub)(nil)
	_ provider.Rewinder = (*Hub)(nil)
	_ provider.Portable = (*Hub)(nil)
)

// Open opens the task hub in the file at path, and creates it if there is none.
// While it is open there are files beside it, whose names are the same with the
// suffixes ".journal-0", ".journal-1" and ".owner", and while it is compacted ".compact".
//
// It fails with a *[HeldError] if another process has the file open, with a
// *[FormatError] if the file is of a newer version, and with a *[CorruptError] if
// it is damaged or not a task hub.
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
	log := cfg.Logger
	cfg.Logger = log.With("path", path)
	file, err := hubfile.Open(path, hubfile.Options{
		Tables: hubTables, LockTimeout: cfg.LockTimeout, Relaxed: cfg.Relaxed, Contact: cfg.Contact, Logger: cfg.Logger,
		Compact: cfg.compact,
	})
	if err != nil {
		return nil, fileError(path, err)
	}
	h := &Hub{work: newWork(cfg), path: path, log: log, file: file, store: file.Store(), opened: time.Now()}
	h.numbers.Store(file.Opens << 40) // no number is ever used again
	if err := h.read("read pending work", func(t tables) error { return h.load(t, file.Crashes) }); err != nil {
		file.Abandon()
		return nil, err
	}
	h.store.Start()
	h.writer = logstore.NewWriter(h.store, logstore.WriterConfig[*txn]{
		Begin:   func(t *logstore.Txn) *txn { return &txn{Txn: t, tables: tables{t.View}, h: h} },
		Effects: &h.mu,
		Failed:  func(err error) error { return fmt.Errorf("write to task hub %s: %w", path, h.fileError(err)) },
	})
	return h, nil
}

// Compact rewrites the file of the task hub at path without its free space, which [Open]
// does by itself if most of the file is free, and returns how many bytes the file had
// before and has now. Meanwhile the disk needs room for both. If it cannot be rewritten it
// stays as it is. Compact fails as Open does, and with [fs.ErrNotExist] if there is no
// file.
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

// Path returns the name of the hub's file.
func (h *Hub) Path() string { return h.path }

// Close finishes the writes that are under way and closes the file. Call it after
// Run has returned. Locks that are still held are revoked.
func (h *Hub) Close() error {
	if !h.work.close() {
		return nil
	}
	// If the deliveries cannot be written, the next Open counts as after a crash.
	kept := h.writer.Close(h.keepDeliveries)
	if err := errors.Join(kept, h.store.Close(), h.file.RemoveOwner()); err != nil {
		return fmt.Errorf("close task hub %s: %w", h.path, err)
	}
	return nil
}

// keepDeliveries stores how often the activities that are not done were dispatched:
// after a crash, any of them may have been. It must be the hub's last operation, since it
// changes records of a transient table.
func (h *Hub) keepDeliveries(t *txn) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for a := range h.delivered {
		record, err := t.Must(activitiesTable, logstore.NumberKey(a.number))
		if err != nil {
			return err
		}
		_, message, err := decodeActivityHead(record)
		if err != nil {
			return err
		}
		head := activityHead{crashes: h.file.Crashes, deliveries: uint64(a.earlier + a.deliveries)}
		t.Put(activitiesTable, logstore.NumberKey(a.number), encodeActivity(head, message))
	}
	return nil
}

// read calls f with the records as they are now. Writes wait for it.
func (h *Hub) read(what string, f func(tables) error) error { return h.see(what, h.store.View, f) }

// scan is read for what may take long: writes do not wait for it.
func (h *Hub) scan(what string, f func(tables) error) error {
	return h.see(what, h.store.Snapshot, f)
}

func (h *Hub) see(what string, view func(func(*logstore.View) error) error, f func(tables) error) error {
	err := h.file.WasInPlace()
	if err == nil {
		err = view(func(v *logstore.View) error { return f(tables{v}) })
	}
	if err == nil || errors.Is(err, provider.ErrInstanceNotFound) {
		return err
	}
	return fmt.Errorf("%s: %w", what, h.fileError(err))
}

// fileError returns an error of the file as callers know it, and logs a panic.
func (h *Hub) fileError(err error) error {
	if panicked, ok := errors.AsType[*hubfile.PanicError](err); ok {
		h.log.Error("the database panicked", "path", h.path, "error", panicked, "stack", string(panicked.Stack))
	}
	return fileError(h.path, err)
}

// StartInstance implements [provider.Client].
func (h *Hub) StartInstance(ctx context.Context, msg provider.TaskMessage, refuse []history.RuntimeStatus) error {
	given, ok := msg.Event.(*history.ExecutionStarted)
	if !ok {
		return fmt.Errorf("the message is a %T; want a *history.ExecutionStarted", msg.Event)
	}
	id := msg.Target.InstanceID
	if err := checkID(id); err != nil {
		return err
	}
	return h.writer.Do(ctx, func(t *txn) error {
		r, err := t.row(id)
		if err != nil {
			return err
		}
		if r != nil && slices.Contains(refuse, r.Status) {
			return logstore.Refuse(&provider.InstanceExistsError{InstanceID: id, Status: r.Status})
		}
		// Unless the client counts, as DurableTask.AzureStorage does
		// (AzureStorageOrchestrationService.cs, CreateTaskOrchestrationAsync).
		start := new(*given)
		if start.Generation == nil {
			start.Generation = new(int)
			if r != nil {
				*start.Generation = r.Generation + 1
			}
		}
		m := msg
		m.Event = start
		record, err := encodeMessage(m)
		if err != nil {
			return err
		}
		return t.begin(r, start, record, m)
	})
}

// Send implements [provider.Client].
func (h *Hub) Send(ctx context.Context, msg provider.TaskMessage) error {
	if err := checkID(msg.Target.InstanceID); err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	record, err := encodeMessage(msg)
	if err == nil {
		err = h.writer.Do(ctx, func(t *txn) error { return t.send(record, msg) })
	}
	if err != nil {
		return fmt.Errorf("send message to instance %s: %w", msg.Target.InstanceID, err)
	}
	return nil
}

// Instance implements [provider.Client].
func (h *Hub) Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var state *provider.InstanceState
	err := h.read("read instance "+id, func(t tables) error {
		r, err := t.row(id)
		if err != nil {
			return err
		}
		if r == nil {
			return provider.ErrInstanceNotFound
		}
		state, err = t.state(r, fetch)
		return err
	})
	return state, err
}

// Instances implements [provider.Client]. Pages are in the order of instance IDs.
// A continuation is the first ID of the next page.
func (h *Hub) Instances(ctx context.Context, q provider.Query) (page *provider.Page, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	from, size := q.IDPrefix, q.PageSize
	if size <= 0 {
		size = h.cfg.PageSize
	}
	if q.Continuation != "" {
		places, err := provider.DecodeContinuation(q.Continuation, 1)
		if err != nil {
			return nil, fmt.Errorf("query instances: %w", err)
		}
		from = max(from, places[0])
	}
	err = h.scan("query instances", func(t tables) error {
		page, err = t.page(q, from, size)
		return err
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// History implements [provider.Client].
func (h *Hub) History(ctx context.Context, id string) ([]history.Event, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var past []history.Event
	err := h.scan("read history of instance "+id, func(t tables) error {
		r, err := t.row(id)
		if r == nil || err != nil {
			return err
		}
		past, err = t.events(r.number)
		return err
	})
	return past, err
}

// AwaitEnd implements [provider.Awaiter]. It does not poll. An instance that is
// purged or started again has ended, too, and one that is not known.
func (h *Hub) AwaitEnd(ctx context.Context, id string) error {
	ended, cancel := h.awaitEnd(id)
	defer cancel()
	// Read only now: an end that comes later closes the channel.
	s, err := h.Instance(ctx, id, provider.Fetch{})
	if err != nil || s.Status.IsTerminal() {
		return err
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-h.closing:
		return ErrClosed
	}
}

// noInstance is an ID that no instance has.
const noInstance = "@@check"

// Check implements [provider.Checker]. The file must be in its place. If a group of
// changes could not be written, and none as large could since, there must be room
// for it, and a write that changes nothing must succeed.
func (h *Hub) Check(ctx context.Context) error {
	if err := h.file.CheckPlace(); err != nil {
		return err
	}
	apply := func(*txn) error { return nil }
	if h.store.Unwritten() > 0 {
		apply = func(t *txn) error {
			if err := h.store.Reserve(); err != nil {
				return err
			}
			t.Remove(instancesTable, []byte(noInstance))
			t.Then(h.store.SetWritten)
			return nil
		}
	}
	return h.writer.Do(ctx, apply)
}

// IsBusy implements [provider.Checker].
func (h *Hub) IsBusy() bool { return false }

// Purge implements [provider.Purger]. Messages for the instance are deleted with
// it. Activities that were scheduled still run.
func (h *Hub) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	return h.writer.Do(ctx, func(t *txn) error { return t.purge(id, seen) })
}

// Rewind implements [provider.Rewinder], as one transaction.
func (h *Hub) Rewind(ctx context.Context, id, reason string) error {
	at := time.Now()
	var plan *provider.RewindPlan
	err := h.writer.Do(ctx, func(t *txn) (err error) {
		plan, err = t.rewind(ctx, id, reason, at)
		return err
	})
	if err != nil {
		return err
	}
	for _, x := range plan.Executions {
		h.log.Info("instance rewound", "event", "FunctionRewound", "instanceId", x.Instance.InstanceID, "executionId", x.Instance.ExecutionID, "reason", reason)
	}
	return nil
}

// Run implements [provider.Worker]. An idle hub does nothing: Run sleeps until the
// next timer is due, or until there is one.
func (h *Hub) Run(ctx context.Context) error { return h.run(ctx) }

// IsSole implements [provider.Sole]: one process has the file.
func (h *Hub) IsSole() bool { return true }

// NextOrchestration implements [provider.Worker].
func (h *Hub) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	for {
		s := &session{h: h, changed: make(chan struct{}, 1)}
		if err := h.lockInstance(ctx, s); err != nil {
			return nil, err
		}
		item, err := s.open()
		if item != nil {
			return item, nil
		}
		if err != nil {
			h.log.Error("instance cannot be read; it is held back", "instanceId", s.inst.id, "error", err)
			s.abandon(nil)
		}
		s.end()
		if errors.Is(err, ErrClosed) {
			return nil, err
		}
	}
}

// NextActivity implements [provider.Worker].
func (h *Hub) NextActivity(ctx context.Context) (*provider.ActivityWorkItem, error) {
	for {
		l := &activityLock{h: h}
		if err := h.lockActivity(ctx, l); err != nil {
			return nil, err
		}
		item, err := l.item()
		if err == nil {
			return item, nil
		}
		h.log.Error("activity cannot be read; it is held back", "activity", l.a.number, "error", err)
		l.abandon(nil)
		if errors.Is(err, ErrClosed) {
			return nil, err
		}
	}
}

// checkIdle returns an error while Run runs.
func (h *Hub) checkIdle() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running {
		return fmt.Errorf("%s: %w", h.path, provider.ErrHubBusy)
	}
	return nil
}

// Export implements [provider.Portable]. It sees one state of the hub, and reads
// records one at a time.
func (h *Hub) Export(ctx context.Context, w provider.HubWriter, _ provider.ExportOptions) error {
	if err := h.checkIdle(); err != nil {
		return err
	}
	return h.scan("export task hub", func(t tables) error {
		if err := t.exportInstances(ctx, w); err != nil {
			return err
		}
		if err := t.exportActivities(ctx, w); err != nil {
			return err
		}
		return t.exportMessages(ctx, w)
	})
}

// Import implements [provider.Portable]. A hub whose import failed looks like a
// complete one: import into a file of another name, and rename it afterwards.
func (h *Hub) Import(ctx context.Context, fill func(provider.HubWriter) error) error {
	if err := h.checkIdle(); err != nil {
		return err
	}
	var empty bool
	err := h.read("look into task hub", func(t tables) (err error) {
		empty, err = t.isEmpty()
		return err
	})
	if err != nil {
		return err
	}
	if !empty {
		return fmt.Errorf("%s: %w", h.path, provider.ErrHubNotEmpty)
	}
	im := &importer{h: h}
	if err := fill(im); err != nil {
		return err
	}
	return im.flush(ctx)
}

// Totals implements [provider.Portable].
func (h *Hub) Totals(ctx context.Context) (totals provider.Totals, err error) {
	err = h.scan("count task hub", func(t tables) error {
		totals, err = t.totals(ctx)
		return err
	})
	return totals, err
}
