package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A Hub is a task hub in one file, open in this process.
type Hub struct {
	path      string
	config    Config
	log       *slog.Logger
	store     *store
	opened    time.Time
	crashes   uint64 // how often a process died that had the file
	writer    *writer
	numbers   atomic.Uint64 // the last number given to a message or an activity
	unwritten atomic.Int64  // bytes of the largest write that did not reach the disk since one as large did

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
	st, gen, err := openStore(path, cfg)
	if err != nil {
		return nil, fmt.Errorf("open task hub %s: %w", path, err)
	}
	h := &Hub{
		path:          path,
		config:        cfg,
		log:           cfg.Logger,
		store:         st,
		opened:        time.Now(),
		crashes:       gen.crashes,
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
	h.numbers.Store(gen.opens << 40)
	if err := h.recall(); err != nil {
		_ = st.db.Close() // the error to report is the one that came before
		_ = st.journal.close()
		return nil, fmt.Errorf("open task hub %s: %w", path, err)
	}
	st.startFlusher()
	h.writer = newWriter(h)
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
	kept := h.writer.close(h.keepDeliveries)
	if err := errors.Join(kept, h.store.close(), removeOwner(h.path)); err != nil {
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
		record, err := t.must(activitiesTable, numberKey(a.number))
		if err != nil {
			return err
		}
		_, message, err := decodeActivityHead(record)
		if err != nil {
			return err
		}
		head := activityHead{crashes: h.crashes, deliveries: uint64(a.earlier + a.deliveries)}
		t.put(activitiesTable, numberKey(a.number), encodeActivity(head, message))
	}
	return nil
}

// serves reports whether work may be handed out. It asks Run's context itself,
// since Run may not have noticed its end. mu is locked.
func (h *Hub) serves() bool { return h.running && !h.closed && h.ended() == nil }

// read runs f in a transaction that sees one state of the hub.
func (h *Hub) read(what string, f func(*tables) error) error {
	err := h.store.wasThere()
	if err == nil {
		err = h.store.view(nil, f)
	}
	if err == nil || errors.Is(err, provider.ErrInstanceNotFound) {
		return err
	}
	return fmt.Errorf("%s: %w", what, h.damage(err))
}

// damage returns err as a *CorruptError if the file is to blame for it.
func (h *Hub) damage(err error) error {
	var record *damageError
	var panicked *panicError
	switch {
	case errors.As(err, &panicked):
		h.log.Error("the database panicked", "path", h.path, "error", panicked, "stack", string(panicked.stack))
		return &CorruptError{Path: h.path, Cause: err}
	case errors.As(err, &record):
		return &CorruptError{Path: h.path, Cause: err}
	}
	return err
}
