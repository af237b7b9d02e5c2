package partitionlog

import (
	"context"
	"sync"
	"time"
)

// releaser releases partitions in the background. A release waits for the work in flight.
type releaser struct {
	hub   *Hub
	tasks sync.WaitGroup
	over  chan struct{} // gets a value when a partition was released
}

// release starts the release of a partition unless it is running already.
func (l *releaser) release(s *partitionHandle) {
	if !s.leaving.CompareAndSwap(false, true) {
		return
	}
	l.tasks.Go(func() {
		if err := s.close(); err != nil {
			l.hub.log.Warn("cannot release a partition; its lease will expire", "partition", s.number, "error", err)
		}
		s.leaving.Store(false) // before the worker resumes
		select {
		case l.over <- struct{}{}:
		default:
		}
	})
}

// pause waits for d, the end of ctx, or the release of a partition.
func (l *releaser) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.over:
	case <-ctx.Done():
	}
}
