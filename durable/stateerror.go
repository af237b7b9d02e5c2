package durable

import "fmt"

// InstanceStateError means that the status of an instance does not allow an operation.
// It matches [ErrInstanceEnded] with errors.Is if the instance has ended.
type InstanceStateError struct {
	InstanceID InstanceID
	// Operation is one of the Operation constants, or "raise event " followed by the
	// name of the event.
	Operation string
	Status    RuntimeStatus
}

// Values of [InstanceStateError.Operation].
const (
	OperationTerminate = "terminate"
	OperationSuspend   = "suspend"
	OperationResume    = "resume"
	OperationRewind    = "rewind"
	OperationPurge     = "purge"
)

// Error returns the message of the .NET extension
// (ContextImplementations/DurableClient.cs and HttpApiHandler.cs).
func (e *InstanceStateError) Error() string {
	switch e.Operation {
	case OperationRewind:
		return fmt.Sprintf("This orchestration has status %s, but only orchestrations in the \"Failed\" state can be rewound.", e.Status)
	case OperationPurge:
		return fmt.Sprintf("Only orchestrations in a terminal state can be purged, but the orchestration with instance ID %s has status %s", e.InstanceID, e.Status)
	case OperationTerminate, OperationSuspend, OperationResume:
		return fmt.Sprintf("Cannot %s the orchestration instance %s because instance is in the %s state.", e.Operation, e.InstanceID, e.Status)
	default:
		return fmt.Sprintf("Cannot %s for orchestration instance %s because instance is in %s state", e.Operation, e.InstanceID, e.Status)
	}
}

// Is reports whether target is [ErrInstanceEnded] and the instance has ended.
func (e *InstanceStateError) Is(target error) bool {
	return target == ErrInstanceEnded && e.Status.IsTerminal()
}
