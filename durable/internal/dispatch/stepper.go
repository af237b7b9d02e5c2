package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A Stepper runs the episodes of one instance for a caller without a [Dispatcher], such as a
// hub in virtual time. The caller fetches the work items, provides the clock and commits the
// checkpoints. A Stepper holds the orchestrator in memory between episodes.
type Stepper struct {
	// OnGeneration, if not nil, is called after each generation of an episode.
	OnGeneration func(GenerationRun)

	x       execution
	label   string // of the goroutines that run code
	past    []history.Event
	resumed bool            // the next generation to run is in memory
	results []history.Event // of steps that have ended
}

// GenerationRun describes what one generation did in an episode.
type GenerationRun struct {
	Start *history.ExecutionStarted
	Code  replay.Code
	// Past is the history before the episode. Fresh are the events that the episode started
	// with.
	Past, Fresh []history.Event
	Outcome     replay.Outcome
}

// NewStepper returns a Stepper that takes the times of events from now. The caller must close
// it.
func NewStepper(now func() time.Time) *Stepper {
	s := &Stepper{label: replayLabel()}
	s.x = execution{
		now:      now,
		stopping: func() bool { return false },
		limit:    s.limit,
		ran:      s.ran,
	}
	return s
}

// Step runs the episode that takes the item's messages. The item must contain its whole
// history, and the last checkpoint must have been committed. Dropped describes each discarded
// message and the reason. The error is a *[StallError] if the orchestrator does not yield. It
// is then no longer in memory.
func (s *Stepper) Step(functions Functions, item *provider.OrchestrationWorkItem) (cp *provider.Checkpoint, dropped []string, err error) {
	s.past, s.resumed = item.History, s.x.live != nil
	if s.x.start == nil {
		s.x.start = history.StartOf(item.History)
	}
	past := item.History
	if s.resumed {
		past = nil
	}
	cp, lost, err := s.x.runMessages(functions, item.Instance, past, item.Messages, s.results)
	s.results = nil
	if _, ok := errors.AsType[*StallError](err); ok {
		s.x.live = nil
	}
	for _, m := range lost {
		dropped = append(dropped, m.message.Event.Type().String()+": "+m.reason)
	}
	return cp, dropped, err
}

func (s *Stepper) ran(past, fresh []history.Event, outcome replay.Outcome) {
	if s.resumed {
		past, s.resumed = s.past, false
	}
	if s.OnGeneration != nil {
		s.OnGeneration(GenerationRun{Start: s.x.start, Code: s.x.code, Past: past, Fresh: fresh, Outcome: outcome})
	}
}

// NewSteps returns the steps that the last episode decided. The caller runs them with [RunStep].
func (s *Stepper) NewSteps() []*replay.RunStep { return s.x.newSteps }

// AddResult makes the next episode record the result of a step.
func (s *Stepper) AddResult(record []history.Event) { s.results = append(s.results, record...) }

// Instance returns the execution that ran last or runs next.
func (s *Stepper) Instance() history.OrchestrationInstance {
	if s.x.start == nil {
		return history.OrchestrationInstance{}
	}
	return s.x.start.Instance
}

// Execution returns the orchestrator in memory, or nil.
func (s *Stepper) Execution() *replay.Execution { return s.x.live }

// Ended reports whether the instance has ended.
func (s *Stepper) Ended() bool { return s.x.ended }

// Close unloads the orchestrator. The error is a *[StallError] if a deferred call does not
// return.
func (s *Stepper) Close() error {
	live := s.x.live
	if live == nil {
		return nil
	}
	s.x.live = nil
	return s.limit(&s.x, live.Close, func() {})
}

// limit runs f, which runs code of x, with [ReplayLimit].
func (s *Stepper) limit(x *execution, f, late func()) error {
	if stall := newLimitedRun(s.label, x.start, x.progress, late).wait(f); stall != nil {
		return stall
	}
	return nil
}

// IsUnknownFunction reports whether err means that the worker lacks a function.
func IsUnknownFunction(err error) bool {
	_, ok := errors.AsType[*unknownFunctionError](err)
	return ok
}

// RunActivity runs an activity on the caller's goroutine and returns the event with its result.
// The event has the time of the activity's end. A panic fails the activity; a runtime.Goexit
// ends the caller.
func RunActivity(ctx context.Context, fn func(context.Context, *string) (*string, error), w *provider.ActivityWorkItem, now func() time.Time) history.Event {
	r := invoke(withActivityInfo(ctx, w), fn, w.Task.Input)
	return r.event(w.Task.EventID, now())
}

// RunStep runs a step on the caller's goroutine and returns the events that record its result, with the time
// of the step's end. They include the start of a step that runs at most once. A function f that is not nil
// replaces the step's function. If the step is a poll that is not done, RunStep returns nil.
func RunStep(ctx context.Context, step *replay.RunStep, f StepFunc, instance history.OrchestrationInstance, now func() time.Time) []history.Event {
	if f == nil {
		f = step.Func.(StepFunc)
	}
	s := startedStep{RunStep: step, scheduled: scheduledStep(step)}
	r, again := invokeStep(s.withInfo(ctx, instance, now()), f)
	if again {
		return nil
	}
	record := stepResult{s, r, now()}.record()
	if step.AtMostOnce {
		record = append(s.recordStart(now()), record...)
	}
	return record
}

type pauseKey struct{}

// WithPause returns a context whose steps call f instead of pausing between attempts in memory.
func WithPause(ctx context.Context, f func(time.Duration)) context.Context {
	return context.WithValue(ctx, pauseKey{}, f)
}

// PauseStep pauses between two attempts at a step. It returns false if ctx has ended.
func PauseStep(ctx context.Context, d time.Duration) bool {
	if f, ok := ctx.Value(pauseKey{}).(func(time.Duration)); ok {
		f(d)
		return ctx.Err() == nil
	}
	return pause.For(ctx, d)
}
