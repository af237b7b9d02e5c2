package durable

import (
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// EntityQuery selects entities that match all conditions that are set.
type EntityQuery struct {
	Name      string // name of the entities, case-insensitive; empty means any
	KeyPrefix string // prefix of their keys; requires Name
	// LastOperationFrom and LastOperationTo limit EntityState.LastOperation; both are
	// inclusive. Zero means no limit.
	LastOperationFrom time.Time
	LastOperationTo   time.Time
	FetchState        bool // reads EntityState.State
	// IncludeEmpty includes stored entities without a state, which do not exist: deleted
	// entities that are not cleaned up, and locked ones.
	IncludeEmpty bool
	PageSize     int    // 0 means 100
	Continuation string // EntityPage.Continuation of the previous page
}

// EntityPage is one page of the result of an [EntityQuery]. A page can be empty and
// still have a continuation.
type EntityPage struct {
	Entities     []*EntityState
	Continuation string // empty on the last page
	// Unreadable lists entities that are missing from Entities because their stored data
	// cannot be read.
	Unreadable []UnreadableInstance
}

const (
	entityPageSize = 100
	// maxEmptyPages is the maximum number of pages without an entity that one call reads.
	maxEmptyPages = 10
)

// rows returns the query for the rows of the entities. Each batch of operations
// rewrites the row of an entity, so the row's creation time is the time of the last
// batch (DurableTask.AzureStorage/EntityTrackingStoreQueries.cs, QueryEntitiesAsync).
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
		return provider.Query{}, fmt.Errorf("EntityQuery.KeyPrefix is %q; set Name too", q.KeyPrefix)
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
