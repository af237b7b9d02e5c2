package providertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A world is a hub under test, and what it should hold.
type world struct {
	*bench

	mu sync.Mutex // protects the following
	// histories holds what was committed of each execution.
	histories map[history.OrchestrationInstance][]history.Event
	// taken holds what was committed of messages, to tell those that come twice.
	taken map[string]bool
	// again holds what the test sends twice.
	again map[string]bool
	// held holds the instances that are locked by a work item.
	held map[string]bool
}

func newWorld(t *testing.T, hub Hub) *world {
	t.Helper()
	if hub.Patience == 0 {
		hub.Patience = 20 * time.Second
	}
	if hub.Quiet == 0 {
		hub.Quiet = 100 * time.Millisecond
	}
	w := &world{
		bench:     &bench{T: t, hub: hub, p: hub.Provider},
		histories: make(map[history.OrchestrationInstance][]history.Event),
		taken:     make(map[string]bool),
		again:     make(map[string]bool),
		held:      make(map[string]bool),
	}
	t.Cleanup(func() {
		if w.halt != nil {
			w.halt()
			if err := <-w.stopped; err != nil {
				t.Logf("Run: %v", err)
			}
		}
	})
	return w
}

// running is newWorld's hub with Run called.
func running(f func(*world)) func(*world) {
	return func(w *world) {
		w.start()
		f(w)
	}
}

// reopen stops the hub if it runs, opens it again and runs it.
func (w *world) reopen() {
	w.Helper()
	if w.hub.Reopen == nil {
		w.Skip("the hub cannot be opened again")
	}
	if w.halt != nil {
		w.stop()
	}
	w.use(w.hub.Reopen(w.T))
}

// kill goes on with what is left of the hub when its process dies.
func (w *world) kill() {
	w.Helper()
	if w.hub.Kill == nil {
		w.Skip("the death of a process cannot be had")
	}
	left := w.hub.Kill(w.T)
	if w.halt != nil {
		w.stop()
	}
	w.use(left)
}

func (w *world) use(p provider.Provider) {
	w.p = p
	w.mu.Lock()
	clear(w.held)
	w.mu.Unlock()
	w.start()
}

// try fetches a work item until ctx ends; then it returns none. What is
// handed out is checked against what was committed and what package provider
// promises. Messages that were committed before are disposed of.
func (w *world) try(ctx context.Context) *episode {
	w.Helper()
	for {
		item, err := w.p.NextOrchestration(ctx)
		if err != nil {
			if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
				w.Errorf("NextOrchestration: %v", err)
			}
			return nil
		}
		e := w.check(item)
		if !e.isRepeated() {
			return e
		}
		w.Logf("instance %q was handed out with messages that were committed before", item.Instance.InstanceID)
		e.drop()
	}
}

// next returns the next work item, which must be for the given instance.
func (w *world) next(id string) *episode {
	w.Helper()
	e := w.tryNext(id)
	if e == nil {
		w.Fatalf("instance %q was not handed out within %v", id, w.hub.Patience)
	}
	return e
}

func (w *world) tryNext(id string) *episode {
	w.Helper()
	ctx, cancel := w.patient()
	defer cancel()
	e := w.try(ctx)
	if e != nil && e.item.Instance.InstanceID != id {
		w.Fatalf("instance %q was handed out, want %q", e.item.Instance.InstanceID, id)
	}
	return e
}

// quiet fails the test if an instance is handed out before long.
func (w *world) quiet(why string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), w.hub.Quiet)
	defer cancel()
	if e := w.try(ctx); e != nil {
		w.Fatalf("instance %q was handed out with %s: %s", e.item.Instance.InstanceID, describe(e.item.Messages), why)
	}
}

// idle disposes of what is handed out although nobody may want it, until
// nothing comes for a while. Every item is shown to look first.
func (w *world) idle(look func(*episode)) {
	w.Helper()
	for {
		ctx, cancel := context.WithTimeout(w.Context(), w.hub.Quiet)
		e := w.try(ctx)
		cancel()
		if e == nil {
			return
		}
		look(e)
		e.drop()
	}
}

// check returns an item as an episode, and reports what must not be about it.
func (w *world) check(item *provider.OrchestrationWorkItem) *episode {
	w.Helper()
	id := item.Instance.InstanceID
	switch {
	case item.Session == nil:
		w.Fatalf("the work item of %q has no session", id)
	case len(item.Messages) == 0:
		w.Errorf("the work item of %q has no messages", id)
	}
	for i, m := range item.Messages {
		if m.Event.Type() == history.TypeExecutionStarted && i > 0 && item.Messages[0].Event.Type() != history.TypeExecutionStarted {
			w.Errorf("a start is message %d of %q, want the first", i, id)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held[id] {
		w.Errorf("instance %q was handed out while it is in somebody's hands", id)
	}
	w.held[id] = true
	if diff := cmp.Diff(w.histories[item.Instance], item.History, same); diff != "" {
		w.Errorf("history of the work item of %q (-committed +handed out):\n%s", id, diff)
	}
	e := &episode{w: w, item: item, fresh: item.Messages, past: slices.Clone(item.History)}
	e.checkOrder(item.Messages)
	e.onlyOnce(item.Messages)
	return e
}

// same compares events and messages. Nil maps and empty ones mean the same, and a
// long text and what is left of it where it was cut.
var same = cmp.Options{cmpopts.EquateEmpty(), cmp.FilterValues(isCut, cmp.Ignore())}

func isCut(a, b string) bool {
	if len(a) < len(b) {
		a, b = b, a
	}
	left, cut := strings.CutSuffix(b, provider.CutMark)
	return cut && len(left) > 1<<10 && strings.HasPrefix(a, left)
}

// fingerprint names a message by all that it says.
func fingerprint(m provider.TaskMessage) string {
	b, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("encode %+v: %v", m, err)) // events hold plain data only
	}
	return fmt.Sprintf("%v %s", m.Event.Type(), b)
}

func describe(messages []provider.TaskMessage) string {
	var names []string
	for _, m := range messages {
		names = append(names, m.Event.Type().String())
	}
	return fmt.Sprint(names)
}

// scheduled starts an instance that waits for one activity, and returns it.
func (w *world) scheduled(id string) *provider.ActivityWorkItem {
	w.Helper()
	w.create(id)
	w.next(id).schedule(0, "Activity", text(`"input"`)).finish()
	return w.nextActivity()
}

// copyHub copies the hub, which is stopped for it, and goes on with the copy.
func (w *world) copyHub() provider.Totals {
	w.Helper()
	from, to := w.portable()
	w.rest()
	totals := w.mustCopy(from, to)
	w.use(to.(provider.Provider))
	return totals
}

// stages fills the hub with instances in all stages, and stops it.
func (w *world) stages() {
	w.Helper()
	w.portable() // skips
	w.start()
	w.begin("event")
	w.send(raised("event", "Sent", text(`"before"`)))
	w.next("event").finish()
	w.begin("queued")
	w.send(raised("queued", "Work", nil))
	w.next("queued").schedule(0, "Activity", text(`"input"`)).finish()
	parent := w.create("parent")
	w.next("parent").child(0, childStart("child", "execution of child", parent, 0)).finish()
	w.next("child").finish()
	w.begin("suspended")
	w.send(to("suspended", &history.ExecutionSuspended{Header: history.NewHeader(now()), Reason: text("not now")}))
	w.next("suspended").finish()
	w.begin("generations")
	w.send(raised("generations", "Again", nil))
	w.next("generations").continueAsNew("second execution of generations", text(`"again"`)).finish()
	w.stop()
}

// unchanged disposes of what is handed out to an instance that has ended, as
// the engine does, and checks that it stays as it is.
func (w *world) unchanged(id string, before *provider.InstanceState) {
	w.Helper()
	w.idle(func(e *episode) {
		w.equal("instance that was handed out", e.item.Instance.InstanceID, id)
	})
	w.quiet("its messages were dropped")
	w.equal("state", w.state(id), before)
	w.equal("history", w.history(id), w.histories[before.Instance])
}

// takeUntil commits what comes for an entity until a message does, which must not
// come before it is due.
func (w *world) takeUntil(id string, m provider.TaskMessage, due time.Time) {
	w.Helper()
	for n, came := 0, false; !came; n++ {
		e := w.next(id)
		came = containsMessage(e.fresh, m)
		if early := time.Until(due); came && early > 0 {
			w.Errorf("it was delivered %v before its time", early)
		}
		e.become(fmt.Sprintf("until %d", n), "state").finish()
	}
}

// begin starts an instance and commits an episode that takes its start.
func (w *world) begin(id string) history.OrchestrationInstance {
	w.Helper()
	instance := w.create(id)
	w.next(id).finish()
	return instance
}

// sendAgain sends a message that was sent before, and so may come again.
func (w *world) sendAgain(m provider.TaskMessage) {
	w.Helper()
	w.mu.Lock()
	w.again[fingerprint(m)] = true
	w.mu.Unlock()
	w.send(m)
}

// collect takes work items of an instance, and commits them, until n messages
// have come that are not repeated. It returns them in the order in which they
// came, without the start.
func (w *world) collect(id string, n int) []provider.TaskMessage {
	w.Helper()
	var all []provider.TaskMessage
	for len(all) < n {
		e := w.next(id)
		for _, m := range e.fresh {
			repeated := slices.ContainsFunc(all, func(o provider.TaskMessage) bool { return fingerprint(o) == fingerprint(m) })
			if m.Event.Type() != history.TypeExecutionStarted && !repeated {
				all = append(all, m)
			}
		}
		e.finish()
	}
	return all
}

// purgedLeftovers takes what is handed out yet of a purged instance: without a
// history, or loaded before the purge, and then it cannot be committed.
func (w *world) purgedLeftovers() {
	w.Helper()
	for {
		ctx, cancel := context.WithTimeout(w.Context(), w.hub.Quiet)
		e := w.try(ctx)
		cancel()
		switch {
		case e == nil:
			return
		case len(e.item.History) == 0:
			e.drop()
		default:
			w.refused(e)
		}
	}
}

// failing starts an instance that fails when its activity does.
func (w *world) failing(id string) history.OrchestrationInstance {
	w.Helper()
	a := w.scheduled(id)
	w.complete(a, &history.TaskFailed{Header: history.NewHeader(now()), TaskScheduledID: 0, Reason: text("it broke")})
	w.next(id).end(history.Failed, text("it broke")).finish()
	return a.Instance
}

// rewindPlan returns what package provider plans for an instance, and expects
// it to be carried out.
func (w *world) rewindPlan(id string) *provider.RewindPlan {
	w.Helper()
	ctx, cancel := w.patient()
	defer cancel()
	plan, err := provider.PlanRewind(ctx, id, "why", now(), w.p.History)
	w.must("PlanRewind", err)
	for _, x := range plan.Executions {
		w.histories[x.Instance] = x.Apply(w.histories[x.Instance])
	}
	return plan
}

// awoken checks that an instance is handed out with what wakes a rewound one.
func (w *world) awoken(id string) *episode {
	w.Helper()
	e := w.next(id)
	for _, m := range e.item.Messages {
		if _, ok := m.Event.(*history.GenericEvent); !ok {
			w.Errorf("%q was handed out with %s", id, fingerprint(m))
		}
	}
	return e
}

// failFamily ends a child with e, and its parent for it.
func (w *world) failFamily(parent history.OrchestrationInstance, e *episode) {
	w.Helper()
	e.cp.Messages = append(e.cp.Messages, provider.TaskMessage{
		Event:  &history.SubOrchestrationInstanceFailed{Header: history.NewHeader(now()), TaskScheduledID: 0, Reason: text("it broke")},
		Target: parent,
	})
	e.finish()
	w.next(parent.InstanceID).end(history.Failed, text("its child broke")).finish()
}

// failingWithTimers has an instance fail, when its activity does, that waits for a
// timer, and has had another one fire. The first must not be due before the instance
// was rewound, on a slow machine either: it is due after many times of what the other
// one took.
func (w *world) failingWithTimers(e *episode) (end *episode) {
	w.Helper()
	id := e.item.Instance.InstanceID
	begun := time.Now()
	e.timer(0, now()).finish()
	w.firings(id, 1)
	delay := min(max(w.hub.Patience/5, 30*time.Since(begun)), w.hub.Patience*3/4)
	w.send(raised(id, "Event", nil))
	w.next(id).timer(1, now().Add(delay)).schedule(2, "Activity", nil).finish()
	w.complete(w.nextActivity(), &history.TaskFailed{Header: history.NewHeader(now()), TaskScheduledID: 2, Reason: text("it broke")})
	return w.next(id).end(history.Failed, text("it broke"))
}

// waitsForTimer checks that of a rewound instance's timers the one fires, once,
// that did not before.
func (w *world) waitsForTimer(id string) {
	w.Helper()
	w.awoken(id).schedule(2, "Activity", nil).finish()
	fired := w.firings(id, 1)[0]
	w.equal("timer that fired", fired.Event.(*history.TimerFired).TimerID, 1)
	w.equal("target", fired.Target, w.state(id).Instance)
	w.quiet("all its timers have fired")
}

// nextOf returns the next work item of an instance; those of others are
// released as they are.
func (w *world) nextOf(id string) *episode {
	w.Helper()
	ctx, cancel := w.patient()
	defer cancel()
	for {
		e := w.try(ctx)
		switch {
		case e == nil:
			w.Fatalf("instance %q was not handed out", id)
		case e.item.Instance.InstanceID == id:
			return e
		}
		e.release()
	}
}

// nextBut returns the next episode of another execution than one that was replaced, which
// a message of its own may bring back until that is known.
func (w *world) nextBut(replaced history.OrchestrationInstance) *episode {
	w.Helper()
	ctx, cancel := w.patient()
	defer cancel()
	for {
		item, err := w.p.NextOrchestration(ctx)
		w.must("NextOrchestration", err)
		if item.Instance != replaced {
			return w.check(item)
		}
		w.must("Release", item.Session.Release(ctx))
	}
}

// race is startAtOnce of an instance that one of the starts must get, and returns the
// first episode of that.
func (w *world) race(id, name string, others ...func()) *episode {
	w.Helper()
	winner := w.startAtOnce(id, name, others...)
	if winner < 0 {
		w.Fatal("none of the starts won")
	}
	e := w.next(id)
	w.isWinner(e, name, winner)
	return e
}

// isWinner checks that what is handed out, and what the hub tells of it, is of the start
// that won.
func (w *world) isWinner(e *episode, name string, winner int) {
	w.Helper()
	id := e.item.Instance.InstanceID
	want := history.OrchestrationInstance{InstanceID: id, ExecutionID: fmt.Sprintf("%s %d", name, winner)}
	w.equal("execution that was handed out", e.item.Instance, want)
	w.equal("execution in the instance's state", w.state(id).Instance, want)
}

// firings takes work items of an instance until n timers have fired, and
// reports those that are early.
func (w *world) firings(id string, n int) []provider.TaskMessage {
	w.Helper()
	var all []provider.TaskMessage
	for len(all) < n {
		e := w.next(id)
		for _, m := range e.fresh {
			fired := m.Event.(*history.TimerFired)
			if early := time.Until(fired.FireAt); early > 0 {
				w.Errorf("timer %d fired %v before its time", fired.TimerID, early)
			}
			if !containsMessage(all, m) {
				all = append(all, m)
			}
		}
		e.finish()
	}
	return all
}

func (w *world) isExact() bool {
	x, ok := w.p.(provider.Exact)
	return ok && x.IsExact()
}

// telling has an entity that got a message make a checkpoint that sends another one.
func (w *world) telling() (e *episode, told provider.TaskMessage) {
	w.Helper()
	w.send(signal(entityID, "tell"))
	told = signal("@told@a", "told")
	return w.next(entityID).become("first", "state").tell(told), told
}

// pause abandons an event so often that the next delivery is later than the suite waits.
func (w *world) pause() (event provider.TaskMessage) {
	w.Helper()
	w.begin("a")
	event = raised("a", "Event", nil)
	w.send(event)
	e := w.next("a")
	abandon := func(cause error) {
		ctx, cancel := w.patient()
		defer cancel()
		w.must("Abandon", e.item.Session.Abandon(ctx, cause))
		e.release()
	}
	short := max(w.hub.AbandonDelay, w.hub.Quiet)
	for delay := short / 2; delay < 2*w.hub.Patience; delay *= 2 {
		abandon(&provider.HeldError{Cause: errAbandoned, Until: time.Now().Add(short)})
		e = w.next("a")
	}
	abandon(errAbandoned)
	return event
}
