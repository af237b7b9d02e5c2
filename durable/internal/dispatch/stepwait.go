package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A stepWait is the wait of a session for messages and for the results of its steps. The session holds no
// slot for orchestrations meanwhile, and is not among the idle sessions.
type stepWait struct {
	*orchestrationSession
	counted chan struct{} // the place of a waiting session; nil if it has none
	leaves  bool          // the session must leave its instance
	late    bool          // the time of the hand-over is over
}

// await returns none if the session must end. It then waits until no step runs, and returns the instance to
// the hub.
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
			cancel() // the wake-up ends with the next delivery of a suspended instance
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
			return messages, w.steps.take(false) // the messages may suspend the instance: then no step starts
		}
	}
}

// count counts the session as waiting, for polls if all its steps are waiting polls, or else for a slot,
// and releases its slot for orchestrations. It returns false if too many sessions wait.
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

// mayRest reports whether the session can end until a poll is due. A poll that is due soon waits in
// memory, unless the session must leave. A step that was interrupted needs the wake-up of running steps.
func (w *stepWait) mayRest(state stepState, leaves bool) bool {
	return !state.poll.IsZero() && w.live.io.Err() == nil && w.x.live.OpenSteps() == state.waiting+len(w.steps.sleeping) &&
		(leaves || !state.left && state.poll.Sub(w.d.config.Now()) > pollStay)
}

// rest makes all waiting polls sleep, and ends the session. The message that it stores replaces the
// wake-up of running steps. It returns false if a poll has become due.
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

// nextMessages waits for messages until ctx ends. It stores a deferred checkpoint that has waited
// for too long, or that the provider needs to know that steps run. It reports whether the session must
// leave its instance.
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

// awaitReturn waits until ctx ends, because a step has ended. If the worker hands the instance over,
// it ends the contexts of the steps in time. It reports whether the time is over.
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

// giveBack returns the instance to the hub, which delivers it again after giveBackDelay. If a step was
// set aside, it is delivered later.
func (w *stepWait) giveBack(aside *unknownFunctionError) {
	if aside != nil {
		w.refuse(aside, nil)
		return
	}
	w.endSteps(errHandover)
	w.abandon(&provider.RetryAtError{Cause: errHandover, At: w.d.config.Now().Add(giveBackDelay)})
}
