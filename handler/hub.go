package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
)

// How the storage of the hub is tried until it answers.
const (
	probeTimeout  = 10 * time.Second
	probeDelayMin = time.Second
	probeDelayMax = 10 * time.Second

	// heldPatience is how long a file that another process has counts as one
	// that is about to be free: requests wait meanwhile.
	heldPatience = 8 * time.Second
	heldDelay    = 100 * time.Millisecond

	// complainEvery is how often the log repeats why nothing works.
	complainEvery = time.Minute
)

// A worker runs functions until its context ends. *durable.Worker is one.
type worker interface {
	Run(ctx context.Context) error
}

var _ worker = (*durable.Worker)(nil)

// A hub is the part of the server that works in the background: it waits for
// the storage and then runs the app's functions.
type hub struct {
	name   string
	client outageClient
	worker worker
	state  *readiness
	logger *slog.Logger
	notice string   // says where the hub is; may be empty
	file   *fileHub // if it is in a local file
}

// run works until ctx ends and all that ran is handed back. It returns an error
// only if that did not go well.
func (h *hub) run(ctx context.Context) error {
	if h.notice != "" {
		h.logger.Info(h.notice)
	}
	if !h.awaitStorage(ctx) {
		return nil
	}
	h.state.ready()
	err := h.worker.Run(ctx)
	if ctx.Err() != nil {
		return err
	}
	if err == nil {
		err = errors.New("the worker ended by itself")
	}
	reason := fmt.Sprintf("Task hub %q cannot be worked on: %s. Restart the app when this is mended.", h.name, secrets.Line(err))
	h.complainUntil(ctx, reason)
	return nil
}

// awaitStorage tries the storage until it answers, which makes the hub exist,
// or until ctx ends.
func (h *hub) awaitStorage(ctx context.Context) bool {
	var complained time.Time
	began := time.Now()
	for delay := probeDelayMin; ; delay = min(2*delay, probeDelayMax) {
		err := h.probe(ctx)
		switch {
		case isHeld(err) && time.Since(began) < heldPatience:
			delay = heldDelay / 2
			if !pause(ctx, heldDelay) {
				return false
			}
			continue
		case isLasting(err):
			h.complainUntil(ctx, fmt.Sprintf("Task hub %q cannot be used: %s. Restart the app when this is mended.", h.name, secrets.Line(err)))
			return false
		case err == nil && !complained.IsZero():
			h.logger.Info("storage answers again", "taskHub", h.name)
			return true
		case err == nil:
			h.logger.Info("storage answers", "taskHub", h.name)
			return true
		case ctx.Err() != nil:
			return false
		}
		reason := fmt.Sprintf("The storage of task hub %q cannot be used: %s. It is tried again every few seconds.", h.name, secrets.Line(err))
		h.state.unavailable(reason)
		if time.Since(complained) >= complainEvery {
			complained = time.Now()
			h.logger.Error("no storage, all calls are answered with status 503", "taskHub", h.name, "reason", reason)
		}
		if isHeld(err) {
			delay = probeDelayMin // it is free at any moment
		}
		if !pause(ctx, delay) {
			return false
		}
	}
}

func (h *hub) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if h.file != nil {
		if err := h.file.open(); err != nil {
			return err
		}
	}
	return h.client.probe(ctx)
}

// setContact records where the management API of this process is in a hub's file, for
// other processes that find the file in use.
func (h *hub) setContact(url string) {
	if h != nil && h.file != nil {
		h.file.cfg.Contact = url
	}
}

// close closes the hub if it is in a file.
func (h *hub) close() error {
	if h == nil || h.file == nil {
		return nil
	}
	return h.file.close()
}

// isHeld reports whether another process has the hub's file. When the Functions
// host restarts an app, the process before may live for a moment.
func isHeld(err error) bool {
	_, held := errors.AsType[*embedded.HeldError](err)
	return held
}

// complainUntil makes every call fail with reason and repeats it in the log
// until ctx ends.
func (h *hub) complainUntil(ctx context.Context, reason string) {
	h.state.unavailable(reason)
	for {
		h.logger.Error("all calls are answered with status 503", "taskHub", h.name, "reason", reason)
		if !pause(ctx, complainEvery) {
			return
		}
	}
}

// pause waits for d; false means that ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
