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
	*testing.T
	hub Hub
	p   provider.Provider // as it is open now

	halt    context.CancelFunc // ends Run's context
	stopped chan error         // has what Run returned

	mu sync.Mutex // protects the following
	// histories holds what was committed of each execution.
	histories map[history.OrchestrationInstance][]history.Event
	// taken holds what was committed of messages, to tell those that come twice.
	taken map[string]bool
	// held holds the instances that are in somebody's hands.
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
		T: t, hub: hub, p: hub.Provider,
		histories: make(map[history.OrchestrationInstance][]history.Event),
		taken:     make(map[string]bool),
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

// start calls Run.
func (w *world) start() {
	w.Helper()
	ctx, halt := context.WithCancel(context.WithoutCancel(w.Context()))
	w.halt, w.stopped = halt, make(chan error, 1)
	p, stopped := w.p, w.stopped
	go func() { stopped <- p.Run(ctx) }() // awaited by stop, or when the test ends
}

// stop ends Run's context and waits for Run to return.
func (w *world) stop() {
	w.Helper()
	w.halt()
	w.awaitStop()
}

func (w *world) awaitStop() {
	w.Helper()
	select {
	case err := <-w.stopped:
		if err != nil {
			w.Fatalf("Run returned %v, want nil", err)
		}
	case <-time.After(w.hub.Patience + w.hub.DrainTimeout):
		w.Fatal("Run does not return although its context has ended")
	}
	w.halt = nil
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

// patient returns a context for what must happen.
func (w *world) patient() (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.Context(), w.hub.Patience)
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

// nextActivity returns the next activity.
func (w *world) nextActivity() *provider.ActivityWorkItem {
	w.Helper()
	ctx, cancel := w.patient()
	defer cancel()
	a, err := w.p.NextActivity(ctx)
	if err != nil {
		w.Fatalf("NextActivity: %v", err)
	}
	if a.Lock == nil || a.Task == nil || a.Attempt < 1 {
		w.Fatalf("activity is not whole: %+v", a)
	}
	return a
}

// noActivity fails the test if an activity is handed out before long.
func (w *world) noActivity(why string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), w.hub.Quiet)
	defer cancel()
	if a, err := w.p.NextActivity(ctx); err == nil {
		w.Fatalf("activity %s (event %d of %q) was handed out: %s", a.Task.Name, a.Task.EventID, a.Instance.InstanceID, why)
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

// must fails the test if err is not nil.
func (w *world) must(what string, err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

// equal fails the test if got is not want.
func (w *world) equal(what string, got, want any) {
	w.Helper()
	if diff := cmp.Diff(want, got, same); diff != "" {
		w.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
