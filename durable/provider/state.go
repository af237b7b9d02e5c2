package provider

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Fetch selects which large fields of an instance are read.
type Fetch struct {
	Input  bool
	Output bool
}

// InstanceState is the state of an instance without its history.
type InstanceState struct {
	Instance      history.OrchestrationInstance
	Name          string
	Version       string
	Status        history.RuntimeStatus
	Input         *string // nil if absent or not fetched
	Output        *string
	CustomStatus  *string   // JSON text; nil if not set
	CreatedAt     time.Time // start of the current execution; see FirstCreatedAt
	LastUpdatedAt time.Time
	CompletedAt   time.Time // zero until the instance ends
	ScheduledAt   time.Time // zero for an immediate start
	Generation    int       // number of earlier starts with the same ID, as far as the hub knows
	Tags          map[string]string

	// FirstCreatedAt is the time at which a client or a parent started the instance. It stays
	// the same when the instance continues as new or is rewound. It is zero if it is unknown,
	// for example because another program started the instance.
	FirstCreatedAt time.Time
}

// Commit updates s with a checkpoint that has new events. It reports whether more than
// LastUpdatedAt and CustomStatus has changed.
func (s *InstanceState) Commit(cp *Checkpoint) (changed bool) {
	for _, e := range cp.NewEvents {
		changed = s.Apply(e) || changed
	}
	if s.Status == history.Pending { // the instance was rewound
		s.Status, changed = history.Running, true
	}
	s.Instance = cp.Instance
	if !cp.KeepCustomStatus {
		s.CustomStatus = cp.CustomStatus
	}
	return changed
}

// Apply updates s with an event of the instance's history. It reports whether more than
// LastUpdatedAt has changed. It follows
// DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs, UpdateStateAsync.
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

// NewInstanceState returns the state of an instance that has been started but has not run.
func NewInstanceState(start *history.ExecutionStarted) *InstanceState {
	s := new(InstanceState)
	s.begin(start)
	s.Status, s.LastUpdatedAt = history.Pending, start.Timestamp
	return s
}

// begin sets s to the state of the execution that e begins. If another execution has ended
// before, begin first resets all fields except LastUpdatedAt.
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

// SameAs reports whether the instance is unchanged since seen was read: it has the same
// execution, status and LastUpdatedAt. A nil state counts as the zero state.
func (s *InstanceState) SameAs(seen *InstanceState) bool {
	if s == nil {
		s = new(InstanceState)
	}
	if seen == nil {
		seen = new(InstanceState)
	}
	return s.Instance.ExecutionID == seen.Instance.ExecutionID && s.Status == seen.Status && s.LastUpdatedAt.Equal(seen.LastUpdatedAt)
}
