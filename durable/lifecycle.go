package durable

// LifecycleEvent reports to [Config.Lifecycle] that an orchestration has started or
// ended. An orchestration that continues as new reports Completed and then Running, as
// in .NET.
type LifecycleEvent struct {
	Name       string
	InstanceID InstanceID
	// Status is Running for a start. For an end it is Completed, Failed or Terminated.
	Status RuntimeStatus
	// Reason is the failure message, or the reason of the termination.
	Reason string
}
