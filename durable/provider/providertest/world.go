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

// world is a hub under test with a model of its expected contents.
type world struct {
	*bench

	mu sync.Mutex // guards the fields below
	// histories holds the committed history of each execution.
	histories map[history.OrchestrationInstance][]history.Event
	// consumed holds the fingerprints of committed messages, to detect redelivered messages.
	consumed map[string]bool
	// resent holds the fingerprints of messages that the test sends twice on purpose.
	resent map[string]bool
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
		consumed:  make(map[string]bool),
		resent:    make(map[string]bool),
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

// running returns a test that calls Run before f.
func running(f func(*world)) func(*world) {
	return func(w *world) {
		w.start()
		f(w)
	}
}

// reopen stops the hub if it is running, opens it again and calls Run.
func (w *world) reopen() {
	w.Helper()
	if w.hub.Reopen == nil {
		w.Skip("Hub.Reopen is nil")
	}
	if w.halt != nil {
		w.stop()
	}
	w.use(w.hub.Reopen(w.T))
}

// kill simulates a crash of the process and continues with the remaining hub.
func (w *world) kill() {
	w.Helper()
	if w.hub.Kill == nil {
		w.Skip("Hub.Kill is nil")
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

// try returns the next work item, nil if ctx ends first. It checks the item against the
// committed state and the rules of package provider. It discards work items that contain only
// messages committed before.
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
		w.Logf("instance %q was dispatched with messages that were committed before", item.Instance.InstanceID)
		e.discard()
	}
}

// next returns the next work item, which must be for the given instance.
func (w *world) next(id string) *episode {
	w.Helper()
	e := w.tryNext(id)
	if e == nil {
		w.skipIfLate()
		w.Fatalf("instance %q was not dispatched within %v", id, w.hub.Patience)
	}
	return e
}

func (w *world) tryNext(id string) *episode {
	w.Helper()
	ctx, cancel := w.patient()
	defer cancel()
	e := w.try(ctx)
	if e != nil && e.item.Instance.InstanceID != id {
		w.Fatalf("instance %q was dispatched, want %q", e.item.Instance.InstanceID, id)
	}
	return e
}

// woken returns the next work item, which must contain nothing but a wake-up of the given instance.
func (w *world) woken(id string) *episode {
	w.Helper()
	ctx, cancel := w.patient()
	defer cancel()
	item, err := w.p.NextOrchestration(ctx)
	if err != nil {
		w.Fatalf("instance %q was not woken: %v", id, err)
	}
	e := w.check(item)
	if item.Instance.InstanceID != id {
		w.Fatalf("instance %q was dispatched, want %q", item.Instance.InstanceID, id)
	}
	for _, m := range item.Messages {
		start, isStart := m.Event.(*history.ExecutionStarted)
		if _, polls := m.WokenPolls(); !m.WakesSteps() && polls == nil && (!isStart || start.Instance != item.Instance) {
			w.Errorf("%q was dispatched with more than a wake-up: %s", id, describe(item.Messages))
		}
	}
	e.fresh = nil // the engine records no wake-up
	return e
}

// polled returns the next work item, which must contain nothing but the wake-up of the given polls of an
// instance, and not early. It discards other wake-ups.
func (w *world) polled(id string, ids ...int) *episode {
	w.Helper()
	for {
		e := w.next(id)
		var woken []int
		for _, m := range e.fresh {
			due, some := m.WokenPolls()
			if early := time.Until(due); early > 0 {
				w.Errorf("the wake-up of polls %v is %v early", some, early)
			}
			woken = append(woken, some...)
		}
		e.fresh = nil                                  // the engine records no wake-up
		if !w.isExact() && !slices.Equal(woken, ids) { // a wake-up of steps may be redelivered once
			e.discard()
			continue
		}
		w.equal("polls", fmt.Sprint(woken), fmt.Sprint(ids))
		return e
	}
}

// quiet fails the test if an instance is dispatched within hub.Quiet.
func (w *world) quiet(why string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), w.hub.Quiet)
	defer cancel()
	if e := w.try(ctx); e != nil {
		w.Fatalf("instance %q was dispatched with %s: %s", e.item.Instance.InstanceID, describe(e.item.Messages), why)
	}
}

// discardUntilQuiet discards all work items until none is dispatched for hub.Quiet. It calls look for each
// of them first.
func (w *world) discardUntilQuiet(look func(*episode)) {
	w.Helper()
	for {
		ctx, cancel := context.WithTimeout(w.Context(), w.hub.Quiet)
		e := w.try(ctx)
		cancel()
		if e == nil {
			return
		}
		look(e)
		e.discard()
	}
}

// check wraps a work item in an episode and reports violations of the contract.
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
		w.Errorf("instance %q was dispatched twice at the same time", id)
	}
	w.held[id] = true
	if diff := cmp.Diff(w.histories[item.Instance], item.History, same); diff != "" {
		w.Errorf("history of the work item of %q (-committed +dispatched):\n%s", id, diff)
	}
	e := &episode{w: w, item: item, fresh: item.Messages, past: slices.Clone(item.History)}
	e.checkOrder(item.Messages)
	e.onlyOnce(item.Messages)
	return e
}

// same compares events and messages. It treats nil and empty maps as equal. It treats a long
// text and its truncated form as equal.
var same = cmp.Options{cmpopts.EquateEmpty(), cmp.FilterValues(isCut, cmp.Ignore())}

func isCut(a, b string) bool {
	if len(a) < len(b) {
		a, b = b, a
	}
	left, cut := strings.CutSuffix(b, provider.TruncationMark)
	return cut && len(left) > 1<<10 && strings.HasPrefix(a, left)
}

// fingerprint identifies a message by its full contents.
func fingerprint(m provider.TaskMessage) string {
	b, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("encode %+v: %v", m, err)) // unreachable: events are plain data
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

// scheduled starts an instance that waits for one activity, and returns the activity.
func (w *world) scheduled(id string) *provider.ActivityWorkItem {
	w.Helper()
	w.create(id)
	w.next(id).schedule(0, "Activity", text(`"input"`)).finish()
	return w.nextActivity()
}

// copyHub stops the hub, copies it and continues with the copy.
func (w *world) copyHub() provider.Totals {
	w.Helper()
	from, to := w.portable()
	w.stopIfRunning()
	totals := w.mustCopy(from, to)
	w.use(to.(provider.Provider))
	return totals
}

// copyInexactly is copyHub for a source with messages that no instance waits for.
func (w *world) copyInexactly() {
	w.Helper()
	from, to := w.portable()
	w.stopIfRunning()
	ctx, cancel := w.patient()
	defer cancel()
	w.tryCopy(ctx, from, to)
	w.use(to.(provider.Provider))
}

// fillAllStages creates instances in all stages of their lives, and stops the hub.
func (w *world) fillAllStages() {
	w.Helper()
	w.portable() // skips the test if the hub cannot be copied
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

// mustNotChange discards all work items of an instance that has ended, as the engine does. It
// checks that the state and the history stay the same.
func (w *world) mustNotChange(id string, before *provider.InstanceState) {
	w.Helper()
	w.discardUntilQuiet(func(e *episode) {
		w.equal("instance that was dispatched", e.item.Instance.InstanceID, id)
	})
	w.quiet("its messages were dropped")
	w.equal("state", w.state(id), before)
	w.equal("history", w.history(id), w.histories[before.Instance])
}

// commitUntil commits episodes of an entity until m is delivered, and reports an error if that
// happens before due.
func (w *world) commitUntil(id string, m provider.TaskMessage, due time.Time) {
	w.Helper()
	for n, came := 0, false; !came; n++ {
		e := w.next(id)
		came = containsMessage(e.fresh, m)
		if early := time.Until(due); came && early > 0 {
			w.Errorf("the message was delivered %v early", early)
		}
		e.setEntityState(fmt.Sprintf("until %d", n), "state").finish()
	}
}

// begin starts an instance and commits its first episode.
func (w *world) begin(id string) history.OrchestrationInstance {
	w.Helper()
	instance := w.create(id)
	w.next(id).finish()
	return instance
}

// sendAgain sends a message a second time. The hub may deliver it twice.
func (w *world) sendAgain(m provider.TaskMessage) {
	w.Helper()
	w.mu.Lock()
	w.resent[fingerprint(m)] = true
	w.mu.Unlock()
	w.send(m)
}

// collect commits episodes of an instance until n different messages have arrived. It returns
// them in the order of arrival, without the start.
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

// purgedLeftovers handles the work items of a purged instance. It discards those without a
// history. Others were loaded before the purge, and their commit must fail.
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
			e.discard()
		default:
			w.refused(e)
		}
	}
}

// failing starts an instance and lets it fail because its activity fails.
func (w *world) failing(id string) history.OrchestrationInstance {
	w.Helper()
	a := w.scheduled(id)
	w.complete(a, &history.TaskFailed{Header: history.NewHeader(now()), TaskScheduledID: 0, Reason: text("it broke")})
	w.next(id).end(history.Failed, text("it broke")).finish()
	return a.Instance
}

// rewindPlan returns the rewind plan of an instance and applies it to the model.
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

// nextRewound returns the next work item of a rewound instance. It reports messages other than the
// GenericEvent of the rewind.
func (w *world) nextRewound(id string) *episode {
	w.Helper()
	e := w.next(id)
	for _, m := range e.item.Messages {
		if _, ok := m.Event.(*history.GenericEvent); !ok {
			w.Errorf("%q was dispatched with unexpected message %s", id, fingerprint(m))
		}
	}
	return e
}

// failFamily commits e, the failed end of a child, and then fails the parent.
func (w *world) failFamily(parent history.OrchestrationInstance, e *episode) {
	w.Helper()
	e.cp.Messages = append(e.cp.Messages, provider.TaskMessage{
		Event:  &history.SubOrchestrationInstanceFailed{Header: history.NewHeader(now()), TaskScheduledID: 0, Reason: text("it broke")},
		Target: parent,
	})
	e.finish()
	w.next(parent.InstanceID).end(history.Failed, text("its child broke")).finish()
}

// failingWithTimers lets an instance fail after one of its two timers has fired. The second
// timer must not be due before the rewind, also on a slow machine. Its delay is therefore 30
// times the time in which the first timer fired, at least 1/5 and at most 3/4 of hub.Patience.
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

// waitsForTimer checks that only the unfired timer of a rewound instance fires, once.
func (w *world) waitsForTimer(id string) {
	w.Helper()
	w.nextRewound(id).schedule(2, "Activity", nil).finish()
	fired := w.firings(id, 1)[0]
	w.equal("timer that fired", fired.Event.(*history.TimerFired).TimerID, 1)
	w.equal("target", fired.Target, w.state(id).Instance)
	w.quiet("all its timers have fired")
}

// nextOf returns the next work item of an instance. It releases work items of other instances.
func (w *world) nextOf(id string) *episode {
	w.Helper()
	ctx, cancel := w.patient()
	defer cancel()
	for {
		e := w.try(ctx)
		switch {
		case e == nil:
			w.Fatalf("instance %q was not dispatched", id)
		case e.item.Instance.InstanceID == id:
			return e
		}
		e.release()
	}
}

// nextExcept returns the next work item of another execution than replaced. It releases work items
// of replaced: its messages can redispatch it until the provider notices the replacement.
func (w *world) nextExcept(replaced history.OrchestrationInstance) *episode {
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

// race calls startAtOnce, where one start must succeed, and returns the first episode of its
// execution.
func (w *world) race(id, name string, others ...func()) *episode {
	w.Helper()
	winner := w.startAtOnce(id, name, others...)
	if winner < 0 {
		w.Fatal("all starts were refused; want one success")
	}
	e := w.next(id)
	w.isWinner(e, name, winner)
	return e
}

// isWinner checks that the work item and the instance's state belong to the start that won.
func (w *world) isWinner(e *episode, name string, winner int) {
	w.Helper()
	id := e.item.Instance.InstanceID
	want := history.OrchestrationInstance{InstanceID: id, ExecutionID: fmt.Sprintf("%s %d", name, winner)}
	w.equal("execution that was dispatched", e.item.Instance, want)
	w.equal("execution in the instance's state", w.state(id).Instance, want)
}

// firings commits episodes of an instance until n timers have fired. It reports timers that
// fire early.
func (w *world) firings(id string, n int) []provider.TaskMessage {
	w.Helper()
	var all []provider.TaskMessage
	for len(all) < n {
		e := w.next(id)
		for _, m := range e.fresh {
			fired := m.Event.(*history.TimerFired)
			if early := time.Until(fired.FireAt); early > 0 {
				w.Errorf("timer %d fired %v early", fired.TimerID, early)
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
	x, ok := w.p.(provider.ExactlyOnce)
	return ok && x.IsExactlyOnce()
}

// sendingEntity returns an episode of an entity whose uncommitted checkpoint sends a message, and
// that message.
func (w *world) sendingEntity() (e *episode, told provider.TaskMessage) {
	w.Helper()
	w.send(signal(entityID, "tell"))
	told = signal("@told@a", "told")
	return w.next(entityID).setEntityState("first", "state").addMessage(told), told
}

// abandonOften abandons an event repeatedly, until its next delivery is later than the suite
// waits.
func (w *world) abandonOften() (event provider.TaskMessage) {
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
		abandon(&provider.RetryAtError{Cause: errAbandoned, At: time.Now().Add(short)})
		e = w.next("a")
	}
	abandon(errAbandoned)
	return event
}
