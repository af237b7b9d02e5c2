package durable

import "github.com/durablefunctions-go/durablefunctions/durable/history"

// RuntimeStatus is the status of an instance. [InstanceState.Status] has it.
type RuntimeStatus = history.RuntimeStatus

// The statuses of instances. IsTerminal reports whether a status is one of an ended
// instance.
const (
	StatusPending        = history.Pending        // started; its first episode is not stored yet
	StatusRunning        = history.Running        // running, or waiting for tasks
	StatusSuspended      = history.Suspended      // waits for [Client.Resume]
	StatusContinuedAsNew = history.ContinuedAsNew // between two executions; not stored by this package
	StatusCompleted      = history.Completed      // ended with an output
	StatusFailed         = history.Failed         // ended with an error
	StatusTerminated     = history.Terminated     // ended by [Client.Terminate]
	StatusCanceled       = history.Canceled       // ended by another program; not stored by this package
)
