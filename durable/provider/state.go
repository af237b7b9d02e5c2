package provider

import "github.com/durablefunctions-go/durablefunctions/durable/history"

// Commit brings s up to date by a checkpoint with new events.
func (s *InstanceState) Commit(cp *Checkpoint) {
	for _, e := range cp.NewEvents {
		s.Apply(e)
	}
	if s.Status == history.Pending { // it was rewound
		s.Status = history.Running
	}
	s.Instance, s.CustomStatus = cp.Instance, cp.CustomStatus
}

// Apply brings s up to date by an event of the instance's history
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// UpdateStateAsync). It reports whether the event has changed more than the time
// of the last update.
func (s *InstanceState) Apply(e history.Event) (changed bool) {
	s.LastUpdatedAt = e.Head().Timestamp
	status, changed := history.StatusAfter(e)
	if !changed {
		return false
	}
	switch e := e.(type) {
	case *history.ExecutionStarted:
		s.begin(e)
	case *history.ExecutionCompleted:
		s.Output, s.CompletedAt = e.Result, e.Timestamp
		if e.Failure != nil {
			s.Output = new(e.Failure.String())
		}
	case *history.ExecutionTerminated:
		s.Output, s.CompletedAt = e.Reason, e.Timestamp
	case *history.ExecutionSuspended:
		s.Output = e.Reason
	case *history.ExecutionResumed:
		s.Output = e.Reason
	case *history.ContinueAsNew:
		s.Output = e.Result
	}
	s.Status = status
	return true
}

// NewInstanceState returns the state of an instance that is started and has not
// run.
func NewInstanceState(start *history.ExecutionStarted) *InstanceState {
	s := new(InstanceState)
	s.begin(start)
	s.Status, s.LastUpdatedAt = history.Pending, start.Timestamp
	return s
}

// begin makes s the state of the execution that e begins. An execution that has
// ended leaves nothing.
func (s *InstanceState) begin(e *history.ExecutionStarted) {
	if s.Status.IsTerminal() && s.Instance.ExecutionID != e.Instance.ExecutionID {
		*s = InstanceState{LastUpdatedAt: s.LastUpdatedAt}
	}
	if s.CreatedAt.IsZero() {
		s.FirstCreatedAt = e.Timestamp
	}
	s.Instance = e.Instance
	s.Name, s.Version, s.Tags, s.Input = e.Name, e.Version, e.Tags, e.Input
	s.CreatedAt, s.ScheduledAt = e.Timestamp, e.ScheduledStart
	if e.Generation != nil {
		s.Generation = *e.Generation
	}
}
