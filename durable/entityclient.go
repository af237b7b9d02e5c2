package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

// ErrEntityNotFound means that an entity does not exist: it has performed no operation
// yet, or the last one deleted it.
var ErrEntityNotFound = errors.New("entity does not exist")

// Signal sends an entity a signal to perform an operation, which is named by its method
// expression. It returns when the signal is sent. The result of the operation is
// discarded. The client must have a registry.
func Signal[S, I, O any](ctx context.Context, c *Client, key EntityKey[S], operation func(*S, *EntityContext, I) (O, error), in I, opts ...SignalOption) error {
	id, name, err := operationOf(c.registry, key, operation)
	if err != nil {
		return err
	}
	return signalEntity(ctx, c, id, name, in, opts)
}

// signalEntity sends an entity a signal from a client.
func signalEntity(ctx context.Context, c *Client, id entity.ID, operation string, in any, opts []SignalOption) error {
	input, err := encode(in)
	if err != nil {
		return fmt.Errorf("encode input of operation %s of %s: %w", operation, id, err)
	}
	now := c.now()
	due, err := dueAt(now, opts)
	if err := errors.Join(checkTexts("operation", operation), checkTexts("input", input), err); err != nil {
		return fmt.Errorf("signal operation %q of %s: %w", operation, id, err)
	}
	name, text := entity.NewSignal(uuid.NewString(), operation, input, due, now)
	text = c.tracer.SignalEntity(ctx, text, now)
	if err := sendEntity(ctx, c, id, name, text, now); err != nil {
		return fmt.Errorf("signal operation %s of %s: %w", operation, id, err)
	}
	return nil
}

// sendEntity sends a message to an entity, whether or not the entity exists.
func sendEntity(ctx context.Context, c *Client, id entity.ID, name, text string, now time.Time) error {
	return c.hub.Send(ctx, provider.TaskMessage{
		Event:  &history.EventRaised{Header: history.NewHeader(now), Name: name, Input: &text},
		Target: history.OrchestrationInstance{InstanceID: id.String()},
	})
}

// ReadEntity returns the state of an entity after its last stored operation. It fails
// with [ErrEntityNotFound] if the entity does not exist. The client must have a
// registry.
func ReadEntity[S any](ctx context.Context, c *Client, key EntityKey[S]) (S, error) {
	var none S
	s, err := c.Entity(ctx, key)
	if err != nil {
		return none, err
	}
	state, err := decodeText[S](string(s.State))
	if err != nil {
		return none, fmt.Errorf("decode state of %s: %w", s.ID, err)
	}
	return state, nil
}

// readEntity implements [Client.Entity].
func readEntity(ctx context.Context, c *Client, e AnyEntity) (*EntityState, error) {
	id, err := e.entityID(c.registry)
	if err != nil {
		return nil, err
	}
	row, err := c.hub.Instance(ctx, id.String(), provider.Fetch{Input: true})
	if errors.Is(err, provider.ErrInstanceNotFound) {
		return nil, fmt.Errorf("read entity %s: %w", id, ErrEntityNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read entity %s: %w", id, err)
	}
	s, err := entityState(row, true)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read entity %s: %w", id, err)
	case !s.Exists:
		return nil, fmt.Errorf("read entity %s: %w", id, ErrEntityNotFound)
	}
	return s, nil
}

// EntityState is the stored state of an entity.
type EntityState struct {
	ID EntityID
	// LastOperation is the time of the entity's last batch of operations.
	LastOperation time.Time
	// Exists reports whether the entity has a state.
	Exists bool
	// State is the state as JSON. It is nil if the entity has no state or the state was
	// not fetched.
	State json.RawMessage
	// LockedBy is the orchestration that holds the entity's lock, or empty.
	LockedBy InstanceID
	// QueueSize is the number of operations that wait for the release of the lock.
	QueueSize int
}

// entityState converts the row of an entity. If the state was fetched, its presence
// decides whether the entity exists
// (DurableTask.AzureStorage/EntityTrackingStoreQueries.cs, GetEntityMetadataAsync).
func entityState(row *provider.InstanceState, fetched bool) (*EntityState, error) {
	id, err := entity.ParseID(row.Instance.InstanceID)
	if err != nil {
		return nil, err
	}
	status, err := entity.ParseStatus(row.CustomStatus)
	if err != nil {
		return nil, fmt.Errorf("status of %s: %w", id, err)
	}
	s := &EntityState{
		ID: EntityID(id), LastOperation: row.CreatedAt, Exists: status.Exists,
		LockedBy: InstanceID(status.LockedBy), QueueSize: status.QueueSize,
	}
	if !fetched {
		return s, nil
	}
	text, err := entity.StateText(row.Input)
	if err != nil {
		return nil, fmt.Errorf("state of %s: %w", id, err)
	}
	if s.Exists = text != nil; s.Exists {
		s.State = jsonOf(*text)
	}
	return s, nil
}

// jsonOf returns a stored state as JSON. Other programs may store text that is not
// JSON; like .NET, jsonOf returns it as a JSON string
// (WebJobs.Extensions.DurableTask/DurableEntityStatus.cs).
func jsonOf(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	quoted, _ := json.Marshal(text) // encoding a string cannot fail
	return quoted
}

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

// listEntities implements [Client.ListEntities].
func listEntities(ctx context.Context, c *Client, q EntityQuery) (*EntityPage, error) {
	rows, err := q.rows()
	if err == nil {
		err = checkTexts("EntityQuery", q)
	}
	if err != nil {
		return nil, fmt.Errorf("list entities: %w", err)
	}
	page := new(EntityPage)
	for range maxEmptyPages {
		found, err := c.hub.Instances(ctx, rows)
		if err != nil {
			return nil, fmt.Errorf("list entities: %w", err)
		}
		for _, row := range found.Instances {
			s, err := entityState(row, q.FetchState)
			switch {
			case err != nil:
				page.Unreadable = append(page.Unreadable, UnreadableInstance{InstanceID: row.Instance.InstanceID, Cause: err})
			case s.Exists || q.IncludeEmpty:
				page.Entities = append(page.Entities, s)
			}
		}
		for _, u := range found.Unreadable {
			page.Unreadable = append(page.Unreadable, UnreadableInstance(u))
		}
		rows.Continuation, page.Continuation = found.Continuation, found.Continuation
		if len(page.Entities) > 0 || page.Continuation == "" {
			break
		}
	}
	return page, nil
}

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

// EntityCleaning configures [Client.CleanEntities]. The zero value removes everything
// that can be removed.
type EntityCleaning struct {
	KeepEmpty bool // do not remove the remains of deleted entities
	KeepLocks bool // do not release locks whose holder is neither running nor suspended
	// ReorderWindow is the minimum idle time of an entity before its remains are
	// removed. The remains identify duplicate messages, so the value should not be below
	// the workers' [Config.EntityReorderWindow]. Zero means 30 minutes.
	ReorderWindow time.Duration
}

// EntityCleaningResult reports what [Client.CleanEntities] did.
type EntityCleaningResult struct {
	EmptyEntitiesRemoved  int
	OrphanedLocksReleased int
}

// cleanEntities implements [Client.CleanEntities].
func cleanEntities(ctx context.Context, c *Client, what EntityCleaning) (EntityCleaningResult, error) {
	if what.ReorderWindow <= 0 {
		what.ReorderWindow = DefaultEntityReorderWindow
	}
	cleaner := entityCleaner{client: c, what: what, idleSince: c.now().Add(-what.ReorderWindow)}
	var group errgroup.Group // without a context: an error must not stop the other cleanings
	group.SetLimit(maxConcurrentPurges)
	var listErr error
	for row, err := range c.AllInstances(ctx, Query{IDPrefix: "@"}) {
		if err != nil {
			listErr = err
			break
		}
		group.Go(func() error {
			cleaner.clean(ctx, row)
			return nil
		})
	}
	_ = group.Wait() // the cleaner has the errors
	if err := errors.Join(append(cleaner.errs, listErr)...); err != nil {
		return cleaner.result, fmt.Errorf("clean entities: %w", err)
	}
	return cleaner.result, nil
}

type entityCleaner struct {
	client    *Client
	what      EntityCleaning
	idleSince time.Time

	mu     sync.Mutex // guards the fields below
	result EntityCleaningResult
	errs   []error // the first maxPurgeErrors errors
}

// clean removes the remains of an entity and releases its orphaned lock
// (DurableTask.AzureStorage/EntityTrackingStoreQueries.cs, CleanEntityStorageAsync).
func (c *entityCleaner) clean(ctx context.Context, row *InstanceState) {
	status, err := entity.ParseStatus(row.CustomStatus)
	if err != nil {
		c.record(row, func(*EntityCleaningResult) {}, err)
		return
	}
	switch {
	case status.LockedBy != "" && !c.what.KeepLocks:
		orphaned, err := c.release(ctx, row, status.LockedBy)
		if orphaned || err != nil {
			c.record(row, func(r *EntityCleaningResult) { r.OrphanedLocksReleased++ }, err)
		}
	case status.IsEmpty() && !c.what.KeepEmpty && row.LastUpdatedAt.Before(c.idleSince):
		err := ErrNotSupported
		if p, ok := c.client.hub.(provider.Purger); ok {
			err = p.Purge(ctx, row.Instance.InstanceID, (*provider.InstanceState)(row))
		}
		if !errors.Is(err, ErrInstanceNotFound) && !errors.Is(err, provider.ErrInstanceChanged) {
			c.record(row, func(r *EntityCleaningResult) { r.EmptyEntitiesRemoved++ }, err)
		}
	}
}

// release releases a lock if it is orphaned, which means that its holder is neither
// running nor suspended.
func (c *entityCleaner) release(ctx context.Context, row *InstanceState, holder string) (orphaned bool, err error) {
	s, err := c.client.hub.Instance(ctx, holder, provider.Fetch{})
	switch {
	case errors.Is(err, provider.ErrInstanceNotFound):
	case err != nil:
		return false, fmt.Errorf("read the lock's holder %s: %w", holder, err)
	case s.Status == history.Running || s.Status == history.Suspended:
		return false, nil
	}
	id, err := entity.ParseID(row.Instance.InstanceID)
	if err != nil {
		return false, err
	}
	name, text := entity.NewRelease(entity.Release{Parent: holder, ID: entity.OrphanedLock})
	return true, sendEntity(ctx, c.client, id, name, text, c.client.now())
}

// record records the outcome of one step: it calls done if err is nil, otherwise it keeps
// err.
func (c *entityCleaner) record(row *InstanceState, done func(*EntityCleaningResult), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		done(&c.result)
	case len(c.errs) < maxPurgeErrors:
		c.errs = append(c.errs, fmt.Errorf("%s: %w", row.Instance.InstanceID, err))
	}
}
