package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// How the storage of the hub is tried until it answers.
const (
	probeTimeout  = 10 * time.Second
	probeDelayMin = time.Second
	probeDelayMax = 10 * time.Second

	// complainEvery is how often the log repeats why nothing works.
	complainEvery = time.Minute
)

// probeID is asked for to see whether the storage answers. No instance can
// have it.
const probeID = durable.InstanceID("@@probe")

// A worker runs functions until its context ends. *durable.Worker is one.
type worker interface {
	Run(ctx context.Context) error
}

var _ worker = (*durable.Worker)(nil)

// A hub is the part of the server that works in the background: it waits for
// the storage and then runs the app's functions.
type hub struct {
	name      string
	instances instances
	worker    worker
	state     *readiness
	logger    *slog.Logger
}

// run works until ctx ends and all that ran is handed back. It returns an error
// only if that did not go well.
func (h *hub) run(ctx context.Context) error {
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
	reason := fmt.Sprintf("Task hub %q cannot be worked on: %s. Restart the app when this is mended.", h.name, oneLine(err))
	h.complainUntil(ctx, reason)
	return nil
}

// awaitStorage tries the storage until it answers, which makes the hub exist,
// or until ctx ends.
func (h *hub) awaitStorage(ctx context.Context) bool {
	var complained time.Time
	for delay := probeDelayMin; ; delay = min(2*delay, probeDelayMax) {
		err := h.probe(ctx)
		switch {
		case err == nil && !complained.IsZero():
			h.logger.Info("storage answers again", "taskHub", h.name)
			return true
		case err == nil:
			h.logger.Info("storage answers", "taskHub", h.name)
			return true
		case ctx.Err() != nil:
			return false
		}
		reason := fmt.Sprintf("The storage of task hub %q cannot be used: %s. It is tried again every few seconds.", h.name, oneLine(err))
		h.state.unavailable(reason)
		if time.Since(complained) >= complainEvery {
			complained = time.Now()
			h.logger.Error("no storage, all calls are answered with status 503", "taskHub", h.name, "reason", reason)
		}
		if !pause(ctx, delay) {
			return false
		}
	}
}

func (h *hub) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := h.instances.Status(ctx, probeID, provider.Fetch{})
	if errors.Is(err, durable.ErrInstanceNotFound) {
		return nil
	}
	return err
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
