package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"golang.org/x/sync/errgroup"
)

// streamRun implements the streams of a simulation.
type streamRun struct{ *simulation }

// keepsOrder reports whether the events of one client must arrive in order.
func (s streamRun) keepsOrder() bool {
	return s.platform.KeepsOrder() || s.plan.Workers == 1 && s.plan.Faults+s.plan.Repeats == 0 && !s.plan.Loose && len(s.plan.Disturbances) == 0
}

// stream raises the events of a stream and sometimes suspends and resumes the instance between them.
func (s streamRun) stream(ctx context.Context, st Stream) {
	s.sleepUntil(st.Begin)
	r := rand.New(rand.NewPCG(s.plan.Seed, mix(0x57AE, st.ID)))
	g := generator{r: r}
	id := durable.InstanceID(st.ID)
	steps := []func() error{func() error {
		_, err := listen.Start(ctx, s.client, listening{Stream: st}, id)
		return err
	}}
	suspended := false
	toggle := func() error { // an error is fine, because the instance may not have got so far
		if suspended = !suspended; suspended {
			_ = s.client.Suspend(ctx, id, "for a while")
		} else {
			_ = s.client.Resume(ctx, id, "again")
		}
		return nil
	}
	for n := 0; n < st.Count; n++ {
		first, last := n, min(n+st.Burst, st.Count-1)
		steps = append(steps, func() error { return s.raise(ctx, st, first, last) })
		if n = last; n < st.Count-1 && g.oneIn(4) { // the instance runs at least until the last event
			steps = append(steps, toggle)
		}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			s.fault("stream %s: %v", st.ID, err)
			return
		}
		if g.oneIn(3) {
			pause.For(ctx, g.upTo(3*time.Second))
		}
	}
	for deadline := time.Now().Add(patience); ; pause.For(ctx, interval) {
		state, err := s.client.Status(ctx, id, durable.Fetch{})
		switch {
		case err != nil:
		case state.Status.IsTerminal():
			return
		case state.Status == history.Suspended:
			_ = s.client.Resume(ctx, id, "again") // the instance may have resumed meanwhile
		}
		if time.Now().After(deadline) {
			s.fault("stream %s has not ended; its state is %+v, %v", st.ID, state, err)
			return
		}
	}
}

// raise raises the events first to last of a stream concurrently. It retries failed attempts if clients may
// fail.
func (s streamRun) raise(ctx context.Context, st Stream, first, last int) error {
	var all errgroup.Group
	for n := first; n <= last; n++ {
		all.Go(func() error {
			return s.retryUntilClear(ctx, fmt.Sprintf("stream %s %d", st.ID, n), func(ctx context.Context) error {
				err := streamEvent(st, n).Raise(ctx, s.client, durable.InstanceID(st.ID), n)
				if err == nil {
					return nil
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				if errors.Is(err, durable.ErrInstanceEnded) && (len(s.uncertain[st.ID]) > 0 || s.mayRepeat(st)) {
					return nil // the instance completed because it received another event twice
				}
				s.uncertain[st.ID] = append(s.uncertain[st.ID], n)
				return err
			})
		})
	}
	return all.Wait()
}

// mayRepeat reports whether the instance of a stream may receive an event twice. A new generation does not know
// which events the previous one consumed, and receives them again if their messages were not deleted.
func (s streamRun) mayRepeat(st Stream) bool { return st.Renews > 0 && !s.keepsOrder() }

// isComplete reports whether an instance received each event of its stream once. Events with a failed attempt
// may be received several times, in the place of other events.
func (s streamRun) isComplete(st Stream, got []int) bool {
	spare, seen := 0, map[int]bool{}
	for _, n := range got {
		if seen[n] && !slices.Contains(s.uncertain[st.ID], n) {
			return false
		}
		if seen[n] {
			spare++
		}
		seen[n] = true
	}
	return len(got) == st.Count && len(seen)+spare == st.Count
}

// checkStreams compares the received events with the sent ones. The events of each name must have the order
// of the history. If the hub guarantees the order, all events must have the order in which they were sent.
func (s streamRun) checkStreams(ctx context.Context) {
	for _, st := range s.plan.Streams {
		state, err := s.client.Status(ctx, durable.InstanceID(st.ID), durable.Fetch{Input: true, Output: true})
		if err != nil || state.Status != history.Completed {
			s.fault("stream %s: %+v, %v", st.ID, state, err)
			continue
		}
		var got []int
		var last listening
		past, err := s.client.History(ctx, durable.InstanceID(st.ID))
		for _, err := range []error{err, json.Unmarshal([]byte(*state.Output), &got), json.Unmarshal([]byte(*state.Input), &last)} {
			if err != nil {
				s.fault("stream %s: %v", st.ID, err)
			}
		}
		inOrder := s.keepsOrder() && st.Burst == 0 && len(s.uncertain[st.ID]) == 0
		switch {
		case s.mayRepeat(st):
		case !s.isComplete(st, got):
			s.fault("stream %s of %d events got %v", st.ID, st.Count, got)
		case inOrder && !slices.IsSorted(got):
			s.fault("stream %s got %v; want the order of sending, because no message was returned", st.ID, got)
		}
		came := eventNumbers(past)
		if inOrder && !slices.IsSorted(came) {
			s.fault("the history of stream %s has the events %v; want the order of sending, because no message was returned", st.ID, came)
		}
		for name := range st.Names {
			ofName := func(n int) bool { return n%st.Names != name }
			took := slices.DeleteFunc(slices.Clone(got[min(len(last.Got), len(got)):]), ofName)
			if came := slices.DeleteFunc(slices.Clone(came), ofName); !slices.Equal(came[:min(len(took), len(came))], took) {
				s.fault("stream %s: the last generation received %[3]v of event-%[2]d, the history contains %[4]v", st.ID, name, took, came)
			}
		}
	}
}
