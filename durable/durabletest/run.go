package durabletest

import (
	"fmt"
	"strconv"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// turns runs the work of a hub, one item at a time, during one call of the test.
type turns struct {
	hub   *Hub
	stop  func() bool // ends the work early; nil means never
	began time.Time
	most  int // maximum number of episodes
	ran   int
}

// runDue runs all work that is due at the hub's time. It returns the time at which the next work is due,
// zero if no work is left.
func (t *turns) runDue() (next time.Time) {
	t.hub.t.Helper()
	for {
		if t.stop != nil && t.stop() {
			return time.Time{}
		}
		var did bool
		if did, next = t.runNext(); !did {
			return next
		}
	}
}

// runNext runs the first item of work that is due. If no work is due, it returns the time of the next one,
// zero if no work is left.
func (t *turns) runNext() (did bool, next time.Time) {
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
		h.t.Fatalf("durabletest: one call has run %d episodes, over %v of the hub's time, and is not done; the last was of instance %q.\n"+
			"Does an orchestrator run forever? Call Advance instead of waiting, terminate the instance in a function passed to After, or increase Hub.MaxEpisodes.",
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

// earlier returns the earlier of two times. The zero time counts as later than all others.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// stepper runs the episodes of one instance.
type stepper = *dispatch.Stepper

// stepError returns the failure message for an instance whose episode could not run.
func stepError(item *provider.OrchestrationWorkItem, err error) string {
	events := item.History
	for _, m := range item.Messages {
		events = append(events[:len(events):len(events)], m.Event)
	}
	for _, e := range events {
		if start, ok := e.(*history.ExecutionStarted); ok && dispatch.IsUnknownFunction(err) {
			return fmt.Sprintf("durabletest: instance %q%s needs orchestrator %q, but no orchestrator has this name; pass its Function to New",
				start.Instance.InstanceID, parentage(start), start.Name)
		}
	}
	return fmt.Sprintf("durabletest: instance %q: %v", item.Instance.InstanceID, err)
}

func parentage(start *history.ExecutionStarted) string {
	if start.Parent == nil {
		return ""
	}
	return ", a child of " + start.Parent.Name + " " + strconv.Quote(start.Parent.Instance.InstanceID) + ","
}
