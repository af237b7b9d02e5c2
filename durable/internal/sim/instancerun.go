package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An instanceRun is the part of a simulation in which clients start the instances of the app,
// do things to them, and check how they end.
type instanceRun struct{ *simulation }

// drive does what clients do to an instance.
func (s instanceRun) drive(ctx context.Context, in Instance) {
	s.at(in.At)
	err := s.insist(ctx, "start "+in.ID, func(ctx context.Context) error { return s.start(ctx, in) })
	if err != nil && !(s.plan.unsure() && errors.Is(err, durable.ErrInstanceExists)) { // an attempt that was cut off may have started it
		s.fault("start %s: %v", in.ID, err)
		return
	}
	var all sync.WaitGroup
	for _, event := range s.tooSoon(in) {
		// It may have come after all, and the instance have ended.
		all.Go(func() { s.raise(ctx, in, event, " sent", true) })
	}
	for _, e := range in.Raised {
		all.Go(func() {
			s.at(e.At)
			s.raise(ctx, in, e.Name, " raised", s.plan.unsure()) // an attempt that was cut off may have raised it
		})
	}
	if in.Suspended > 0 {
		all.Go(func() { s.suspend(ctx, in) })
	}
	if in.Terminated > 0 {
		all.Go(func() {
			s.at(in.Terminated)
			err := s.insist(ctx, "terminate "+in.ID, func(ctx context.Context) error {
				return s.client.Terminate(ctx, durable.InstanceID(in.ID), s.plan.App.padded("enough"))
			})
			if err != nil && !(s.plan.unsure() && errors.Is(err, durable.ErrInstanceEnded)) { // an attempt that was cut off may have done it
				s.fault("terminate %s: %v", in.ID, err)
			}
		})
	}
	all.Wait()
}

// raise raises an event whose payload is its name and how it came, for an instance that may
// have ended or not.
func (s instanceRun) raise(ctx context.Context, in Instance, event, how string, mayHaveEnded bool) {
	err := s.insist(ctx, "raise "+event+in.ID, func(ctx context.Context) error {
		return durable.Event[string](event).Raise(ctx, s.client, durable.InstanceID(in.ID), s.plan.App.padded(event+how))
	})
	if err != nil && !(mayHaveEnded && errors.Is(err, durable.ErrInstanceEnded)) {
		s.fault("raise %s for %s: %v", event, in.ID, err)
	}
}

// tooSoon returns the events that others may have sent to an instance before its start was
// acknowledged. They were discarded then.
func (s instanceRun) tooSoon(in Instance) (events []string) {
	for _, step := range s.plan.App.Programs[in.Program].Steps {
		for _, from := range s.plan.App.Instances {
			if step.Kind == ReceiveStep && from.ID == step.Peer && time.Since(s.begin) > from.At+beforeSend {
				events = append(events, step.Event)
			}
		}
	}
	return events
}

// start starts an instance, with an execution ID that the seed decides about: those
// of its children are made of it, and with them their instance IDs.
func (s instanceRun) start(ctx context.Context, in Instance) error {
	input, err := json.Marshal(Input{Path: in.ID, Program: in.Program, Pad: s.plan.App.padded("")})
	if err != nil {
		return err
	}
	started := &history.ExecutionStarted{
		Header:   history.NewHeader(time.Now()),
		Instance: history.OrchestrationInstance{InstanceID: in.ID, ExecutionID: fmt.Sprintf("%032x", mix(s.plan.Seed, in.ID))},
		Name:     string(child), Input: new(string(input)),
	}
	if s.plan.App.Large {
		started.Tags = map[string]string{"large": s.plan.App.padded("")}
	}
	if in.Unknown {
		started.Name = "Nobody"
	}
	if in.Delay > 0 {
		started.ScheduledStart = history.Ticks(time.Now().Add(in.Delay))
	}
	var refuse []history.RuntimeStatus
	if s.plan.Cuts > 0 { // one that was started must not be begun anew
		refuse = allStatuses
	}
	return s.platform.Client().StartInstance(ctx, provider.TaskMessage{Event: started, Target: started.Instance}, refuse)
}

// suspend suspends an instance for a while, if it has not ended yet.
func (s instanceRun) suspend(ctx context.Context, in Instance) {
	s.at(in.Suspended)
	id := durable.InstanceID(in.ID)
	if err := s.insist(ctx, "suspend "+in.ID, func(ctx context.Context) error { return s.client.Suspend(ctx, id, s.plan.App.padded("for a while")) }); err != nil {
		return
	}
	pause.For(ctx, suspension)
	_ = s.insist(ctx, "resume "+in.ID, func(ctx context.Context) error { return s.client.Resume(ctx, id, s.plan.App.padded("again")) }) // it may not be suspended yet: awaitEnds resumes it
}

// await waits for the end of an instance, until ctx ends, in whichever process there is.
// It seldom has the patience for it.
func (s instanceRun) await(ctx context.Context, id string) {
	for n := 0; ctx.Err() == nil; n++ {
		s.mu.Lock()
		p := s.processes[n%len(s.processes)]
		s.mu.Unlock()
		stays := time.Duration(1+mix(s.plan.Seed, fmt.Sprint("await ", id, n))%2000) * time.Millisecond
		awaiter, ok := p.(provider.Awaiter)
		if !ok || isDead(p) {
			pause.For(ctx, stays)
			continue
		}
		waits, cancel := context.WithTimeout(ctx, stays)
		if err := awaiter.AwaitEnd(waits, id); err != nil && waits.Err() == nil {
			pause.For(waits, stays) // it does not know the instance yet
		} else if err == nil {
			pause.For(ctx, time.Minute)
		}
		cancel()
	}
}

// checkEnds holds all instances against what they must have come to.
func (s instanceRun) checkEnds(ctx context.Context) {
	for _, in := range s.plan.App.Instances {
		state, err := s.client.Status(ctx, durable.InstanceID(in.ID), durable.Fetch{Output: true})
		if err != nil {
			s.fault("status of %s: %v", in.ID, err)
			continue
		}
		want := s.plan.App.Expect(in)
		output := ""
		if state.Output != nil {
			output = *state.Output
		}
		switch {
		case state.Status != want.Status:
			s.fault("%s is %v with %.100q, want %v", in.ID, state.Status, output, want.Status)
		case want.Status == history.Completed && !s.returned(output, want.Sum):
			s.fault("%s returned %.100s, want %d", in.ID, output, want.Sum)
		}
	}
	for state, err := range s.client.All(ctx, durable.Query{}) {
		if err != nil {
			s.fault("list instances: %v", err)
			return
		}
		id := state.Instance.InstanceID
		if isEntity(state) {
			continue
		}
		if !state.Status.IsTerminal() {
			s.fault("%s is %v at the end", id, state.Status)
			continue
		}
		past, err := s.client.History(ctx, durable.InstanceID(id))
		if err != nil {
			s.fault("history of %s: %v", id, err)
			continue
		}
		if len(past) == 0 && s.cameLate(state) {
			continue
		}
		for _, what := range CheckHistory(past, state.Status == history.Terminated) {
			// A copy has activities of generations that no checkpoint began, since it cannot
			// tell them from those of older ones. A local file then takes two results.
			if len(s.plan.Moves) > 0 && strings.HasPrefix(what, history.TypeTaskScheduled.String()) && strings.HasSuffix(what, "was completed 2 times") {
				continue
			}
			s.fault("history of %s: %s", id, what)
		}
	}
}

// restart lets a client restart an instance once there is one. It goes away meanwhile,
// and asks again.
func (s instanceRun) restart(ctx context.Context, r Restart) {
	s.at(r.At)
	for deadline := time.Now().Add(patience); ; pause.For(ctx, interval) {
		err := s.insist(ctx, "restart "+r.ID, func(ctx context.Context) error {
			_, err := s.client.Restart(ctx, durable.InstanceID(r.Of.ID), durable.InstanceID(r.ID))
			return err
		})
		switch {
		case err == nil, errors.Is(err, durable.ErrInstanceExists): // an attempt that was cut off may have started it
			return
		case !errors.Is(err, durable.ErrInstanceNotFound), time.Now().After(deadline):
			s.fault("restart %s: %v", r.ID, err)
			return
		}
	}
}

// checkRestarts waits until what was restarted has ended, and holds it against what it
// must have come to.
func (s instanceRun) checkRestarts(ctx context.Context) {
	for _, r := range s.plan.Restarts {
		want, output := s.plan.App.Expect(r.Of), ""
		state, err := s.awaitEnd(ctx, r.ID)
		if state != nil && state.Output != nil {
			output = *state.Output
		}
		if err != nil || state.Status != want.Status || want.Status == history.Completed && output != strconv.FormatUint(want.Sum, 10) {
			s.fault("%s, a restart of %s, is %+v with %q, %v, want %+v", r.ID, r.Of.ID, state, output, err, want)
		}
	}
}

// awaitEnd returns the state in which an instance ended, or is after a long time.
func (s instanceRun) awaitEnd(ctx context.Context, id string) (*durable.InstanceState, error) {
	for deadline := time.Now().Add(patience); ; pause.For(ctx, interval) {
		state, err := s.client.Status(ctx, durable.InstanceID(id), durable.Fetch{Output: true})
		if err != nil || state.Status.IsTerminal() || time.Now().After(deadline) {
			return state, err
		}
	}
}
