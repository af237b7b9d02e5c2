package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A Stream is numbered events that one client raises, one after the other, for an
// instance of its own that reports in which order it got them.
type Stream struct {
	ID    string
	Begin time.Duration
	Count int // of events
	Names int // that they have by turns
	// Renews says after how many events the instance continues as new, while others may
	// wait, Works after how many it calls an activity; zero means never.
	Renews, Works int
}

// NewStreamPlan is [NewVariedPlan] with streams. Every second one is calm: nothing goes
// back to the storage.
func NewStreamPlan(seed uint64) *Plan {
	p := NewVariedPlan(seed)
	r := rand.New(rand.NewPCG(seed, 0x57AEA))
	g := generator{r: r}
	if seed%2 == 0 {
		p.Workers, p.Faults, p.Loose, p.Disturbances = 1, 0, false, nil
	}
	for n := range 1 + r.IntN(3) {
		p.Streams = append(p.Streams, Stream{
			ID: fmt.Sprintf("s%d", n), Begin: g.upTo(20 * time.Second), Count: 2 + r.IntN(19),
			Names: 1 + r.IntN(3), Renews: r.IntN(7), Works: r.IntN(5),
		})
	}
	return p
}

// keepsOrder reports whether the hub keeps the order in which one client sends.
func (s *simulation) keepsOrder() bool {
	return s.platform.KeepsOrder() || s.plan.Workers == 1 && s.plan.Faults+s.plan.Repeats == 0 && !s.plan.Loose && len(s.plan.Disturbances) == 0
}

// listening is what the instance of a stream is started with.
type listening struct {
	Stream
	Got []int
}

const listen = durable.OrchestratorName[listening, []int]("Listen")

func streamEvent(st Stream, n int) durable.Event[int] {
	return durable.Event[int](fmt.Sprintf("event-%d", n%st.Names))
}

// hear is the orchestrator of streams.
func hear(ctx *durable.Context, in listening) ([]int, error) {
	for len(in.Got) < in.Count {
		n := len(in.Got)
		got, err := streamEvent(in.Stream, n).Wait(ctx).Await()
		if err != nil {
			return nil, err
		}
		in.Got = append(in.Got, got)
		if in.Works > 0 && n%in.Works == 0 {
			if _, err := work.Call(ctx, Task{Key: fmt.Sprintf("%s/0/0/%d", in.ID, n)}).Await(); err != nil {
				return nil, err
			}
		}
		if in.Renews > 0 && n%in.Renews == 0 {
			return durable.ContinueAsNew(ctx, hear, in)
		}
	}
	return in.Got, nil
}

// stream raises the events of a stream, and suspends and resumes the instance among them.
func (s *simulation) stream(ctx context.Context, st Stream) {
	s.at(st.Begin)
	r := rand.New(rand.NewPCG(s.plan.Seed, mix(0x57AE, st.ID)))
	g := generator{r: r}
	id := durable.InstanceID(st.ID)
	steps := []func() error{func() error {
		_, err := listen.Start(ctx, s.client, listening{Stream: st}, id)
		return err
	}}
	suspended := false
	toggle := func() error { // it may not be as far as that, and refuse
		if suspended = !suspended; suspended {
			_ = s.client.Suspend(ctx, id, "for a while")
		} else {
			_ = s.client.Resume(ctx, id, "again")
		}
		return nil
	}
	for n := range st.Count {
		steps = append(steps, func() error { return streamEvent(st, n).Raise(ctx, s.client, id, n) })
		if n < st.Count-1 && g.oneIn(4) { // it goes on at least until the last event
			steps = append(steps, toggle)
		}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			s.fault("stream %s: %v", st.ID, err)
			return
		}
		if g.oneIn(3) {
			pause(ctx, g.upTo(3*time.Second))
		}
	}
	for deadline := time.Now().Add(patience); ; pause(ctx, interval) {
		state, err := s.client.Status(ctx, id, durable.Fetch{})
		switch {
		case err != nil:
		case state.Status.IsTerminal():
			return
		case state.Status == history.Suspended:
			_ = s.client.Resume(ctx, id, "again") // it may have gone on meanwhile
		}
		if time.Now().After(deadline) {
			s.fault("stream %s has not ended, it is %+v, %v", st.ID, state, err)
			return
		}
	}
}

// checkStreams holds what instances got against what was sent: each name in the order of
// the history and, where the hub keeps it, all in the order of sending.
func (s *simulation) checkStreams(ctx context.Context) {
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
		want := make([]int, st.Count)
		for n := range want {
			want[n] = n
		}
		switch {
		case st.Renews > 0 && !s.keepsOrder(): // a generation does not know what the one before took, and may get it again
		case !slices.Equal(slices.Sorted(slices.Values(got)), want):
			s.fault("stream %s of %d events got %v", st.ID, st.Count, got)
		case s.keepsOrder() && !slices.Equal(got, want):
			s.fault("stream %s got %v, though nothing was put back", st.ID, got)
		}
		came := cameIn(past)
		if s.keepsOrder() && !slices.IsSorted(came) {
			s.fault("the history of stream %s has the events %v, though nothing was put back", st.ID, came)
		}
		for name := range st.Names {
			ofName := func(n int) bool { return n%st.Names != name }
			took := slices.DeleteFunc(slices.Clone(got[min(len(last.Got), len(got)):]), ofName)
			if came := slices.DeleteFunc(slices.Clone(came), ofName); !slices.Equal(came[:min(len(took), len(came))], took) {
				s.fault("stream %s: of event-%d its last generation got %v, the history has %v", st.ID, name, took, came)
			}
		}
	}
}

// cameIn returns the numbers of the events of a stream that are in a history.
func cameIn(past []history.Event) (numbers []int) {
	for _, e := range past {
		var n int
		if e, ok := e.(*history.EventRaised); ok && e.Input != nil && json.Unmarshal([]byte(*e.Input), &n) == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}
