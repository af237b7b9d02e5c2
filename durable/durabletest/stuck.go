package durabletest

import (
	"fmt"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// stuck says why nothing can happen any more although an instance has not ended.
func (h *Hub) stuck(id string) string {
	page, err := h.store.Instances(h.ctx, provider.Query{})
	if err != nil {
		return fmt.Sprintf("durabletest: instance %q has not ended, and nothing can happen any more: %v", id, err)
	}
	r := report{hub: h}
	r.printf("durabletest: instance %q has not ended, and nothing can happen any more. Time is %s, %v after the hub began.\n",
		id, stamp(h.Now()), h.Elapsed())
	for _, s := range page.Instances {
		switch {
		case history.IsEntity(s.Instance.InstanceID):
			r.entity(s)
		case !s.Status.IsTerminal():
			r.instance(s)
		}
	}
	if r.forEvents {
		r.printf("Raise what is waited for before waiting, or have it raised at a time by Hub.After.")
	}
	return r.String()
}

// report is a text about instances that wait.
type report struct {
	strings.Builder
	hub       *Hub
	forEvents bool // somebody waits for an event
}

func (r *report) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(r, format, args...) // a strings.Builder takes everything
}

// instance says what an instance waits for.
func (r *report) instance(s *provider.InstanceState) {
	id := s.Instance.InstanceID
	r.printf("  %q of %s, %s:\n", id, s.Name, s.Status)
	i := r.hub.instances[id]
	if i == nil || i.Live() == nil {
		r.printf("    has not run yet\n")
		return
	}
	live := i.Live()
	events, err := r.hub.store.History(r.hub.ctx, id)
	if err != nil {
		r.printf("    its history cannot be read: %v\n", err)
	}
	if live.IsSuspended() {
		r.suspension(events)
	}
	waits := 0
	for _, f := range live.Open() {
		if f.IsAwaited() {
			waits++
			r.task(f, events)
		}
	}
	for _, c := range live.EntityCalls() {
		if c.IsAwaited() {
			waits++
			r.call(c, events)
		}
	}
	for _, f := range live.EventWaits() {
		if f.IsAwaited() {
			waits++
			r.forEvents = true
			r.since(f.String(), i.waits[f])
		}
	}
	if waits == 0 && !live.IsSuspended() {
		r.printf("    waits for nothing that can complete: its branches wait for one another\n")
	}
	if unread := live.Unread(); len(unread) > 0 {
		names := make([]string, len(unread))
		for i, e := range unread {
			names[i] = e.Name
		}
		r.printf("    has received events that it does not wait for: %s\n", strings.Join(names, ", "))
	}
}

// task says that a task, a timer or a child is waited for.
func (r *report) task(f *replay.Future, events []history.Event) {
	what := fmt.Sprintf("%s (task %d)", f, f.ID())
	for _, e := range events {
		if e.Head().EventID != f.ID() {
			continue
		}
		if child, ok := e.(*history.SubOrchestrationInstanceCreated); ok {
			what += fmt.Sprintf(", instance %q", child.InstanceID)
		}
		if timer, ok := e.(*history.TimerCreated); ok {
			what += ", due at " + stamp(timer.FireAt)
		}
		r.since(what, e.Head().Timestamp)
		return
	}
	r.printf("    waits for %s, which it has not begun\n", what)
}

func (r *report) since(what string, began time.Time) {
	r.printf("    waits for %s, since %s (%v ago)\n", what, stamp(began), r.hub.Now().Sub(began))
}

// suspension says since when the instance is suspended.
func (r *report) suspension(events []history.Event) {
	for i := len(events) - 1; i >= 0; i-- {
		if e, ok := events[i].(*history.ExecutionSuspended); ok {
			r.printf("    is suspended (%s), since %s (%v ago)\n", show(e.Reason), stamp(e.Timestamp), r.hub.Now().Sub(e.Timestamp))
			return
		}
	}
	r.printf("    is suspended\n")
}
