package dispatch

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// openActions returns the number of activities, children and timers that have not completed.
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
