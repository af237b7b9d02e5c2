package replay

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// An Action is something the orchestrator decided that its history does not
// have yet. ID is its number in program order, counted over all actions of the
// execution, and becomes the EventID of the event that records it.
type Action interface{ ActionID() int }

// ScheduleTask runs an activity.
type ScheduleTask struct {
	ID      int
	Name    string
	Version string
	Input   *string
	Tags    map[string]string
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
	InstanceID string // empty: derived from the parent's execution ID and ID
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
	Result  *string // output, failure message, reason; for ContinuedAsNew the next input
	Failure *history.FailureDetails
	// CarryOver holds the events that were not consumed, for the next generation.
	// Only set for ContinuedAsNew.
	CarryOver []*history.EventRaised
	// NewVersion is the version of the next generation; nil means that it has
	// the same. Only set for ContinuedAsNew.
	NewVersion *string
	// Suspended is set if the instance was suspended after it continued as new,
	// by an event of the same episode. The next generation has to get it after
	// CarryOver.
	Suspended *history.ExecutionSuspended
}

// ActionID returns a.ID.
func (a *ScheduleTask) ActionID() int { return a.ID }

// ActionID returns a.ID.
func (a *CreateTimer) ActionID() int { return a.ID }

// ActionID returns a.ID.
func (a *CreateSubOrchestration) ActionID() int { return a.ID }

// ActionID returns a.ID.
func (a *SendEvent) ActionID() int { return a.ID }

// ActionID returns a.ID.
func (a *Complete) ActionID() int { return a.ID }
