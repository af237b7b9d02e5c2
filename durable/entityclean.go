package durable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

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
	return true, c.client.sendEntity(ctx, id, name, text, c.client.now())
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
