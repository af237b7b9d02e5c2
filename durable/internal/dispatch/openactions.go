package dispatch

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// openActions returns the number of activities, children and timers that have not completed. It does not count
// children that report no result.
func openActions(past []history.Event) int {
	open := map[int]struct{}{}
	for _, e := range past {
		if id, ok := history.Completes(e); ok {
			delete(open, id)
			continue
		}
		switch e := e.(type) {
		case *history.TaskScheduled, *history.TimerCreated:
			open[e.Head().EventID] = struct{}{}
		case *history.SubOrchestrationInstanceCreated:
			if _, forgotten := e.Tags[history.FireAndForget]; !forgotten {
				open[e.EventID] = struct{}{}
			}
		}
	}
	return len(open)
}
