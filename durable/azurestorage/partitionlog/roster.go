package partitionlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
)

// roster writes this worker's heartbeats and reads the heartbeats of the others.
//
// Each worker has an append blob. The blob's metadata names the worker's partitions; when they
// change, the worker creates the blob again. All other heartbeats append a line with the load.
// Appends leave no copies on accounts with versioning or soft delete. A late request may replace the
// blob with an older one. The worker sees this in the list of heartbeats and creates the blob again.
//
// When its partitions have changed or it stops, the worker rings the bell, so that the others need
// not wait for their next heartbeats.
type roster struct {
	listener
	hasReported bool      // the first heartbeat was written
	since       time.Time // time of the first heartbeat
	young       bool      // the last blob says that the worker is young
	reported    []int     // the partitions in the metadata of the worker's blob
	beats       int       // number of appends to the worker's blob
	others      int       // live workers at the last heartbeat, without this one
}

// oldRoster is the name of a blob that older versions wrote when partitions changed their owners.
const oldRoster = "roster"

// deadAfter is the number of intervals without a heartbeat after which a worker counts as dead. A
// worker is young for the same time. A worker that crashes repeatedly leaves heartbeats that count
// as alive for this time. Other workers give no partitions to young workers, so these heartbeats
// never add up to a share.
const deadAfter = 3

// idleBellInterval is the maximum time between two reads of the bell blob by an idle worker.
const idleBellInterval = 5 * time.Second

// hasChanged reports whether partitions have new owners since the last call. A worker that wants no
// partitions and knows no other worker reads the bell blob rarely. The error is a *[DeletedError].
func (r *roster) hasChanged(ctx context.Context, wants bool) (bool, error) {
	if !wants && r.others == 0 && time.Since(r.at) < idleBellInterval {
		return false, nil
	}
	return r.listen(ctx)
}

// beat writes this worker's heartbeat and returns the heartbeats of all workers.
func (r *roster) beat(ctx context.Context) (map[string]*heartbeat, error) {
	beat := r.hub.heartbeat()
	if !r.hasReported {
		r.since = time.Now()
	}
	beat.Young = time.Since(r.since) < deadAfter*r.hub.cfg.BalanceInterval
	has := slices.Sorted(maps.Keys(beat.Backlogs))
	first := !r.hasReported
	news := first || r.young != beat.Young || !slices.Equal(r.reported, has)
	if err := r.write(ctx, beat, news); err != nil {
		return nil, fmt.Errorf("write this worker's heartbeat: %w", err)
	}
	if news {
		r.hasReported, r.young, r.reported = true, beat.Young, has
		_ = r.hub.ring(ctx, ownersChanged) // else the others notice it at their next heartbeats
	}
	all, size, err := r.hub.heartbeats(ctx)
	if err != nil {
		return nil, err
	}
	r.others = len(all)
	if mine := all[r.hub.cfg.WorkerID]; mine != nil {
		r.others--
		if !news { // a late request may have replaced the blob
			r.young, r.reported = mine.Young, slices.Sorted(maps.Keys(mine.Backlogs))
		}
	}
	r.listenTo(ctx, size, first)
	return all, nil
}

// maxBeats is the number of heartbeats after which a worker creates its blob again. The service
// allows 50,000 appends to a blob.
const maxBeats = 20_000

// write stores a heartbeat: as a line of the worker's blob, or in the metadata of a new blob if
// news is true.
func (r *roster) write(ctx context.Context, beat *heartbeat, news bool) error {
	text, err := json.Marshal(beat)
	if err != nil {
		return err
	}
	name := workersPrefix + r.hub.cfg.WorkerID
	if !news && r.beats < maxBeats {
		r.beats, err = r.hub.leases.AppendTo(ctx, name, append(text, '\n'))
		if !store.IsNotFound(err) {
			return err
		}
		if err := r.hub.confirm(ctx); err != nil {
			return err
		}
	}
	r.beats = 0
	metadata := r.hub.stamp(map[string]string{heartbeatKey: string(text)})
	err = r.hub.leases.ReplaceAppendBlob(ctx, name, metadata)
	if store.StatusOf(err) == http.StatusConflict && !store.IsTransient(err) { // an older version wrote a blob of another type
		if err = r.hub.leases.Remove(ctx, name); err == nil {
			err = r.hub.leases.ReplaceAppendBlob(ctx, name, metadata)
		}
	}
	return err
}

// stamp adds the hub's ID to the metadata of a blob.
func (h *Hub) stamp(metadata map[string]string) map[string]string {
	metadata[chain.HubKey] = h.id
	return metadata
}

// isOutdated reports whether this worker's partitions have changed since its last heartbeat.
func (r *roster) isOutdated() bool {
	return r.hasReported && !slices.EqualFunc(r.reported, r.hub.owners(), func(n int, o *owner) bool { return n == o.handle.number })
}

// leave deletes this worker's heartbeat blob.
func (r *roster) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := r.hub.leases.Remove(ctx, workersPrefix+r.hub.cfg.WorkerID); err != nil {
		r.hub.log.Warn("cannot delete this worker's heartbeat; other workers regard this worker as alive until the heartbeat expires", "error", err)
	}
	_ = r.hub.ring(ctx, ownersChanged) // else the others notice it at their next heartbeats
}

// heartbeats returns the heartbeats of the live workers by worker ID, with their partitions, and
// the size of the bell blob. [Hub.refresh] adds the load.
func (h *Hub) heartbeats(ctx context.Context) (all map[string]*heartbeat, bell int64, err error) {
	blobs, now, err := h.leases.ListAt(ctx, workersPrefix)
	if store.IsContainerMissing(err) {
		err = errors.Join(h.confirm(ctx), err)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("list the workers: %w", err)
	}
	all = make(map[string]*heartbeat)
	for _, b := range blobs {
		if id := b.Metadata[chain.HubKey]; id != "" && id != h.id {
			if err := h.confirm(ctx); err != nil {
				return nil, 0, err
			}
			_ = h.leases.Remove(ctx, b.Name) // else the next call deletes it
			continue
		}
		switch silent := now.Sub(b.Changed); {
		case b.Name == bellBlob:
			bell = b.Size
		case silent > 24*time.Hour:
			_ = h.leases.Remove(ctx, b.Name) // else another worker deletes it
		case silent <= deadAfter*h.cfg.BalanceInterval+time.Second: // the times are whole seconds
			beat, err := h.decodeHeartbeat([]byte(b.Metadata[heartbeatKey]))
			if err != nil {
				const message = "cannot read the heartbeat of a worker"
				if h.blocked.shouldLog(message+" "+b.Name, err) {
					h.log.Warn(message, "blob", b.Name, "error", err)
				}
				continue
			}
			beat.size = b.Size
			all[strings.TrimPrefix(b.Name, workersPrefix)] = beat
		}
	}
	return all, bell, nil
}

func (h *Hub) decodeHeartbeat(text []byte) (*heartbeat, error) {
	beat := &heartbeat{}
	if err := json.Unmarshal(text, beat); err != nil {
		return nil, err
	}
	maps.DeleteFunc(beat.Backlogs, func(n int, _ backlog) bool { return n < 0 || n >= len(h.partitions) })
	return beat, nil
}

// longestBeat is the maximum size of a heartbeat, in bytes.
const longestBeat = 16 << 10

// refresh reads the current load of the listed workers. A worker whose load cannot be read keeps
// its previous values.
func (h *Hub) refresh(ctx context.Context, all map[string]*heartbeat) error {
	ids := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(id string) bool { return all[id].size == 0 || id == h.cfg.WorkerID })
	beats := make([]*heartbeat, len(ids))
	err := store.ForEach(ctx, refreshesAtOnce, ids, func(ctx context.Context, i int, id string) error {
		part, err := h.leases.ReadPart(ctx, workersPrefix+id, max(0, all[id].size-longestBeat), longestBeat)
		if err != nil {
			return store.Ignore(err, http.StatusNotFound, http.StatusRequestedRangeNotSatisfiable) // the worker has stopped or created its blob again
		}
		lines := bytes.Split(bytes.TrimRight(part.Content, "\n"), []byte("\n"))
		if beat, err := h.decodeHeartbeat(lines[len(lines)-1]); err == nil {
			beats[i] = beat
		}
		return nil
	})
	for i, id := range ids {
		if beats[i] != nil {
			all[id] = beats[i]
		}
	}
	return err
}

const refreshesAtOnce = 16
