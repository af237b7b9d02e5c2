package durabletest

import (
	"fmt"
	"strconv"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// turns does what can be done.
type turns struct {
	hub   *Hub
	stop  func() bool // nil: never
	began time.Time
	most  int // episodes
	ran   int
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
	return ", a child of " + start.Parent.Name + " " + strconv.Quote(start.Parent.Instance.InstanceID) + ","
}
