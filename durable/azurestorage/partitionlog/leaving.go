package partitionlog

import (
	"context"
	"sync"
	"time"
)

// leaving are the partitions that are being given up, which takes as long as the work in
// flight does.
type leaving struct {
	hub   *Hub
	tasks sync.WaitGroup
	over  chan struct{} // gets one when a partition was given up
}

// giveUp gives a partition up in the background, unless that is going on.
func (l *leaving) giveUp(s *share) {
	if !s.leaving.CompareAndSwap(false, true) {
		return
	}
	l.tasks.Go(func() {
		defer s.leaving.Store(false)
		if err := s.close(); err != nil {
			l.hub.log.Warn("a partition could not be given up; its lease runs out", "partition", s.number, "error", err)
		}
		select {
		case l.over <- struct{}{}:
		default:
		}
	})
}

// pause waits for d, for the end of ctx or until a partition was given up.
func (l *leaving) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.over:
	case <-ctx.Done():
	}
}
