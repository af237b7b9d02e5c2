package provider

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Fetch selects the large fields of an instance to read.
type Fetch struct {
	Input  bool
	Output bool
}

// InstanceState is the state of an instance, without its history.
type InstanceState struct {
	Instance      history.OrchestrationInstance
	Name          string
	Version       string
	Status        history.RuntimeStatus
	Input         *string // nil if there is none or it was not read
	Output        *string
	CustomStatus  *string   // JSON text; nil if none was set
	CreatedAt     time.Time // of this generation: continuing as new makes another
	LastUpdatedAt time.Time
	CompletedAt   time.Time // zero while not completed
	ScheduledAt   time.Time // zero if the instance was to start at once
	Generation    int
	Tags          map[string]string

	// FirstCreatedAt is the time at which a client or a parent started the instance.
	// It is the same in all generations and after a rewind. Zero if it is not known,
	// as of an instance that another program started.
	FirstCreatedAt time.Time
}

// Commit brings s up to date by a checkpoint with new events. It reports whether
// that has changed more than the time of the last update and the custom status.
func (s *InstanceState) Commit(cp *Checkpoint) (changed bool) {
	for _, e := range cp.NewEvents {
		changed = s.Apply(e) || changed
	}
	if s.Status == history.Pending { // it was rewound
		s.Status, changed = history.Running, true
	}
	s.Instance, s.CustomStatus = cp.Instance, cp.CustomStatus
	return changed
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

// SameAs reports whether an instance has not changed since its state was seen: the
// same execution has the same status and the same last update. A nil state is the
// zero state.
func (s *InstanceState) SameAs(seen *InstanceState) bool {
	if s == nil {
		s = new(InstanceState)
	}
	if seen == nil {
		seen = new(InstanceState)
	}
	return s.Instance.ExecutionID == seen.Instance.ExecutionID && s.Status == seen.Status && s.LastUpdatedAt.Equal(seen.LastUpdatedAt)
}
