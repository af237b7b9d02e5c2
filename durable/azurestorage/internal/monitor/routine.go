package monitor

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// routineInterval is the time between two log lines with the counts of routine events.
const routineInterval = time.Minute

// routine logs message events that are harmless individually: the message is a duplicate, came
// early, or was received by another worker. Each event is logged at debug. Because congestion
// causes many of them, one info line per minute has their counts.
type routine struct {
	log *slog.Logger

	mu     sync.Mutex     // protects the following; held during a report
	counts map[string]int // number of each event since the last report; nil before the first event
	timer  *time.Timer    // of the next report
}

// Record logs an event at debug and counts it.
func (r *routine) Record(event string, attrs []any) {
	r.log.Debug(event, attrs...)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[string]int{}
		r.timer = time.AfterFunc(routineInterval, r.Report)
	}
	r.counts[event]++
}

// Report logs the counts since the last report, if there are any.
func (r *routine) Report() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		return
	}
	r.timer.Stop()
	var attrs []any
	for _, event := range slices.Sorted(maps.Keys(r.counts)) {
		attrs = append(attrs, slog.Int(event, r.counts[event]))
	}
	r.counts = nil
	r.log.Info("messages were redelivered or held back", attrs...)
}
