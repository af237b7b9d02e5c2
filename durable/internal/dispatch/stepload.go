package dispatch

import (
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A stepLoad counts the steps of all sessions.
type stepLoad struct {
	mu  sync.Mutex
	all map[*steps]struct{} // the steps of each execution in a session
}

func (l *stepLoad) add(s *steps) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = make(map[*steps]struct{})
	}
	l.all[s] = struct{}{}
}

func (l *stepLoad) remove(s *steps) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, s)
}

// read returns the number of steps that run or wait for a slot. The latency is the age of the first
// step that waits.
func (l *stepLoad) read(now time.Time) (sum provider.QueueLoad) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.all {
		load := s.load(now)
		sum.Length += load.Length
		sum.Latency = max(sum.Latency, load.Latency)
	}
	return sum
}
