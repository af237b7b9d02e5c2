package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// checkEnds holds all instances against what they must have come to.
func (s *simulation) checkEnds(ctx context.Context) {
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

// cameLate reports whether an instance can be one that a request brought back which was
// delivered again after the instance was purged: its input is gone, and so it failed.
func (s *simulation) cameLate(state *durable.InstanceState) bool {
	return s.plan.Repeats > 0 && state.Status == history.Failed
}

// returned reports whether an output is that of an orchestration that came to a sum.
func (s *simulation) returned(output string, sum uint64) bool {
	var got Output
	return json.Unmarshal([]byte(output), &got) == nil && got == s.plan.App.output(sum)
}

// CheckHistory returns what must not be about the history of an execution that
// has ended: what was begun must have come to its end once and not more often.
// What an instance that was terminated began may be open, and so may timers, and
// what was begun by branches that nobody waited for.
func CheckHistory(past []history.Event, terminated bool) (faults []string) {
	begun, ended := map[int]history.EventType{}, map[int]int{}
	completions, brackets := 0, 0
	for _, e := range past {
		switch e := e.(type) {
		case *history.TaskScheduled, *history.SubOrchestrationInstanceCreated, *history.TimerCreated:
			id := e.Head().EventID
			if t, again := begun[id]; again {
				faults = append(faults, fmt.Sprintf("event %d is %v and %v", id, t, e.Type()))
			}
			begun[id] = e.Type()
		case *history.ExecutionCompleted, *history.ExecutionTerminated:
			completions++
		case *history.OrchestratorStarted:
			brackets++
		case *history.OrchestratorCompleted:
			brackets--
		}
		if id, ok := history.Completes(e); ok {
			ended[id]++
			if _, ok := begun[id]; !ok {
				faults = append(faults, fmt.Sprintf("%v of event %d, which is not before it", e.Type(), id))
			}
		}
	}
	if completions == 0 && !(terminated && len(past) == 0) { // it was terminated before it began
		faults = append(faults, "it has no end")
	}
	if brackets > 0 || brackets < -1 { // one that continued as new is closed twice, as in .NET
		faults = append(faults, fmt.Sprintf("%+d episodes are not closed", brackets))
	}
	faults = append(faults, checkTerminatedFirst(past)...)
	for id, t := range begun {
		n := ended[id]
		mayBeOpen := terminated || t == history.TypeTimerCreated
		if n > 1 || n == 0 && !mayBeOpen {
			faults = append(faults, fmt.Sprintf("%v %d was completed %d times", t, id, n))
		}
	}
	slices.Sort(faults)
	return faults
}

// checkTerminatedFirst returns what must not be about an execution whose first
// episode has its termination: that runs no code, which would decide something, or
// end the execution in a way of its own.
func checkTerminatedFirst(past []history.Event) (faults []string) {
	terminated := false
	for _, e := range past {
		switch e := e.(type) {
		case *history.OrchestratorCompleted:
			return faults
		case *history.ExecutionTerminated:
			terminated = true
		case *history.ExecutionCompleted:
			if terminated && e.Status != history.Terminated {
				faults = append(faults, fmt.Sprintf("it is %v although it was terminated before it began", e.Status))
			}
		case *history.TaskScheduled, *history.TimerCreated, *history.SubOrchestrationInstanceCreated, *history.EventSent:
			if terminated {
				faults = append(faults, fmt.Sprintf("it decided on %v although it was terminated before it began", e.Type()))
			}
		}
	}
	return faults
}

// purger is the name of the client that dies while it purges.
const purger = "purger"

// purgeHalf lets a client purge everything that dies meanwhile.
func (s *simulation) purgeHalf(ctx context.Context) {
	c, kill, err := s.platform.Caller(purger)
	if err != nil {
		s.fault("open client: %v", err)
		return
	}
	if s.plan.Purged > 0 {
		defer time.AfterFunc(s.plan.Purged, kill).Stop()
	}
	client := durable.NewClient(c, nil)
	for state, err := range client.All(ctx, durable.Query{}) {
		if err == nil {
			_, _ = client.Purge(ctx, durable.InstanceID(state.Instance.InstanceID)) // it is dead at some time
		}
	}
	s.awaitQuiet()
}

// checkPurge purges everything and looks what is left.
func (s *simulation) checkPurge(ctx context.Context) {
	if s.plan.Purger {
		s.purgeHalf(ctx)
	}
	var ids []durable.InstanceID
	for state, err := range s.client.All(ctx, durable.Query{}) {
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
		s.fault("left behind by purges: %s", what)
	}
}
