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
// A worker has an append blob of its own. Its metadata has the worker's partitions, and the worker
// creates it again when they change. Each heartbeat appends a line with the load. An append
// leaves no copy on accounts with versioning or soft delete. The worker rings when its partitions
// have changed or when it stops, so that the others need not wait for their next heartbeats.
type roster struct {
	listener
	spoken bool      // it has said something
	since  time.Time // when it said something first
	young  bool      // it has said that it is young
	said   []int     // which partitions it has
	beats  int       // the blocks of its blob
	others int       // workers that were alive at the last heartbeat
}

// oldRoster was written by older versions when partitions had changed hands.
const oldRoster = "roster"

// deadAfter is the number of intervals without a heartbeat after which a worker counts as dead.
// A worker is young for as long. So the lives of a worker that crashes sooner than that, again
// and again, do not add up: other workers give them no partitions.
const deadAfter = 3

// restAnswer is the longest time between two looks at the bell blob of a worker at rest.
const restAnswer = 5 * time.Second

// hasChanged reports whether partitions have changed hands since the last look. A worker
// that has all partitions that it wants, and knows no other worker, looks seldom.
// The error is a *[DeletedError].
func (r *roster) hasChanged(ctx context.Context, wants bool) (bool, error) {
	if !wants && r.others == 0 && time.Since(r.at) < restAnswer {
		return false, nil
	}
	return r.listen(ctx)
}

// beat writes this worker's heartbeat, and returns those of all workers.
func (r *roster) beat(ctx context.Context) (map[string]*heartbeat, error) {
	beat := r.hub.heartbeat()
	if !r.spoken {
		r.since = time.Now()
	}
	beat.Young = time.Since(r.since) < deadAfter*r.hub.cfg.BalanceInterval
	has := slices.Sorted(maps.Keys(beat.Backlogs))
	first := !r.spoken
	news := first || r.young != beat.Young || !slices.Equal(r.said, has)
	if err := r.say(ctx, beat, news); err != nil {
		return nil, fmt.Errorf("write this worker's heartbeat: %w", err)
	}
	if news {
		r.spoken, r.young, r.said = true, beat.Young, has
		_ = r.hub.ring(ctx, ownersChanged) // else the others notice it at their next heartbeats
	}
	all, size, err := r.hub.heartbeats(ctx)
	if err != nil {
		return nil, err
	}
	r.others = len(all)
	if _, mine := all[r.hub.cfg.WorkerID]; mine {
		r.others--
	}
	r.listenTo(ctx, size, first)
	return all, nil
}

// maxBeats is the number of heartbeats after which a worker creates its blob again. The service
// allows 50,000 appends to a blob.
const maxBeats = 20_000

// say stores a heartbeat: as a line of the worker's blob, or in the metadata of a new one if it is
// news.
func (r *roster) say(ctx context.Context, beat *heartbeat, news bool) error {
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
	err = r.hub.leases.Restart(ctx, name, metadata)
	if store.StatusOf(err) == http.StatusConflict && !store.IsTransient(err) { // an older version wrote a blob of another type
		if err = r.hub.leases.Remove(ctx, name); err == nil {
			err = r.hub.leases.Restart(ctx, name, metadata)
		}
	}
	return err
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

// leave removes this worker's heartbeat.
func (r *roster) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := r.hub.leases.Remove(ctx, workersPrefix+r.hub.cfg.WorkerID); err != nil {
		r.hub.log.Warn("this worker counts as alive for a while, since its heartbeat could not be deleted", "error", err)
	}
	_ = r.hub.ring(ctx, ownersChanged) // else the others notice it at their next heartbeats
}

// heartbeats returns the heartbeats of the workers that are alive, by their IDs, with the
// partitions that they have, and the size of the bell blob. [Hub.refresh] reads the load.
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
			_ = h.leases.Remove(ctx, b.Name) // else it is ignored again
			continue
		}
		switch silent := now.Sub(b.Changed); {
		case b.Name == bellBlob:
			bell = b.Size
		case silent > 24*time.Hour:
			_ = h.leases.Remove(ctx, b.Name) // else another worker does it
		case silent <= deadAfter*h.cfg.BalanceInterval+time.Second: // times are whole seconds
			beat, err := h.decodeHeartbeat([]byte(b.Metadata[heartbeatKey]))
			if err != nil {
				const message = "the heartbeat of a worker cannot be read"
				if h.blocked.isNews(message+" "+b.Name, err) {
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
	maps.DeleteFunc(beat.Backlogs, func(n int, _ backlog) bool { return n < 0 || n >= len(h.shares) })
	return beat, nil
}

// longestBeat bounds the bytes of a heartbeat.
const longestBeat = 16 << 10

// refresh reads the load of workers whose heartbeats were listed. What cannot be read keeps its
// state.
func (h *Hub) refresh(ctx context.Context, all map[string]*heartbeat) error {
	ids := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(id string) bool { return all[id].size == 0 || id == h.cfg.WorkerID })
	beats := make([]*heartbeat, len(ids))
	err := store.Each(ctx, refreshesAtOnce, ids, func(ctx context.Context, i int, id string) error {
		part, err := h.leases.ReadPart(ctx, workersPrefix+id, max(0, all[id].size-longestBeat), longestBeat)
		if err != nil {
			return store.Ignore(err, http.StatusNotFound, http.StatusRequestedRangeNotSatisfiable) // it has stopped, or said news
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
