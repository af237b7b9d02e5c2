package embedded

import (
	"context"
	"errors"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
)

var errRunning = errors.New("task hub is running already")

// maxSleep is the longest time between two looks at the clock while an alarm is
// set: the clock may have been set, or the machine may have slept, which timers
// do not see.
const maxSleep = time.Minute

// Run implements [provider.Worker]. An idle hub does nothing: Run sleeps until
// the next timer is due, or until there is one.
func (h *Hub) Run(ctx context.Context) error {
	h.mu.Lock()
	switch {
	case h.closed:
		h.mu.Unlock()
		return ErrClosed
	case h.running:
		h.mu.Unlock()
		return errRunning
	}
	h.running, h.ended = true, ctx.Err
	inuse.Tell(ctx, h.inUse)
	post(h.instanceReady)
	post(h.activityReady)
	h.mu.Unlock()

	h.watchClock(ctx)
	h.drain()
	if ctx.Err() == nil {
		return ErrClosed
	}
	return nil
}

// watchClock rings alarms until ctx ends or the hub is closed.
func (h *Hub) watchClock(ctx context.Context) {
	clock := time.NewTimer(maxSleep)
	defer clock.Stop()
	for {
		wait, ok := h.ring()
		var due <-chan time.Time
		if ok {
			clock.Reset(min(wait, maxSleep))
			due = clock.C
		}
		select {
		case <-ctx.Done():
			return
		case <-h.closing:
			return
		case <-h.alarmSet:
		case <-due:
		}
	}
}

// drain waits until what was handed out is dealt with, and takes back the rest
// when the drain timeout has passed.
func (h *Hub) drain() {
	h.mu.Lock()
	drained := make(chan struct{}, 1)
	h.drained = drained
	for s := range h.sessions {
		post(s.arrived) // those that wait for messages get none
	}
	h.checkDrained()
	h.mu.Unlock()

	timeout := time.NewTimer(h.config.DrainTimeout)
	defer timeout.Stop()
	select {
	case <-drained:
	case <-timeout.C:
		h.log.Warn("stopped while work is still handed out; it will be handed out again", "path", h.path)
	case <-h.closing:
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	h.drained = nil
	for s := range h.sessions {
		s.lose()
	}
	for l := range h.locks {
		l.lose()
	}
	h.running = false
}

// checkDrained tells Run if nothing that was handed out is open. mu is locked.
func (h *Hub) checkDrained() {
	if h.drained == nil || len(h.locks) > 0 {
		return
	}
	for s := range h.sessions {
		if len(s.taken) > 0 {
			return
		}
	}
	post(h.drained)
}

// IsSole implements [provider.Sole]: one process has the file.
func (h *Hub) IsSole() bool { return true }
