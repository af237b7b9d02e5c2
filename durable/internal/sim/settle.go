package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
)

// awaitEnds waits until all started instances have ended. It resumes suspended instances, because a Resume
// may have overtaken its Suspend.
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
					_ = s.client.Resume(ctx, durable.InstanceID(in.ID), "again") // the instance may have resumed meanwhile
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

// ranSoFar returns the number of activity runs.
func (s *simulation) ranSoFar() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs)
}

// awaitQuiet waits until no message is pending for several intervals. A frozen worker may still run an
// activity that is stored nowhere. awaitQuiet waits until its result has been sent and discarded.
func (s *simulation) awaitQuiet() {
	quiet := 0
	for deadline := time.Now().Add(quietTimeout); quiet < quietIntervals; time.Sleep(interval) {
		if s.isBusy() {
			quiet = 0
			time.Sleep(resultTime)
			continue
		}
		pending := s.platform.Pending()
		if quiet++; len(pending) > 0 {
			quiet = 0
		}
		if time.Now().After(deadline) {
			for _, what := range pending {
				s.fault("still pending: %s", what)
			}
			return
		}
	}
}

// awaitIdle waits until workers have released all resources that they acquired for their work.
func (s *simulation) awaitIdle() {
	for deadline := time.Now().Add(idleTimeout); ; time.Sleep(97 * time.Millisecond) { // not synchronized with the workers' own intervals
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
				s.fault("still in use although the hub is idle: %s", strings.Join(all, ", "))
			}
			return
		}
	}
}

// returned reports whether output is the output of an orchestration with this sum.
func (s *simulation) returned(output string, sum uint64) bool {
	var got Output
	return json.Unmarshal([]byte(output), &got) == nil && got == s.plan.App.output(sum)
}

// isRecreated reports whether a request that was repeated after the purge of the instance may have created the
// instance again. Its input is gone, and so it failed.
func (s *simulation) isRecreated(state *durable.InstanceState) bool {
	return s.plan.Repeats > 0 && state.Status == history.Failed
}

// purgeAndCrash runs a client that purges all instances and crashes during the purge.
func (s *simulation) purgeAndCrash(ctx context.Context) {
	c, kill, err := s.platform.Caller(purger)
	if err != nil {
		s.fault("open client: %v", err)
		return
	}
	if s.plan.Purged > 0 {
		defer time.AfterFunc(s.plan.Purged, kill).Stop()
	}
	client := durable.NewClient(c, nil)
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // on partition logs, a dead client retries forever
	defer cancel()
	for state, err := range client.AllInstances(ctx, durable.Query{}) {
		if err == nil {
			_, _ = client.Purge(ctx, durable.InstanceID(state.Instance.InstanceID)) // fails after the crash
		}
	}
	s.awaitQuiet()
}

// checkPurge purges all instances and reports what is left.
func (s *simulation) checkPurge(ctx context.Context) {
	if s.plan.Purger {
		s.purgeAndCrash(ctx)
	}
	var ids []durable.InstanceID
	for state, err := range s.client.AllInstances(ctx, durable.Query{}) {
		if err != nil {
			s.fault("list instances: %v", err)
			return
		}
		ids = append(ids, durable.InstanceID(state.Instance.InstanceID))
	}
	for _, id := range ids {
		if _, err := s.client.Purge(ctx, id); err != nil {
			s.fault("purge %s: %v", id, err)
		}
	}
	for _, what := range append(s.platform.Stored(), s.platform.Pending()...) {
		s.fault("left after the purge: %s", what)
	}
}

// cut returns when a caller gives up a call; ok is false if it does not. No caller gives up after Quiet.
func (s *simulation) cut(what string) (after time.Duration, ok bool) {
	r := rand.New(rand.NewPCG(s.plan.Seed, mix(0xC07, what)))
	return time.Duration(1 + r.Int64N(int64(80*time.Millisecond))), r.Float64() < s.plan.Cuts && time.Since(s.begin) < s.plan.Quiet
}

// retryUntilClear calls f until it has a definite result, at most 10 times. It retries calls that the caller
// gave up and calls with an unknown result.
func (s *simulation) retryUntilClear(ctx context.Context, what string, f func(context.Context) error) (err error) {
	ctx = s.platform.Context(ctx, "client "+what)
	for n := range 10 {
		attempt, cancel := ctx, func() {}
		if after, ok := s.cut(fmt.Sprint(what, " ", n)); ok && n < 9 { // the last attempt has no time limit
			attempt, cancel = context.WithTimeout(ctx, after)
		}
		err = f(attempt)
		cancel()
		if err == nil || !s.plan.clientsMayFail() || errors.Is(err, durable.ErrInstanceEnded) || errors.Is(err, durable.ErrInstanceExists) {
			return err
		}
		if s.plan.Inside {
			pause.For(ctx, time.Duration(n)*interval) // lets an outage pass
		}
	}
	return err
}
