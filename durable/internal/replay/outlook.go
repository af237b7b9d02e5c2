package replay

import (
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Open returns the tasks, timers and children that the orchestrator has begun
// and that are not complete, in the order of their numbers.
func (x *Execution) Open() []*Future {
	var all []*Future
	if x.complete != nil || x.over {
		return nil
	}
	for _, f := range x.open.slots[x.open.head:] {
		if f != nil {
			all = append(all, f)
		}
	}
	return all
}

// EventWaits returns the waits for external events, in the order of the events'
// names; of one name, the oldest is first.
func (x *Execution) EventWaits() []*Future {
	if x.complete != nil || x.over || len(x.events.names) == 0 {
		return nil
	}
	names := make([]string, 0, len(x.events.names))
	for name := range x.events.names {
		names = append(names, name)
	}
	slices.Sort(names)
	var all []*Future
	for _, name := range names {
		for _, s := range x.events.names[name].waiting {
			if s.stands() {
				all = append(all, s.future)
			}
		}
	}
	return all
}

// IsAwaited reports whether the orchestrator waits for f now.
func (f *Future) IsAwaited() bool { return !f.IsComplete() && f.isAwaited() }

// Unread returns the external events that arrived and that the orchestrator has
// not seen, in the order in which they came.
func (x *Execution) Unread() []*history.EventRaised { return x.events.unread() }

// IsSuspended reports whether the instance takes no notice of events.
func (x *Execution) IsSuspended() bool { return x.suspended || x.withheld }

// Ended returns how the orchestrator ended, nil if it has not.
func (x *Execution) Ended() *Complete { return x.complete }

// Divergence returns the first difference between the history and what the
// orchestrator did, nil if there is none.
func (x *Execution) Divergence() *NonDeterminismError { return x.recorded.divergence }
