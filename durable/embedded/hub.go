package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded/internal/hubfile"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A Hub is a task hub in one file, open in this process.
type Hub struct {
	path    string
	config  Config
	log     *slog.Logger
	file    *hubfile.File
	store   *logstore.Store
	opened  time.Time
	writer  *logstore.Writer[*txn]
	numbers atomic.Uint64 // the last number given to a message or an activity

	closing chan struct{} // closed by Close
	// Each of these has room for one token, left when there is something new
	// for those who wait.
	instanceReady, activityReady, alarmSet chan struct{}

	mu        sync.Mutex // protects the following, and what says so
	instances map[string]*instance
	ready     fifo[*instance]
	sessions  map[*session]struct{}

	// awaited holds those who wait for instances to end, by ID.
	awaited map[string]map[chan struct{}]struct{}

	readyActivities fifo[*activity]
	locks           map[*activityLock]struct{}
	delivered       map[*activity]struct{} // handed out since the hub was opened, and not done

	alarms  alarms
	running bool          // Run runs
	ended   func() error  // the Err of Run's context
	drained chan struct{} // set while Run waits for what was handed out
	closed  bool
}

var _ provider.Provider = (*Hub)(nil)

// Open opens the task hub in the file at path, and makes it if there is none.
// While it is open there are files beside it, whose names are the same with the
// suffixes ".journal-0", ".journal-1" and ".owner".
//
// It fails with a *[HeldError] if another process has the file, with a
// *[FormatError] if that is of a newer version, and with a *[CorruptError] if
// it is damaged or something else than a task hub.
func Open(path string, cfg Config) (*Hub, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("open task hub %s: %w", path, err)
	}
	cfg = cfg.WithDefaults()
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open task hub %s: %w", path, err)
	}
	file, err := hubfile.Open(path, hubfile.Options{
		Tables: hubTables, LockTimeout: cfg.LockTimeout, Relaxed: cfg.Relaxed, Contact: cfg.Contact, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("open task hub %s: %w", path, fileError(path, err))
	}
	h := &Hub{
		path:          path,
		config:        cfg,
		log:           cfg.Logger,
		file:          file,
		store:         file.Store(),
		opened:        time.Now(),
		closing:       make(chan struct{}),
		instanceReady: make(chan struct{}, 1),
		activityReady: make(chan struct{}, 1),
		alarmSet:      make(chan struct{}, 1),
		instances:     make(map[string]*instance),
		sessions:      make(map[*session]struct{}),
		awaited:       make(map[string]map[chan struct{}]struct{}),
		locks:         make(map[*activityLock]struct{}),
		delivered:     make(map[*activity]struct{}),
	}
	// No number is ever used again.
	h.numbers.Store(file.Opens << 40)
	if err := h.recall(); err != nil {
		file.Abandon()
		return nil, fmt.Errorf("open task hub %s: %w", path, err)
	}
	h.store.Start()
	h.writer = logstore.NewWriter(h.store, logstore.WriterConfig[*txn]{
		Begin:   func(t *logstore.Txn) *txn { return &txn{Txn: t, tables: tables{t.View}, h: h} },
		Effects: &h.mu,
		Failed:  func(err error) error { return fmt.Errorf("write to task hub %s: %w", path, h.damage(err)) },
	})
	return h, nil
}

// Path returns the name of the hub's file.
func (h *Hub) Path() string { return h.path }

// Close lets what is being written be written, and closes the file. Call it
// when Run has returned; what is still in somebody's hands is taken away.
func (h *Hub) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	close(h.closing)
	for s := range h.sessions {
		s.lose()
	}
	h.mu.Unlock()
	// Read by the next who opens the hub; if it cannot be written, it is as
	// after a crash.
	kept := h.writer.Close(h.keepDeliveries)
	if err := errors.Join(kept, h.store.Close(), h.file.RemoveOwner()); err != nil {
		return fmt.Errorf("close task hub %s: %w", h.path, err)
	}
	return nil
}

// keepDeliveries stores how often activities were handed out that are not done.
// After a crash, any may have been. It must be the hub's last operation: one
// that deleted a record after it was changed here would leave the old one in the
// database.
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

// serves reports whether work may be handed out. It asks Run's context itself,
// since Run may not have noticed its end. mu is locked.
func (h *Hub) serves() bool { return h.running && !h.closed && h.ended() == nil }

// read calls f with the records as they are now.
func (h *Hub) read(what string, f func(tables) error) error {
	err := h.file.WasInPlace()
	if err == nil {
		err = h.store.View(func(v *logstore.View) error { return f(tables{v}) })
	}
	if err == nil || errors.Is(err, provider.ErrInstanceNotFound) {
		return err
	}
	return fmt.Errorf("%s: %w", what, h.damage(err))
}

// damage is fileError, and logs what is worth it.
func (h *Hub) damage(err error) error {
	if panicked, ok := errors.AsType[*hubfile.PanicError](err); ok {
		h.log.Error("the database panicked", "path", h.path, "error", panicked, "stack", string(panicked.Stack))
	}
	return fileError(h.path, err)
}
