package replay

import (
	"errors"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// continueAsNew is the error by which an orchestrator says that it wants to go
// on as a new execution.
type continueAsNew struct {
	input *string
	how   Continuation
}

// A Continuation says how an execution goes on as a new one.
type Continuation struct {
	// DiscardEvents leaves events behind that nobody consumed.
	DiscardEvents bool
	// NewVersion is the version of the new execution; nil means the same.
	NewVersion *string
}

func (*continueAsNew) Error() string {
	return "durable: the orchestration continues as new; the orchestrator must return this error"
}

// ContinueAsNew returns the error that an orchestrator must return, wrapped or
// not, to go on as a new execution with the given input.
func (x *Execution) ContinueAsNew(input *string) error {
	return x.ContinueAsNewAs(input, Continuation{})
}

// ContinueAsNewAs is ContinueAsNew with all that can be said of how.
func (x *Execution) ContinueAsNewAs(input *string, how Continuation) error {
	x.check("ContinueAsNew")
	x.renewed = true
	return &continueAsNew{input, how}
}

// returned ends the execution with what the orchestrator returned. It runs in
// the orchestrator's coroutine, so that the methods of a user's error do too.
func (x *Execution) returned(output *string, err error) {
	x.group.Stop() // branches take no further step
	var next *continueAsNew
	switch {
	case errors.As(err, &next):
		end := x.finish(history.ContinuedAsNew, nil)
		end.Result, end.NewVersion = next.input, next.how.NewVersion
		x.discards = next.how.DiscardEvents
	case x.renewed:
		x.finish(history.Failed, FailureOf(x.misuse(
			"the orchestrator called ContinueAsNew and returned something else; end it with: return durable.ContinueAsNew(ctx, ...)",
		)))
	case err != nil:
		failure := FailureOf(err)
		x.finish(history.Failed, failure).Result = new(reasonOf(err, failure))
	default:
		x.finish(history.Completed, nil).Result = output
	}
}

// finish decides how the execution ends, in place of how it was to end before,
// if it was.
func (x *Execution) finish(status history.RuntimeStatus, failure *history.FailureDetails) *Complete {
	c := &Complete{Status: status, Failure: failure}
	if failure != nil {
		c.Result = new(failure.ErrorMessage)
	}
	if x.complete != nil {
		x.actions.drop(x.complete)
	}
	if !x.diverged {
		x.release(x.entities.section)
	}
	x.complete = c
	x.actions.add(c, &c.ID)
	return c
}

// terminate ends the execution from outside. What was decided before counts,
// as if it had been an earlier episode, unless the instance was suspended.
//
// An execution that continues as new and is terminated by the same episode is
// terminated: its next generation would not get the message.
func (x *Execution) terminate(e *history.ExecutionTerminated) {
	if x.over || x.complete != nil && x.complete.Status != history.ContinuedAsNew && !x.withheld {
		return
	}
	if x.suspended || x.withheld {
		x.actions.clear()
	}
	x.withheld = false
	x.finish(history.Terminated, nil).Result = e.Reason
	x.group.Close()
}
