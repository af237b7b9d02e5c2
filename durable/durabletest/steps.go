package durabletest

import (
	"context"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A waitingPoll is a poll of an execution whose next call is due at a given time.
type waitingPoll struct {
	*replay.RunStep
	execution history.OrchestrationInstance
	due       time.Time
}

// duePolls removes the polls that are due, and returns the ones that the current execution called. It returns none while
// the instance is suspended.
func (i *instance) duePolls(now time.Time) (due []*replay.RunStep) {
	if live := i.Execution(); live == nil || live.IsSuspended() {
		return nil
	}
	i.polls = slices.DeleteFunc(i.polls, func(p waitingPoll) bool {
		isDue := !p.due.After(now)
		if isDue && p.execution == i.Instance() {
			due = append(due, p.RunStep)
		}
		return isDue
	})
	return due
}

// step runs a step on the calling goroutine. The instance records its result in its next episode.
func (h *Hub) step(i *instance, step *replay.RunStep) {
	h.t.Helper()
	run, execution := new(activityRun), i.Instance()
	ctx := dispatch.WithPause(context.WithValue(h.ctx, activityRunKey{}, run), run.spend)
	record := dispatch.RunStep(ctx, step, h.stepStubs[step.Name], execution, h.Now)
	if record == nil {
		h.pollAgain(i, step, h.Now().Add(time.Duration(run.takes.Load())))
		return
	}
	if f, ok := record[len(record)-1].(*history.TaskFailed); ok && f.Failure.StackTrace != nil {
		h.t.Logf("durabletest: step %q (task %d of instance %q) ended by a panic: %s\n%s",
			step.Name, step.ID, execution.InstanceID, f.Failure, *f.Failure.StackTrace)
	}
	finish := func() {
		if h.instances[execution.InstanceID] != i || i.Instance() != execution {
			return // the execution has ended
		}
		h.checkRepetition(i, step)
		i.AddResult(record)
		if err := h.store.Send(h.ctx, provider.WakeSteps(execution, h.Now())); err != nil {
			h.t.Fatalf("durabletest: record step %q: %v", step.Name, err)
		}
	}
	if takes := time.Duration(run.takes.Load()); takes > 0 {
		end := h.Now().Add(takes)
		record[len(record)-1].Head().Timestamp = history.TruncateToTicks(end)
		h.at(end, finish)
		return
	}
	finish()
}

// pollAgain makes the function of a poll run again when it is due. The previous call ended at the given time.
func (h *Hub) pollAgain(i *instance, step *replay.RunStep, ended time.Time) {
	h.t.Helper()
	_, _, next := step.PollAt(ended)
	i.polls = append(i.polls, waitingPoll{step, i.Instance(), next})
	if err := h.store.Send(h.ctx, provider.WakePolls(i.Instance(), next, []int{step.ID})); err != nil {
		h.t.Fatalf("durabletest: wait for poll %q: %v", step.Name, err)
	}
}

// checkRepetition fails the test unless a worker would run the step again after a crash that loses its
// result.
func (h *Hub) checkRepetition(i *instance, step *replay.RunStep) {
	h.t.Helper()
	events, err := h.store.History(h.ctx, i.Instance().InstanceID)
	if err != nil {
		h.t.Fatalf("durabletest: instance %q: %v", i.Instance().InstanceID, err)
	}
	start := history.StartOf(events)
	code, ok := h.silent().Orchestrator(start.Name, start.Version)
	if !ok {
		return
	}
	repeats := false
	err = dispatch.RunWithLimit(start, code, func(code replay.Code) {
		again := replay.New(start.Instance, code)
		defer again.Close()
		again.Episode(events, nil)
		other := again.UnrecordedStep(step.ID)
		repeats = other != nil && other.Name == step.Name
	})
	if err != nil || !repeats {
		h.t.Fatalf("durabletest: orchestrator %q is not deterministic: after a crash, the replay of instance %q does not repeat step %q (decision %d). %v\n%s",
			start.Name, start.Instance.InstanceID, step.Name, step.ID, err, advice)
	}
}
