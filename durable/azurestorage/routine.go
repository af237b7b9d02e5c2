package azurestorage

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// routineInterval is the time between two log lines with the counts of routine events.
const routineInterval = time.Minute

// A routine logs events of messages that are harmless one by one: the message is a duplicate,
// came early, or another worker received it. Each event is a debug line. An info line counts
// the events of a minute, since congestion makes them many.
type routine struct {
	log *slog.Logger

	mu     sync.Mutex     // protects the following, and is held during a report
	counts map[string]int // by event since the last report; nil if there are none
	timer  *time.Timer    // of the next report
}

// note logs an event at debug and counts it.
func (r *routine) note(event string, attrs []any) {
	r.log.Debug(event, attrs...)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[string]int{}
		r.timer = time.AfterFunc(routineInterval, r.report)
	}
	r.counts[event]++
}

// report logs the counts since the last report, if there are any.
func (r *routine) report() {
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
