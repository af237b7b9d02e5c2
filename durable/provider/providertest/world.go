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
