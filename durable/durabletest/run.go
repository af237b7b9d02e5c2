package durabletest

import (
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Advance lets d pass, and with it all that happens in that time and at its end.
func (h *Hub) Advance(d time.Duration) {
	h.t.Helper()
	defer h.enter("Advance")()
	h.advance(h.Now().Add(max(d, 0)))
}

// AdvanceTo is [Hub.Advance] until a time, which must not have passed.
func (h *Hub) AdvanceTo(t time.Time) {
	h.t.Helper()
	if t.Before(h.Now()) {
		h.t.Fatalf("durabletest: AdvanceTo(%s): the hub's time is %s, and does not go back", stamp(t), stamp(h.Now()))
	}
	h.Advance(t.Sub(h.Now()))
}

// enter notes that the hub runs, until the function that it returns is called.
func (h *Hub) enter(call string) (leave func()) {
	h.t.Helper()
	if !h.tryEnter() {
		h.t.Fatalf("durabletest: %s was called while the hub runs: by an activity, by an orchestrator, by a function given to After or by another goroutine; "+
			"there, only what does not wait can be done", call)
	}
	return h.leave
}

func (h *Hub) tryEnter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running {
		return false
	}
	h.running = true
	return true
}

func (h *Hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running = false
}

// settle lets everything happen that can happen now. If the hub runs, it is left
// to whoever runs it.
func (h *Hub) settle() {
	h.t.Helper()
	if h.tryEnter() {
		defer h.leave()
		h.advance(h.Now())
	}
}

// advance lets time pass until a given time.
func (h *Hub) advance(until time.Time) {
	h.t.Helper()
	turns := h.turns(nil)
	for {
		next := turns.take()
		switch {
		case next.IsZero(), next.After(until):
			h.set(until)
			return
		default:
			h.set(next)
		}
	}
}

// runUntil lets everything happen until done. It returns false if nothing can
// happen any more.
func (h *Hub) runUntil(done func() bool) bool {
	h.t.Helper()
	turns := h.turns(done)
	for {
		next := turns.take()
		switch {
		case done():
			return true
		case next.IsZero():
			return false
		default:
			h.set(next)
		}
	}
}

func (h *Hub) set(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.After(h.now) {
		h.now = now
	}
}

// turns does what can be done.
type turns struct {
	hub   *Hub
	stop  func() bool // nil: never
	began time.Time
	most  int // episodes
	ran   int
}

func (h *Hub) turns(stop func() bool) *turns {
	t := &turns{hub: h, stop: stop, began: h.Now(), most: h.MaxEpisodes}
	if t.most == 0 {
		t.most = DefaultMaxEpisodes
	}
	return t
}

// take does all that can be done at the hub's time, and returns when there is
// something to do next, zero if never.
func (t *turns) take() (next time.Time) {
	t.hub.t.Helper()
	for {
		if t.stop != nil && t.stop() {
			return time.Time{}
		}
		var did bool
		if did, next = t.one(); !did {
			return next
		}
	}
}

// one does the first thing that can be done. If there is none, next is when
// there is.
func (t *turns) one() (did bool, next time.Time) {
	h := t.hub
	h.t.Helper()
	do, next := h.appointment()
	if do != nil {
		do()
		return true, time.Time{}
	}
	if a, at := h.store.TryActivity(); a != nil {
		h.activity(a)
		return true, time.Time{}
	} else {
		next = earlier(next, at)
	}
	item, at := h.store.TryOrchestration()
	if item == nil {
		return false, earlier(next, at)
	}
	if t.ran == t.most {
		h.t.Fatalf("durabletest: %d episodes have run, for %v of the hub's time, and there is no end; the last was of instance %q.\n"+
			"Does an orchestrator go on for ever? Let time pass by Advance instead of waiting, terminate it by After, or raise Hub.MaxEpisodes.",
			t.ran, h.Now().Sub(t.began), item.Instance.InstanceID)
	}
	t.ran++
	if history.IsEntity(item.Instance.InstanceID) {
		h.entity(item)
	} else {
		h.episode(item)
	}
	return true, time.Time{}
}

// earlier returns the earlier of two times, where zero is later than all.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// stepper is what runs an instance.
type stepper = *dispatch.Stepper

// episode runs an instance's next episode.
func (h *Hub) episode(item *provider.OrchestrationWorkItem) {
	h.t.Helper()
	i := h.inMemory(item.Instance)
	cp, dropped, err := i.Step(h.functions(), item)
	if err != nil {
		h.t.Fatalf("%s", refused(item, err))
	}
	for _, d := range dropped {
		h.t.Logf("durabletest: instance %q took no notice of a message: %s", item.Instance.InstanceID, d)
	}
	if err := item.Session.Commit(h.ctx, cp); err != nil {
		h.t.Fatalf("durabletest: instance %q: commit: %v", item.Instance.InstanceID, err)
	}
	if err := item.Session.Release(h.ctx); err != nil {
		h.t.Fatalf("durabletest: instance %q: release: %v", item.Instance.InstanceID, err)
	}
	h.logPanic(item.Instance.InstanceID, cp)
	if i.Ended() {
		i.Close()
		delete(h.instances, item.Instance.InstanceID)
		return
	}
	i.noteWaits(h.Now())
}

// inMemory returns what runs an execution.
func (h *Hub) inMemory(execution history.OrchestrationInstance) *instance {
	id := execution.InstanceID
	i := h.instances[id]
	if i != nil && i.Instance() != execution {
		i.Close() // somebody else has the ID now
		i = nil
	}
	if i == nil {
		i = &instance{stepper: dispatch.NewStepper(h.Now)}
		i.Ran = h.check
		h.instances[id] = i
	}
	return i
}

// noteWaits remembers since when the instance waits for external events.
func (i *instance) noteWaits(now time.Time) {
	var waits []*replay.Future
	if i.Live() != nil {
		waits = i.Live().EventWaits()
	}
	since := make(map[*replay.Future]time.Time, len(waits))
	for _, f := range waits {
		if since[f] = i.waits[f]; since[f].IsZero() {
			since[f] = now
		}
	}
	i.waits = since
}

// refused says why an instance could not be run.
func refused(item *provider.OrchestrationWorkItem, err error) string {
	events := item.History
	for _, m := range item.Messages {
		events = append(events[:len(events):len(events)], m.Event)
	}
	for _, e := range events {
		if start, ok := e.(*history.ExecutionStarted); ok && dispatch.IsUnknownFunction(err) {
			return fmt.Sprintf("durabletest: instance %q%s is of orchestrator %q, and no orchestrator of this name is registered; give its Function to New",
				start.Instance.InstanceID, parentage(start), start.Name)
		}
	}
	return fmt.Sprintf("durabletest: instance %q: %v", item.Instance.InstanceID, err)
}

func parentage(start *history.ExecutionStarted) string {
	if start.Parent == nil {
		return ""
	}
	return ", a child of " + start.Parent.Name + " " + quote(start.Parent.Instance.InstanceID) + ","
}

// logPanic logs the stack of an orchestrator that ended by a panic.
func (h *Hub) logPanic(id string, cp *provider.Checkpoint) {
	h.t.Helper()
	for _, e := range cp.NewEvents {
		if end, ok := e.(*history.ExecutionCompleted); ok && end.Failure != nil && end.Failure.StackTrace != nil {
			h.t.Logf("durabletest: the orchestrator of instance %q ended by a panic: %s\n%s", id, end.Failure, *end.Failure.StackTrace)
		}
	}
}
