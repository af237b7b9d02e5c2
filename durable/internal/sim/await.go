package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// awaitEnds waits until all instances that were started have ended. It resumes
// those that it finds suspended: the order in which messages arrive is not that in
// which they were sent.
func (s *simulation) awaitEnds(ctx context.Context) {
	ran, deadline := 0, time.Now().Add(patience)
	for {
		if n := s.ranSoFar(); n > ran {
			ran, deadline = n, time.Now().Add(patience)
		}
		open := 0
		last := ""
		for _, in := range s.plan.App.Instances {
			status, err := s.platform.Status(in.ID)
			if err != nil {
				s.fault("status of %s: %v", in.ID, err)
				return
			}
			if !status.IsTerminal() {
				open, last = open+1, fmt.Sprintf("%s is %v", in.ID, status)
				if status == history.Suspended && time.Since(s.begin) > in.Suspended+suspension+interval {
					_ = s.client.Resume(ctx, durable.InstanceID(in.ID), "again") // it may have gone on meanwhile
				}
			}
		}
		switch {
		case open == 0:
			return
		case time.Now().After(deadline):
			s.fault("%d instances have not ended, %s", open, last)
			return
		}
		time.Sleep(interval)
	}
}

// ranSoFar returns how many activities have run.
func (s *simulation) ranSoFar() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs)
}

// awaitQuiet waits until nothing has been on its way for a moment. An activity of
// which nothing is stored, since a worker that was frozen runs it again, has a result
// that takes a while to be sent and dropped.
func (s *simulation) awaitQuiet() {
	quiet := 0
	for deadline := time.Now().Add(settling); quiet < moments; time.Sleep(interval) {
		if s.isBusy() {
			quiet = 0
			time.Sleep(settlingOfResult)
			continue
		}
		pending := s.platform.Pending()
		if quiet++; len(pending) > 0 {
			quiet = 0
		}
		if time.Now().After(deadline) {
			for _, what := range pending {
				s.fault("still on its way: %s", what)
			}
			return
		}
	}
}

// idling bounds how long it takes until nothing is in use by workers for which there is
// nothing to do: sessions end, and requests are answered.
const idling = 2 * time.Minute

// awaitIdle waits until nothing is in use by workers: what they took to do something was
// given back, whatever became of it.
func (s *simulation) awaitIdle() {
	for deadline := time.Now().Add(idling); ; time.Sleep(97 * time.Millisecond) { // not in step with what they do
		left := map[Process][]string{}
		s.mu.Lock()
		for p, watch := range s.working {
			if all := watch.All(); len(all) > 0 && !isDead(p) {
				left[p] = all
			}
		}
		s.mu.Unlock()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, all := range left {
				s.fault("in use though there is nothing to do: %s", strings.Join(all, ", "))
			}
			return
		}
	}
}

// await waits for the end of an instance, until ctx ends, in whichever process there is.
// It seldom has the patience for it.
func (s *simulation) await(ctx context.Context, id string) {
	for n := 0; ctx.Err() == nil; n++ {
		s.mu.Lock()
		p := s.processes[n%len(s.processes)]
		s.mu.Unlock()
		stays := time.Duration(1+mix(s.plan.Seed, fmt.Sprint("await ", id, n))%2000) * time.Millisecond
		awaiter, ok := p.(provider.Awaiter)
		if !ok || isDead(p) {
			pause(ctx, stays)
			continue
		}
		waits, cancel := context.WithTimeout(ctx, stays)
		if err := awaiter.AwaitEnd(waits, id); err != nil && waits.Err() == nil {
			pause(waits, stays) // it does not know the instance yet
		} else if err == nil {
			pause(ctx, time.Minute)
		}
		cancel()
	}
}
