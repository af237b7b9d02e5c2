package partitionlog

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
)

// roster is what a worker says to the others, and hears of them: which of them are alive, with
// which partitions. What it says has a blob of its own that it writes again and again; a blob
// of all is written when partitions have changed hands or a worker has stopped, so that the
// others need not wait for their next turn to list what is said.
type roster struct {
	hub    *Hub
	spoken bool      // it has said something
	since  time.Time // when it said something first
	young  bool      // it has said that it is young
	said   []int     // which partitions it has
	etag   string    // of the blob of all, when it was last looked at
}

const rosterBlob = "roster"

// deadAfter is the number of intervals without a heartbeat after which a worker counts as dead.
// A worker is young for as long. So the lives of a worker that crashes sooner than that, again
// and again, do not add up: other workers give them no partitions.
const deadAfter = 3

// hasChanged reports whether partitions have changed hands since the last call. If that
// cannot be found out, the next heartbeat is soon enough. The error is a *[DeletedError].
func (r *roster) hasChanged(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	info, err := r.hub.leases.Stat(ctx, rosterBlob)
	gone := store.IsContainerMissing(err)
	if !gone && (err != nil || info.ETag == r.etag) {
		return false, nil
	}
	if gone || info.Metadata[chain.HubKey] != r.hub.id {
		_ = r.hub.confirm(ctx) // another error than a DeletedError is no reason to stop
	}
	r.etag = info.ETag
	return true, r.hub.deleted()
}

// beat writes this worker's heartbeat, and returns those of all workers.
func (r *roster) beat(ctx context.Context) (map[string]*heartbeat, error) {
	beat := r.hub.heartbeat()
	if !r.spoken {
		r.since = time.Now()
	}
	beat.Young = time.Since(r.since) < deadAfter*r.hub.cfg.BalanceInterval
	text, err := json.Marshal(beat)
	if err != nil {
		return nil, err
	}
	now, err := r.hub.leases.Stamp(ctx, workersPrefix+r.hub.cfg.WorkerID, r.hub.stamp(map[string]string{heartbeatKey: string(text)}))
	if err != nil {
		return nil, fmt.Errorf("write this worker's heartbeat: %w", err)
	}
	if has := slices.Sorted(maps.Keys(beat.Backlogs)); !r.spoken || r.young != beat.Young || !slices.Equal(r.said, has) {
		r.spoken, r.young, r.said = true, beat.Young, has
		r.change(ctx)
	}
	return r.hub.heartbeats(ctx, now)
}

// stamp adds the ID of the hub to the metadata of a blob.
func (h *Hub) stamp(metadata map[string]string) map[string]string {
	metadata[chain.HubKey] = h.id
	return metadata
}

// isOutdated reports whether this worker has other partitions than it said.
func (r *roster) isOutdated() bool {
	return r.spoken && !slices.EqualFunc(r.said, r.hub.owners(), func(n int, o *owner) bool { return n == o.share.number })
}

// change tells the other workers that partitions have changed hands. If that fails, they
// notice it at their next heartbeats.
func (r *roster) change(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	_, _ = r.hub.leases.Stamp(ctx, rosterBlob, r.hub.stamp(map[string]string{}))
}

// leave removes this worker's heartbeat.
func (r *roster) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := r.hub.leases.Remove(ctx, workersPrefix+r.hub.cfg.WorkerID); err != nil {
		r.hub.log.Warn("this worker counts as alive for a while, since its heartbeat could not be deleted", "error", err)
	}
	r.change(ctx)
}
