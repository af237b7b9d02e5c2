package durable

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
)

// A LifecycleEvent says that an orchestration began or ended, for whoever
// [Config.Lifecycle] tells. One that continues as new ends, Completed, and begins
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

// lifecycle returns what a dispatcher tells of instances, nil if nobody listens.
func (c Config) lifecycle() func(dispatch.LifecycleEvent) {
	if c.Lifecycle == nil {
		return nil
	}
	return func(e dispatch.LifecycleEvent) {
		c.Lifecycle(LifecycleEvent{Name: e.Name, InstanceID: InstanceID(e.InstanceID), Status: e.Status, Reason: e.Reason})
	}
}
