package durable

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A LifecycleEvent is the beginning or the end of an orchestration, for
// [Config.Lifecycle]. An orchestration that continues as new ends, Completed, and begins
// again, as in .NET.
type LifecycleEvent struct {
	Name       string
	InstanceID InstanceID
	// Status is Running for an orchestration that began, and else how it ended:
	// Completed, Failed or Terminated.
	Status history.RuntimeStatus
	// Reason is the failure's message, or what the termination's sender gave.
	Reason string
}
