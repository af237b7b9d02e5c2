package dispatch

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// tellTakenUp logs that an instance goes on here after another process left it,
// one that died, stopped or lost its partition: how far it had come, and what it
// waits for.
func (s *session) tellTakenUp(past []history.Event) {
	if len(past) == 0 {
		return
	}
	left := past[len(past)-1].Head().Timestamp
	if !left.Before(s.item.OwnedSince) {
		return
	}
	s.log.Info("instance is taken up where another process left it", "name", s.name(),
		"events", len(past), "waitsFor", openActions(past), "leftAt", left.UTC().Format(time.RFC3339Nano))
}

// openActions returns how many tasks, children and timers have not ended yet.
func openActions(past []history.Event) int {
	open := map[int]struct{}{}
	for _, e := range past {
		if id, ok := history.Completes(e); ok {
			delete(open, id)
			continue
		}
		switch e.(type) {
		case *history.TaskScheduled, *history.SubOrchestrationInstanceCreated, *history.TimerCreated:
			open[e.Head().EventID] = struct{}{}
		}
	}
	return len(open)
}
