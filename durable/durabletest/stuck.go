package durabletest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/explain"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// report builds a message about the instances that wait.
type report struct {
	strings.Builder
	hub       *Hub
	forEvents bool // an instance waits for an external event
}

func (r *report) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(r, format, args...) // writes to a strings.Builder do not fail
}

// instance adds what an instance waits for.
func (r *report) instance(s *provider.InstanceState) {
	id := s.Instance.InstanceID
	r.printf("  %q of %s, %s:\n", id, s.Name, s.Status)
	i := r.hub.instances[id]
	if i == nil || i.Execution() == nil {
		r.printf("    has not run yet\n")
		return
	}
	live := i.Execution()
	events, err := r.hub.store.History(r.hub.ctx, id)
	if err != nil {
		r.printf("    its history cannot be read: %v\n", err)
	}
	if live.IsSuspended() {
		r.suspension(events)
	}
	waits := 0
	for _, f := range live.IncompleteFutures() {
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
		r.printf("    is deadlocked: its branches wait for each other\n")
	}
	if unread := live.UnreadEvents(); len(unread) > 0 {
		names := make([]string, len(unread))
		for i, e := range unread {
			names[i] = e.Name
		}
		r.printf("    has received events that it does not wait for: %s\n", strings.Join(names, ", "))
	}
}

// task adds that the instance waits for an activity, a timer or a child.
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
			what += ", due at " + explain.Time(timer.FireAt)
		}
		r.since(what, e.Head().Timestamp)
		return
	}
	r.printf("    waits for %s, which has not started\n", what)
}

func (r *report) since(what string, began time.Time) {
	r.printf("    waits for %s, since %s (%v ago)\n", what, explain.Time(began), r.hub.Now().Sub(began))
}

// suspension adds since when the instance has been suspended.
func (r *report) suspension(events []history.Event) {
	for i := len(events) - 1; i >= 0; i-- {
		if e, ok := events[i].(*history.ExecutionSuspended); ok {
			r.printf("    is suspended (%s), since %s (%v ago)\n", explain.Payload(e.Reason), explain.Time(e.Timestamp), r.hub.Now().Sub(e.Timestamp))
			return
		}
	}
	r.printf("    is suspended\n")
}

// call adds that the instance waits for an operation or a lock of an entity.
func (r *report) call(c replay.EntityCall, events []history.Event) {
	what := fmt.Sprintf("operation %s of entity %q (task %d)", c.Name(), c.Target, c.ID())
	if c.Locks != nil {
		what = fmt.Sprintf("the locks of %s (task %d)", explain.Locks(c.Locks), c.ID())
	}
	for _, e := range events {
		if e.Head().EventID == c.ID() {
			r.since(what, e.Head().Timestamp)
			return
		}
	}
	r.printf("    waits for %s, whose request has not been sent\n", what)
}

// entity adds the lock of an entity and its number of waiting requests, if it is locked.
func (r *report) entity(s *provider.InstanceState) {
	var status struct {
		QueueSize int    `json:"queueSize"`
		LockedBy  string `json:"lockedBy"`
	}
	if s.CustomStatus == nil || json.Unmarshal([]byte(*s.CustomStatus), &status) != nil || status.LockedBy == "" && status.QueueSize == 0 {
		return
	}
	r.printf("  entity %q is locked by %q; %d more requests wait for the lock\n", s.Instance.InstanceID, status.LockedBy, status.QueueSize)
}
