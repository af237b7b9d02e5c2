package taskhub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
)

// Timeouts and delays of attempts to reach the storage.
const (
	probeTimeout  = 10 * time.Second
	probeDelayMin = time.Second
	MaxProbeDelay = 10 * time.Second // the longest delay between two attempts

	// heldTimeout limits how long requests wait for a file that another process holds. That process
	// may be about to exit.
	heldTimeout = 8 * time.Second
	heldDelay   = 100 * time.Millisecond

	// complainInterval is the interval at which the log repeats why the app cannot serve.
	complainInterval = time.Minute
)

// A Hub runs in the background of a server. It waits for the storage and then runs the worker.
type Hub struct {
	Name           string
	Client         Client
	Worker         *durable.Worker
	State          *Readiness
	Logger         *slog.Logger
	Notice         string // logged at start, unless empty
	File           *File  // set only if the hub is in a local file
	IsPartitionLog bool   // the hub is in partition logs
	// Closer, if not nil, closes the hub.
	Closer io.Closer
}

// Run runs the hub until ctx ends and the worker has stopped. It returns the worker's error.
func (h *Hub) Run(ctx context.Context) error {
	if h.Notice != "" {
		h.Logger.Info(h.Notice)
	}
	if !h.awaitStorage(ctx) {
		return nil
	}
	h.State.SetReady()
	err := h.Worker.Run(ctx)
	if ctx.Err() != nil {
		return err
	}
	if err == nil {
		err = errors.New("the worker stopped unexpectedly")
	}
	reason := fmt.Sprintf("Task hub %q has stopped: %s. Correct the cause and restart the app.", h.Name, secrets.Line(err))
	h.ReportUnavailableUntil(ctx, reason)
	return nil
}

// awaitStorage probes the storage until it answers. A successful probe creates the hub. It returns
// false if ctx ends first.
func (h *Hub) awaitStorage(ctx context.Context) bool {
	var complained time.Time
	began := time.Now()
	for delay := probeDelayMin; ; delay = min(2*delay, MaxProbeDelay) {
		err := h.probe(ctx)
		switch {
		case IsHeld(err) && time.Since(began) < heldTimeout:
			delay = heldDelay / 2
			if !Pause(ctx, heldDelay) {
				return false
			}
			continue
		case isLasting(err) || h.IsPartitionLog && isWrongHub(err):
			h.ReportUnavailableUntil(ctx, fmt.Sprintf("Task hub %q cannot be used: %s. Correct the cause and restart the app.", h.Name, secrets.Line(err)))
			return false
		case err == nil && !complained.IsZero():
			h.Logger.Info("connected to storage again", "taskHub", h.Name)
			return true
		case err == nil:
			h.Logger.Info("connected to storage", "taskHub", h.Name)
			return true
		case ctx.Err() != nil:
			return false
		}
		reason := fmt.Sprintf("The storage of task hub %q cannot be used: %s. The app retries every few seconds.", h.Name, secrets.Line(err))
		h.State.SetUnavailable(reason)
		if time.Since(complained) >= complainInterval {
			complained = time.Now()
			h.Logger.Error("the storage cannot be used; all calls get status 503", "taskHub", h.Name, "reason", reason)
		}
		if IsHeld(err) {
			delay = probeDelayMin // the file may be released at any moment
		}
		if !Pause(ctx, delay) {
			return false
		}
	}
}

func (h *Hub) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if h.File != nil {
		if err := h.File.Open(); err != nil {
			return err
		}
	}
	return h.Client.probe(ctx)
}

// SetContact stores the URL of this process's management API in the hub's file. Other processes that
// find the file in use send their requests there.
func (h *Hub) SetContact(url string) {
	if h != nil && h.File != nil {
		h.File.cfg.Contact = url
	}
}

// Close closes the hub. h may be nil.
func (h *Hub) Close() error {
	if h == nil || h.Closer == nil {
		return nil
	}
	return h.Closer.Close()
}

// isWrongHub reports whether err means that the hub in partition logs does not match the configuration.
// In queues and tables a different partition count may be temporary, because .NET creates partitions
// one by one.
func isWrongHub(err error) bool {
	_, count := errors.AsType[*azurestorage.PartitionCountError](err)
	_, format := errors.AsType[*partitionlog.FormatError](err)
	return count || format
}

// IsHeld reports whether err means that another process holds the hub's file. When the Functions host
// restarts an app, the previous process may still be running.
func IsHeld(err error) bool {
	_, held := errors.AsType[*embedded.HeldError](err)
	return held
}

// ReportUnavailableUntil marks the app as unavailable for a reason, and logs the reason regularly until
// ctx ends.
func (h *Hub) ReportUnavailableUntil(ctx context.Context, reason string) {
	h.State.SetUnavailable(reason)
	for {
		h.Logger.Error("all calls get status 503", "taskHub", h.Name, "reason", reason)
		if !Pause(ctx, complainInterval) {
			return
		}
	}
}

// Pause waits for d. It returns false if ctx ends first. Package durable/internal/pause does the same,
// but only packages below durable may import it.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// An UnavailableError reports why the app cannot serve requests.
type UnavailableError struct{ Reason string }

// Error returns the reason, a sentence.
func (e *UnavailableError) Error() string { return e.Reason }

// A Readiness tracks whether the app can serve and, if not, why. An app is starting until the first
// attempt to reach the storage has succeeded or failed.
type Readiness struct {
	mu       sync.Mutex // guards the fields below
	starting bool
	reason   string // empty if ready
	decided  chan struct{}
}

// NewReadiness returns the Readiness of an app that is starting.
func NewReadiness() *Readiness {
	return &Readiness{starting: true, reason: "The app is starting.", decided: make(chan struct{})}
}

// SetReady marks the app as ready.
func (r *Readiness) SetReady() { r.decide("") }

// SetUnavailable marks the app as unavailable. The reason is a sentence.
func (r *Readiness) SetUnavailable(reason string) { r.decide(reason) }

func (r *Readiness) decide(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reason = reason
	if r.starting {
		r.starting = false
		close(r.decided)
	}
}

// Check returns nil if the app can serve, otherwise an [*UnavailableError].
func (r *Readiness) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reason == "" {
		return nil
	}
	return &UnavailableError{r.reason}
}

// Await is like [Readiness.Check]. While the app is starting, it waits for at most the given time.
func (r *Readiness) Await(ctx context.Context, most time.Duration) error {
	select {
	case <-r.decided:
		return r.Check()
	default:
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-r.decided:
	case <-timer.C:
	case <-ctx.Done():
	}
	return r.Check()
}
