package replay

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// An Action is a decision of the orchestrator that its history does not contain yet. ActionID
// returns its sequence number: actions are numbered in program order, from 0, over the whole
// execution. The number becomes the EventID of the event that records the action.
type Action interface{ ActionID() int }

// ScheduleTask runs an activity.
type ScheduleTask struct {
	ID      int
	Name    string
	Version string
	Input   *string
	Tags    map[string]string
}

// RunStep runs a step in the process that holds the instance. The history records it when it
// has ended, as an activity that was scheduled and completed at once.
type RunStep struct {
	ID      int
	Name    string
	Version string
	// DecidedAt is the time of the episode that decided the step.
	DecidedAt time.Time
	// First is the ID of the first attempt at the step. Attempt is the number of this attempt,
	// from 1.
	First, Attempt int
	// AtMostOnce records the start of the step before it runs.
	AtMostOnce bool
	// Poll, if not nil, makes the step a poll: its function is called until it is done.
	Poll *PollSchedule
	// Func is the step's function. Its type is defined by the package that runs steps.
	Func any
}

// PollAt returns the number of the last call of the poll's function that is due at now, its time,
// and the time of the next call. The step must be a poll.
func (a *RunStep) PollAt(now time.Time) (n int, last, next time.Time) {
	return a.Poll.at(a.DecidedAt, now)
}

// CreateTimer wakes the orchestrator at FireAt.
type CreateTimer struct {
	ID     int
	FireAt time.Time
}

// CreateSubOrchestration starts a child.
type CreateSubOrchestration struct {
	ID         int
	Name       string
	Version    string
	InstanceID string // empty: derived from the parent's execution ID and the action's ID
	Input      *string
	Tags       map[string]string
}

// SendEvent raises an event on another instance.
type SendEvent struct {
	ID         int
	InstanceID string
	Name       string
	Input      *string
}

// Complete ends the execution. It is always the last action.
type Complete struct {
	ID int
	// Status is Completed, Failed, Terminated or ContinuedAsNew.
	Status  history.RuntimeStatus
	Result  *string // output, failure message or reason; for ContinuedAsNew the next input
	Failure *history.FailureDetails
	// CarryOver holds the unread external events for the next generation. Only set for
	// ContinuedAsNew.
	CarryOver []*history.EventRaised
	// NewVersion is the version of the next generation; nil keeps the version. Only set for
	// ContinuedAsNew.
	NewVersion *string
	// Suspended is set if a later event of the episode that continued as new suspended the
	// instance. The next generation must receive it after CarryOver.
	Suspended *history.ExecutionSuspended
}

// ActionID returns a.ID.
func (a *ScheduleTask) ActionID() int { return a.ID }

// ActionID returns a.ID.
func (a *RunStep) ActionID() int { return a.ID }

// ActionID returns a.ID.
func (a *CreateTimer) ActionID() int { return a.ID }

// ActionID returns a.ID.
func (a *CreateSubOrchestration) ActionID() int { return a.ID }

// ActionID returns a.ID.
func (a *SendEvent) ActionID() int { return a.ID }

// ActionID returns a.ID.
func (a *Complete) ActionID() int { return a.ID }
