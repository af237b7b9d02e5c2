package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/crashes"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A startedStep is a step with the event that records it.
type startedStep struct {
	*replay.RunStep
	scheduled *history.TaskScheduled
	due       time.Time // time of the call that a poll has waited for; zero if it has not waited
}

// pollAt calls [replay.RunStep.PollAt] for now, or for s.due if that is later because the clock was set back.
func (s startedStep) pollAt(now time.Time) (n int, last, next time.Time) {
	if s.due.After(now) {
		now = s.due
	}
	return s.PollAt(now)
}

// withInfo returns ctx with the [ActivityInfo] of a step that runs at now. TaskID is the number of its first
// attempt.
func (s startedStep) withInfo(ctx context.Context, instance history.OrchestrationInstance, now time.Time) context.Context {
	info := ActivityInfo{Instance: instance, Name: s.Name, TaskID: s.First, Attempt: s.Attempt, Version: s.Version}
	if s.Poll != nil {
		info.Poll, _, _ = s.pollAt(now)
	}
	return context.WithValue(ctx, activityInfoKey{}, info)
}

// recordStart returns the events that record the start of a step that runs at most once.
func (s startedStep) recordStart(at time.Time) []history.Event {
	return []history.Event{s.scheduled, history.NewStepStart(s.ID, at)}
}

// work returns the key of the step's crash count.
func (s startedStep) work(i history.OrchestrationInstance) string {
	return crashes.WorkName("step", s.Name, i.ExecutionID, s.ID, i.InstanceID)
}

// waitsSince returns the time at which the step started to wait for a slot. For a poll it is the time of the
// last due call.
func (s startedStep) waitsSince(now time.Time) time.Time {
	if s.Poll == nil {
		return s.DecidedAt
	}
	_, last, _ := s.pollAt(now)
	return last
}

type stepResult struct {
	startedStep
	taskResult
	at time.Time
}

// record returns the events that record the result.
func (r stepResult) record() []history.Event {
	completion := r.event(r.ID, r.at)
	if r.AtMostOnce { // its start is recorded
		return []history.Event{completion}
	}
	return []history.Event{r.scheduled, completion}
}

// interruptedSteps returns a failure for each step that runs at most once and whose start, but no result, is
// in past.
func interruptedSteps(past []history.Event, now time.Time) (failures []history.Event) {
	for _, scheduled := range history.InterruptedSteps(past) {
		f := &history.FailureDetails{
			ErrorType: provider.OutcomeUnknownFailure, IsNonRetriable: true,
			ErrorMessage: fmt.Sprintf("the process that ran step %s ended before it recorded the result; the outcome is unknown", scheduled.Name),
		}
		failures = append(failures, taskResult{failure: f}.event(scheduled.EventID, now))
	}
	return failures
}
