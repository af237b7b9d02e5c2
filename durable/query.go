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

// An InstanceState is the state of an instance, without its history.
type InstanceState struct {
	Instance      history.OrchestrationInstance
	Name          string
	Version       string
	Status        history.RuntimeStatus
	Input         *string   // JSON text; nil if there is none or it was not read
	Output        *string   // JSON text, or the reason of a failure or termination; nil if there is none or it was not read
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

// A Query selects instances. All conditions that are set must hold.
type Query struct {
	CreatedFrom time.Time               // the first moment; zero: no bound
	CreatedTo   time.Time               // the last moment; zero: no bound
	Statuses    []history.RuntimeStatus // empty: any
	IDPrefix    string
	Name        string // of the orchestrator; empty: any
	// ExcludeEntities leaves out instances whose ID begins with "@".
	ExcludeEntities bool
	Fetch           Fetch
	PageSize        int // 0: the provider's default
	// PageBytes is the size of inputs, outputs, custom statuses and tags, in bytes,
	// with which a page ends. The instance that reaches it is on the page. 0: 16 MiB.
	PageBytes    int
	Continuation string // Page.Continuation of the page before
}

// A Page is a part of a query's result. A page can have a continuation though it is
// empty or has fewer instances than the query asks for.
type Page struct {
	Instances []*InstanceState
	// Continuation is [Query.Continuation] of the next page; empty on the last one. It
	// is valid in an HTTP header.
	Continuation string
	// Unreadable are the instances that were left out because their records cannot be
	// read. They may or may not match.
	Unreadable []UnreadableInstance
}

// An UnreadableInstance is an instance whose record cannot be decoded, or of which a
// payload is missing. An outage fails the query instead.
type UnreadableInstance struct {
	InstanceID string
	Cause      error
}

// rows returns q for the provider, whose types are its own so that an app need not know them.
func (q Query) rows() provider.Query {
	return provider.Query{
		CreatedFrom: q.CreatedFrom, CreatedTo: q.CreatedTo, Statuses: q.Statuses, IDPrefix: q.IDPrefix, Name: q.Name,
		ExcludeEntities: q.ExcludeEntities, Fetch: provider.Fetch(q.Fetch),
		PageSize: q.PageSize, PageBytes: q.PageBytes, Continuation: q.Continuation,
	}
}

// converted returns what convert makes of each element.
func converted[From, To any](all []From, convert func(From) To) []To {
	to := make([]To, len(all))
	for i, e := range all {
		to[i] = convert(e)
	}
	return to
}
