package durable

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
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
	Status        RuntimeStatus
	Input         *string   // JSON; nil if absent or not fetched
	Output        *string   // JSON, or the reason of a failure or termination; nil if absent or not fetched
	CustomStatus  *string   // JSON; nil if not set
	CreatedAt     time.Time // creation of the current execution: continue-as-new changes it; see FirstCreatedAt
	LastUpdatedAt time.Time
	CompletedAt   time.Time // zero if the instance has not ended
	ScheduledAt   time.Time // zero for an immediate start
	Generation    int       // number of earlier starts with the same ID, as far as the hub knows
	Tags          map[string]string

	// FirstCreatedAt is the time at which a client or a parent started the instance. It
	// stays the same when the instance continues as new or is rewound. It is zero if
	// unknown, for example if another program started the instance.
	FirstCreatedAt time.Time
}

// Query selects instances that match all conditions that are set.
type Query struct {
	CreatedFrom time.Time       // inclusive; zero means no limit
	CreatedTo   time.Time       // inclusive; zero means no limit
	Statuses    []RuntimeStatus // empty means any
	IDPrefix    string          // empty means any
	Name        string          // name of the orchestrator; empty means any
	// ExcludeEntities excludes instances whose ID starts with "@".
	ExcludeEntities bool
	Fetch           Fetch
	PageSize        int // 0 means the provider's default
	// PageBytes ends a page when the inputs, outputs, custom statuses and tags on it
	// reach this size in bytes. The instance that reaches it is on the page. 0 means 16
	// MiB.
	PageBytes    int
	Continuation string // Page.Continuation of the previous page
}

// Page is one page of the result of a [Query]. A page with a continuation can be empty
// or have fewer instances than Query.PageSize.
type Page struct {
	Instances []*InstanceState
	// Continuation is the [Query.Continuation] of the next page. It is empty on the last
	// page, and always valid in an HTTP header.
	Continuation string
	// Unreadable lists instances that are missing from Instances because their records
	// cannot be read. They may or may not match the query.
	Unreadable []UnreadableInstance
}

// UnreadableInstance is an instance whose record cannot be decoded, or whose payload is
// missing. It can also stand for a range of IDs: InstanceID is then the first possible
// ID, and Cause names the range. An outage fails the query instead.
type UnreadableInstance struct {
	InstanceID string
	Cause      error
}

// rows converts q to the type of package provider.
func (q Query) rows() provider.Query {
	return provider.Query{
		CreatedFrom: q.CreatedFrom, CreatedTo: q.CreatedTo, Statuses: q.Statuses, IDPrefix: q.IDPrefix, Name: q.Name,
		ExcludeEntities: q.ExcludeEntities, Fetch: provider.Fetch(q.Fetch),
		PageSize: q.PageSize, PageBytes: q.PageBytes, Continuation: q.Continuation,
	}
}

// convertAll applies convert to each element of all.
func convertAll[From, To any](all []From, convert func(From) To) []To {
	to := make([]To, len(all))
	for i, e := range all {
		to[i] = convert(e)
	}
	return to
}

// RuntimeStatus is the status of an instance. [InstanceState.Status] has it.
type RuntimeStatus = history.RuntimeStatus

// The statuses of instances. IsTerminal reports whether an instance with the status has
// ended.
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

// TrackingQuery selects a page of tracking records.
type TrackingQuery struct {
	PageSize     int    // maximum number of records; 0 means the provider's default
	Continuation string // TrackingPage.Continuation of the previous page; empty for the first
}

// TrackingPage is one page of tracking records.
type TrackingPage struct {
	Records      []TrackingRecord
	Continuation string // of the next page; empty on the last
}

// TrackingRecord is the record of one event, or of the status after an episode.
type TrackingRecord struct {
	ExecutionID string
	// SequenceNumber is the number of the record within its execution, from 0 without
	// gaps.
	SequenceNumber int
	// Event is an event of the history. After each episode it is a
	// [history.HistoryState] with the status of the execution.
	Event history.Event
	// Shortened lists the fields of Event that were truncated.
	Shortened []string
}
