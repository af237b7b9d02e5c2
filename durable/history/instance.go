package history

// An OrchestrationInstance identifies an instance and one of its executions. A new execution starts
// when an ID is reused and with every continue-as-new.
type OrchestrationInstance struct {
	InstanceID string
	// ExecutionID is empty if it does not matter, as in the target of a raised event.
	ExecutionID string
}

// ParentInstance identifies the parent of a child, and the action that started the child.
type ParentInstance struct {
	Name           string
	Version        string
	Instance       OrchestrationInstance
	TaskScheduleID int // EventID of the parent's SubOrchestrationInstanceCreated
}

// RuntimeStatus is the status of an instance. The numbers are those in
// DurableTask.Core.OrchestrationStatus.
type RuntimeStatus int

// The runtime statuses.
const (
	Running RuntimeStatus = iota
	Completed
	ContinuedAsNew
	Failed
	Canceled
	Terminated
	Pending
	Suspended
)

var statusNames = [...]string{
	"Running", "Completed", "ContinuedAsNew", "Failed", "Canceled", "Terminated", "Pending", "Suspended",
}

// String returns DurableTask's name of the status, such as "Completed".
func (s RuntimeStatus) String() string {
	if s >= 0 && int(s) < len(statusNames) {
		return statusNames[s]
	}
	return "Unknown"
}

// ParseRuntimeStatus returns the status with the given name. ok is false if no status has this name.
func ParseRuntimeStatus(name string) (s RuntimeStatus, ok bool) {
	for i, n := range statusNames {
		if n == name {
			return RuntimeStatus(i), true
		}
	}
	return 0, false
}

// IsTerminal reports whether s is a final status: Completed, Failed, Canceled or Terminated.
func (s RuntimeStatus) IsTerminal() bool {
	switch s {
	case Completed, Failed, Canceled, Terminated:
		return true
	case Running, ContinuedAsNew, Pending, Suspended:
		return false
	}
	return false
}
