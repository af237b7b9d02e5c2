package history

// An OrchestrationInstance names an instance and one execution of it. A new
// execution begins when an ID is started again and with every
// continue-as-new.
type OrchestrationInstance struct {
	InstanceID string
	// ExecutionID is empty where any execution will do, as in the target of a
	// raised event.
	ExecutionID string
}

// ParentInstance says who waits for a child and for which of its events.
type ParentInstance struct {
	Name           string
	Version        string
	Instance       OrchestrationInstance
	TaskScheduleID int // EventID of the parent's SubOrchestrationInstanceCreated
}

// RuntimeStatus is the state of an instance, with the numbers of
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

// String returns the name that DurableTask gives the status, such as
// "Completed".
func (s RuntimeStatus) String() string {
	if s >= 0 && int(s) < len(statusNames) {
		return statusNames[s]
	}
	return "Unknown"
}

// ParseRuntimeStatus returns the status with the given name; ok is false if
// there is none.
func ParseRuntimeStatus(name string) (s RuntimeStatus, ok bool) {
	for i, n := range statusNames {
		if n == name {
			return RuntimeStatus(i), true
		}
	}
	return 0, false
}

// IsTerminal reports whether an instance in status s has ended for good.
func (s RuntimeStatus) IsTerminal() bool {
	switch s {
	case Completed, Failed, Canceled, Terminated:
		return true
	case Running, ContinuedAsNew, Pending, Suspended:
		return false
	}
	return false
}
