package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An unknownFunctionError says that a worker has no function of a name. Another
// worker of the hub may have it. Or it has one and does not call it, for what has
// crashed the process is set aside.
type unknownFunctionError struct {
	kind, name, version string
	crashed             bool
}

// why says why something is held back, for the log.
func (e *unknownFunctionError) why() string {
	if e.crashed {
		return "a goroutine of it has ended the process with a panic, again and again. Mend the function, then suspend and resume the instance, or delete the file of crashes"
	}
	return "this worker does not know its function"
}

func (e *unknownFunctionError) Error() string {
	if e.crashed {
		return fmt.Sprintf("%s %q is set aside: %s", e.kind, e.name, e.why())
	}
	if e.version != "" {
		return fmt.Sprintf("this worker has no %s named %q for version %s", e.kind, e.name, e.version)
	}
	return fmt.Sprintf("this worker has no %s named %q", e.kind, e.name)
}

// Failure returns what histories are told.
func (e *unknownFunctionError) Failure() *history.FailureDetails {
	return &history.FailureDetails{ErrorType: UnknownFunctionFailure, ErrorMessage: e.Error(), IsNonRetriable: true}
}

// UnknownFunctionFailure is the type of the failure of what waited for a function
// that no worker knew.
const UnknownFunctionFailure = "FunctionNotFound"

// unknownPolicy says what becomes of what needs a function that the worker does not
// know.
type unknownPolicy struct {
	// after is how long what has not begun waits for a worker that knows the
	// function before it fails. Zero is for ever, and less than zero not at all.
	after time.Duration
	// begun says that what has begun fails then, too.
	begun bool
}

// fails reports whether what could have run since due is to fail at now.
func (p unknownPolicy) fails(due, now time.Time, begun bool) bool {
	return p.after != 0 && now.Sub(due) >= p.after && (p.begun || !begun)
}

// hold returns err, with the time at which what is held back by it is to fail, if it is.
func (p unknownPolicy) hold(err error, due time.Time, begun bool) error {
	if p.after <= 0 || begun && !p.begun {
		return err
	}
	return &provider.HeldError{Cause: err, Until: due.Add(p.after + time.Second)} // storage may count in whole seconds
}

// takeWithoutCode runs an episode of an execution whose code is not to be had, if
// that needs none: it is terminated by the episode, or suspended at its end, or it is
// to fail. Otherwise it returns held, which says why there is no code.
func (x *execution) takeWithoutCode(past, arrived []history.Event, held error) (*provider.Checkpoint, error) {
	cp, err := x.episode(nil, past, arrived)
	if err != nil || x.ended {
		return cp, err
	}
	suspended := x.live.IsSuspended()
	x.close() // who goes on has the code
	if suspended {
		return cp, nil
	}
	unknown, ok := errors.AsType[*unknownFunctionError](held)
	due, begun := dueOf(x.start), len(past) > 0
	switch {
	case !ok || unknown.crashed:
		return nil, held
	case !x.unknown.fails(due, x.now(), begun):
		return nil, x.unknown.hold(held, due, begun)
	}
	x.failure = unknown.Failure()
	return x.episode(nil, past, arrived)
}

// holdEntity returns why operations of an entity whose function is not known are held
// back, nil if they are to fail. One that does not exist has not begun.
func (d *Dispatcher) holdEntity(w *provider.OrchestrationWorkItem, f *unknownFunctionError) error {
	var begun bool
	if start := history.StartOf(w.History); start != nil {
		state, err := entity.DecodeState(start.Input)
		if err != nil {
			return f
		}
		begun = state.Text != nil
	}
	if f.crashed || len(w.Messages) == 0 {
		return f
	}
	due, policy := w.Messages[0].Event.Head().Timestamp, d.config.unknown()
	if delayed, ok := provider.EntityDue(w.Messages[0]); ok && delayed.After(due) {
		due = delayed
	}
	if policy.fails(due, d.config.Now(), begun) {
		return nil
	}
	return policy.hold(f, due, begun)
}

// failAll is the code of an entity that nobody knows.
func (e *unknownFunctionError) failAll(_ context.Context, op *entity.Operation) entity.Result {
	return entity.Result{State: op.State, Failure: e.Failure()}
}

// dueOf returns when an instance could begin.
func dueOf(start *history.ExecutionStarted) time.Time {
	if start.ScheduledStart.After(start.Timestamp) {
		return start.ScheduledStart
	}
	return start.Timestamp
}

func hasTermination(events []history.Event) bool {
	return slices.ContainsFunc(events, func(e history.Event) bool { return e.Type() == history.TypeExecutionTerminated })
}

// waits remembers that an instance waits for a function, and returns the level at
// which that is to be logged: once as a warning, or as an error if it is set aside.
func (d *Dispatcher) waits(instanceID string, f *unknownFunctionError) slog.Level {
	switch isNew := d.config.Waiting.add(instanceID, f, d.config.Now()); {
	case isNew && f.crashed:
		return slog.LevelError
	case isNew:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// noCrash says that work has got to its end, so that it may crash again.
func (d *Dispatcher) noCrash(work string) {
	if err := d.config.Crashes.Done(work); err != nil {
		d.log.Warn("cannot write the file of crashes", "error", err)
	}
}

// resumed takes up again what is set aside of an instance.
func (d *Dispatcher) resumed(instanceID string) {
	if err := d.config.Crashes.Resume(instanceID); err != nil {
		d.log.Warn("cannot write the file of crashes", "error", err)
	}
}

func hasResumption(messages []provider.TaskMessage) bool {
	return slices.ContainsFunc(messages, func(m provider.TaskMessage) bool { return m.Event.Type() == history.TypeExecutionResumed })
}

// failureOfUnknown returns what to answer for an activity whose function is not
// known, nil if it is to wait for a worker that knows it. What nobody waits for is
// answered to be rid of it: whoever gets the answer drops it.
func (d *Dispatcher) failureOfUnknown(ctx context.Context, w *provider.ActivityWorkItem, f *unknownFunctionError, log *slog.Logger) *history.FailureDetails {
	now := d.config.Now()
	if !f.crashed && d.config.unknown().fails(w.Task.Timestamp, now, true) {
		log.Warn("activity fails: this worker does not know its function")
		return f.Failure()
	}
	if now.Sub(w.Task.Timestamp) < lateRow {
		return nil
	}
	hub, ok := d.provider.(interface {
		Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error)
	})
	if !ok {
		return nil
	}
	state, err := hub.Instance(ctx, w.Instance.InstanceID, provider.Fetch{})
	switch {
	case errors.Is(err, provider.ErrInstanceNotFound):
	case err != nil:
		return nil
	case !state.Status.IsTerminal() && state.Instance.ExecutionID == w.Instance.ExecutionID:
		return nil
	}
	log.Info("activity is dropped: its orchestration has ended, and " + f.why())
	return f.Failure()
}

// lateRow is how much later than an activity is scheduled what is told of its
// instance may be of the time before.
const lateRow = 5 * time.Minute
