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

// instanceRun implements the clients that start the app's instances, act on them and check their results.
type instanceRun struct{ *simulation }

// runClients executes the actions of clients on an instance.
func (s instanceRun) runClients(ctx context.Context, in Instance) {
	s.sleepUntil(in.At)
	err := s.retryUntilClear(ctx, "start "+in.ID, func(ctx context.Context) error { return s.start(ctx, in) })
	if err != nil && !(s.plan.clientsMayFail() && errors.Is(err, durable.ErrInstanceExists)) { // an interrupted attempt may have started the instance
		s.fault("start %s: %v", in.ID, err)
		return
	}
	var all sync.WaitGroup
	for _, event := range s.discardedEvents(in) {
		// The event may have arrived before, and the instance may have ended.
		all.Go(func() { s.raise(ctx, in, event, " sent", true) })
	}
	for _, e := range in.Raised {
		all.Go(func() {
			s.sleepUntil(e.At)
			s.raise(ctx, in, e.Name, " raised", s.plan.clientsMayFail()) // an interrupted attempt may have raised the event
		})
	}
	if in.Suspended > 0 {
		all.Go(func() { s.suspend(ctx, in) })
	}
	if in.Terminated > 0 {
		all.Go(func() {
			s.sleepUntil(in.Terminated)
			err := s.retryUntilClear(ctx, "terminate "+in.ID, func(ctx context.Context) error {
				return s.client.Terminate(ctx, durable.InstanceID(in.ID), s.plan.App.padded("enough"))
			})
			if err != nil && !(s.plan.clientsMayFail() && errors.Is(err, durable.ErrInstanceEnded)) { // an interrupted attempt may have terminated the instance
				s.fault("terminate %s: %v", in.ID, err)
			}
		})
	}
	all.Wait()
}

// raise raises an event with its name and how as payload. mayHaveEnded allows an instance that has ended.
func (s instanceRun) raise(ctx context.Context, in Instance, event, how string, mayHaveEnded bool) {
	err := s.retryUntilClear(ctx, "raise "+event+in.ID, func(ctx context.Context) error {
		return durable.Event[string](event).Raise(ctx, s.client, durable.InstanceID(in.ID), s.plan.App.padded(event+how))
	})
	if err != nil && !(mayHaveEnded && errors.Is(err, durable.ErrInstanceEnded)) {
		s.fault("raise %s for %s: %v", event, in.ID, err)
	}
}

// discardedEvents returns the events that other instances may have sent before the start of the instance was
// acknowledged. The hub has discarded these events.
func (s instanceRun) discardedEvents(in Instance) (events []string) {
	for _, step := range s.plan.App.Programs[in.Program].Steps {
		for _, from := range s.plan.App.Instances {
			if step.Kind == ReceiveStep && from.ID == step.Peer && time.Since(s.begin) > from.At+beforeSend {
				events = append(events, step.Event)
			}
		}
	}
	return events
}

// start starts an instance. Its execution ID depends on the seed, because the engine derives the IDs of
// children from it.
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
		started.ScheduledStart = history.TruncateToTicks(time.Now().Add(in.Delay))
	}
	var refuse []history.RuntimeStatus
	if s.plan.Cuts > 0 { // a repeated start must not begin a second execution
		refuse = allStatuses
	}
	return s.platform.Client().StartInstance(ctx, provider.TaskMessage{Event: started, Target: started.Instance}, refuse)
}

// suspend suspends an instance for a while if it has not ended.
func (s instanceRun) suspend(ctx context.Context, in Instance) {
	s.sleepUntil(in.Suspended)
	id := durable.InstanceID(in.ID)
	if err := s.retryUntilClear(ctx, "suspend "+in.ID, func(ctx context.Context) error { return s.client.Suspend(ctx, id, s.plan.App.padded("for a while")) }); err != nil {
		return
	}
	pause.For(ctx, suspension)
	_ = s.retryUntilClear(ctx, "resume "+in.ID, func(ctx context.Context) error { return s.client.Resume(ctx, id, s.plan.App.padded("again")) }) // fails if the Suspend has not arrived yet; awaitEnds then resumes the instance
}

// await waits for the end of an instance in the processes of workers until ctx ends. Most waits are shorter
// than the instance's life.
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
			pause.For(waits, stays) // the process does not know the instance yet
		} else if err == nil {
			pause.For(ctx, time.Minute)
		}
		cancel()
	}
}

// checkEnds compares the final state of all instances with the expected one, and checks all histories.
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
	for state, err := range s.client.AllInstances(ctx, durable.Query{}) {
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
		if len(past) == 0 && s.isRecreated(state) {
			continue
		}
		for _, what := range CheckHistory(past, state.Status == history.Terminated) {
			// A copy contains activities of generations that no checkpoint began, because the copy cannot
			// distinguish their activities from activities of older generations. A local file then accepts
			// two results.
			if len(s.plan.Moves) > 0 && strings.HasPrefix(what, history.TypeTaskScheduled.String()) && strings.HasSuffix(what, "was completed 2 times") {
				continue
			}
			s.fault("history of %s: %s", id, what)
		}
		if s.plan.App.Inline != 0 {
			s.checkReplays(id, past)
		}
	}
}

// checkReplays replays a history with the app's code, and the history after each episode in foreign code. A
// recorded step is a completed activity there, and an unrecorded step is an activity to schedule.
func (s instanceRun) checkReplays(id string, past []history.Event) {
	if err := s.plan.App.replayed().Verify(past); err != nil {
		s.fault("history of %s: %v", id, err)
	}
	foreign := s.plan.App.inForeignCode().replayed()
	for i, e := range past {
		if e.Type() != history.TypeOrchestratorCompleted && i+1 < len(past) {
			continue
		}
		if err := foreign.Verify(past[:i+1]); err != nil {
			s.fault("the first %d of %d events of %s in foreign code: %v", i+1, len(past), id, err)
			return
		}
	}
}

// restart restarts an instance as soon as it exists. The client gives up some attempts and repeats them.
func (s instanceRun) restart(ctx context.Context, r Restart) {
	s.sleepUntil(r.At)
	for deadline := time.Now().Add(patience); ; pause.For(ctx, interval) {
		err := s.retryUntilClear(ctx, "restart "+r.ID, func(ctx context.Context) error {
			_, err := s.client.Restart(ctx, durable.InstanceID(r.Of.ID), durable.InstanceID(r.ID))
			return err
		})
		switch {
		case err == nil, errors.Is(err, durable.ErrInstanceExists): // an interrupted attempt may have started it
			return
		case !errors.Is(err, durable.ErrInstanceNotFound), time.Now().After(deadline):
			s.fault("restart %s: %v", r.ID, err)
			return
		}
	}
}

// checkRestarts waits until restarted instances have ended and compares them with the expected outcome.
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

// awaitEnd waits for the end of an instance, up to the patience of the simulation, and returns its state.
func (s instanceRun) awaitEnd(ctx context.Context, id string) (*durable.InstanceState, error) {
	for deadline := time.Now().Add(patience); ; pause.For(ctx, interval) {
		state, err := s.client.Status(ctx, durable.InstanceID(id), durable.Fetch{Output: true})
		if err != nil || state.Status.IsTerminal() || time.Now().After(deadline) {
			return state, err
		}
	}
}
