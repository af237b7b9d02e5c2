package durable

import (
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An EntityQuery selects entities. Conditions that are set must all hold.
type EntityQuery struct {
	Name      string // of the entities; empty: any. Case does not matter.
	KeyPrefix string // of their keys; needs a Name
	// LastOperationFrom and LastOperationTo say when operations were last
	// performed; zero: no bound.
	LastOperationFrom time.Time
	LastOperationTo   time.Time
	FetchState        bool
	// IncludeEmpty also returns what is stored of entities that do not exist: of
	// those that were deleted and not cleaned up, and of those that are locked.
	IncludeEmpty bool
	PageSize     int    // 0: 100
	Continuation string // EntityPage.Continuation of the page before
}

// An EntityPage is part of a query's answer. A page can be empty and yet have a
// continuation.
type EntityPage struct {
	Entities     []*EntityState
	Continuation string // empty on the last page
	// Unreadable are the entities that were left out since what is stored of them
	// cannot be read.
	Unreadable []UnreadableInstance
}

const (
	entityPageSize = 100
	// emptyPages is how many pages without an entity are passed over at once.
	emptyPages = 10
)

// rows returns the query for what a hub has of the entities: each batch of
// operations writes the row of a busy entity again, so that the time of its creation is
// that of the last
// (DurableTask.AzureStorage/EntityTrackingStoreQueries.cs, QueryEntitiesAsync).
func (q EntityQuery) rows() (provider.Query, error) {
	prefix := "@"
	switch {
	case q.Name != "":
		id, err := EntityID{Name: q.Name}.checked()
		if err != nil {
			return provider.Query{}, err
		}
		prefix = id.String() + q.KeyPrefix
	case q.KeyPrefix != "":
		return provider.Query{}, fmt.Errorf("the key prefix %q needs the name of the entities", q.KeyPrefix)
	}
	size := q.PageSize
	if size == 0 {
		size = entityPageSize
	}
	return provider.Query{
		IDPrefix: prefix, CreatedFrom: q.LastOperationFrom, CreatedTo: q.LastOperationTo,
		Fetch: provider.Fetch{Input: q.FetchState}, PageSize: size, Continuation: q.Continuation,
	}, nil
}
