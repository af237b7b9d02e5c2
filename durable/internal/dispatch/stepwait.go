package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A stepWait is the wait of a session for messages and for the results of its steps. While it waits, the
// session holds no slot for orchestrations and does not count as idle.
type stepWait struct {
	*orchestrationSession
	counted chan struct{} // the semaphore that counts the session as waiting, or nil
	leaves  bool          // the session must leave its instance
	late    bool          // the time for the handover has passed
}

// await waits for messages or for results of steps. If the session must end, it returns neither. It first
// waits for running steps, at most until the handover or the stop of the worker.
func (w *stepWait) await() (messages []provider.TaskMessage, results []history.Event) {
	defer w.stopCounting()
	for {
		w.leaves = w.leaves || w.live.fetch.Err() != nil
		until := w.live.fetch
		if w.leaves {
			w.steps.leave()
			until = w.live.io
		}
		ctx, cancel := context.WithCancel(until)
		state := w.steps.look(cancel)
		switch {
		case state.records:
			cancel()
			return nil, w.steps.take(true)
		case state.running > 0 && w.live.io.Err() == nil && !w.late:
			w.stopCounting()
			w.releaseSlot()
		case w.mayRest(state, w.leaves) && w.rest():
			cancel()
			return nil, nil
		case w.leaves, state.left, state.aside != nil, w.live.io.Err() != nil, w.isSuspended():
			cancel() // if the instance is suspended, its next delivery removes the wake-up
			w.giveBack(state.aside)
			return nil, nil
		case !w.count(state):
			cancel()
			w.giveWay(state)
			return nil, nil
		}
		if w.leaves || state.left {
			w.leaves, w.late = true, w.awaitReturn(ctx)
		} else {
			messages, w.leaves = w.nextMessages(ctx)
		}
		cancel()
		if w.steps == nil { // a commit has failed, and the instance is returned
			return nil, nil
		}
		if len(messages) > 0 {
			return messages, w.steps.take(false) // without starts, because the messages may suspend the instance
		}
	}
}

// count counts the session as waiting: for polls if all its steps are waiting polls, otherwise for a slot. It
// then releases the session's slot for orchestrations. It returns false if too many sessions wait.
func (w *stepWait) count(state stepState) bool {
	in, before := w.d.waitingForSteps, w.counted
	if !state.poll.IsZero() {
		in = w.d.waitingForPolls
	}
	if in == before {
		return true
	}
	select {
	case in <- struct{}{}:
	default:
		return false
	}
	if w.counted = in; before != nil {
		<-before
	}
	w.releaseSlot()
	return true
}

func (w *stepWait) stopCounting() {
	if w.counted != nil {
		<-w.counted
		w.counted = nil
	}
}

// giveWay ends the session because too many sessions wait.
func (w *stepWait) giveWay(state stepState) {
	if !w.mayRest(state, true) || !w.rest() {
		w.abandon(&provider.RetryAtError{Cause: errNoSlot, At: w.d.config.Now().Add(waitingDelay)})
	}
}

// mayRest reports whether the session may end, so that a message wakes its polls. If a poll is due soon, the
// session stays in memory unless leaves is set. It also stays if a step was interrupted, because only the
// wake-up of running steps makes a worker run that step again.
func (w *stepWait) mayRest(state stepState, leaves bool) bool {
	return !state.poll.IsZero() && w.live.io.Err() == nil && w.x.live.OpenSteps() == state.waiting+len(w.steps.sleeping) &&
		(leaves || !state.left && state.poll.Sub(w.d.config.Now()) > pollStay)
}

// rest makes all waiting polls sleep, so that the session can end. It stores a message that wakes the polls
// and replaces the wake-up of running steps. It returns false if a poll has become due.
func (w *stepWait) rest() bool {
	due, ids := w.steps.rest()
	if len(ids) == 0 {
		return false
	}
	e := w.deferred
	if w.deferred = nil; e == nil {
		e = &deferredCheckpoint{cp: &provider.Checkpoint{Instance: w.x.start.Instance}}
	}
	cp := *e.cp
	cp.StepsRunning = false
	cp.Messages = append(slices.Clip(cp.Messages), provider.WakePolls(w.x.start.Instance, due, ids))
	w.commit(&cp, e, false)
	return true
}

// nextMessages waits for messages until ctx ends. If the wait ends earlier without messages, it stores the
// deferred checkpoint, which also informs the provider of running steps. Without a deferred checkpoint, or
// after an error, leaves is true: the session must leave its instance.
func (w *stepWait) nextMessages(ctx context.Context) (messages []provider.TaskMessage, leaves bool) {
	limit := unlimited
	if w.deferred != nil && len(w.deferred.events) > 0 {
		limit = max(0, w.deferred.until.Sub(w.d.config.Now()))
	}
	messages, err := w.item.Session.Next(ctx, limit)
	switch {
	case len(messages) > 0 || ctx.Err() != nil:
		return messages, false
	case err != nil:
		w.log.Warn("cannot wait for the instance's next messages", "error", err)
		return nil, true
	case w.deferred != nil:
		e := w.deferred
		w.deferred = nil
		return nil, !w.commit(e.cp, e, false)
	}
	return nil, true
}

// awaitReturn waits until a step has ended, which ends ctx. If the worker hands the instance over, it cancels
// the contexts of the steps handoverReserve before the deadline. It returns true if the deadline has passed.
func (w *stepWait) awaitReturn(ctx context.Context) (late bool) {
	holder, ok := w.item.Session.(provider.Holder)
	if !ok {
		<-ctx.Done()
		return false
	}
	look := time.NewTicker(handoverReserve / 4)
	defer look.Stop()
	for {
		left, ok := holder.Leaves()
		if ok && left <= handoverReserve {
			w.steps.cancel(errHandover)
		}
		if ok && left <= 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-look.C:
		}
	}
}

// giveBack abandons the instance. The hub redelivers it after giveBackDelay, or later if a step is set aside.
func (w *stepWait) giveBack(aside *unknownFunctionError) {
	if aside != nil {
		w.refuse(aside, nil)
		return
	}
	w.endSteps(errHandover)
	w.abandon(&provider.RetryAtError{Cause: errHandover, At: w.d.config.Now().Add(giveBackDelay)})
}
