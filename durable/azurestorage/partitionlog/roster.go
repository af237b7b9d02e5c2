package partitionlog

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
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

// isOutdated reports whether this worker's partitions have changed since its last heartbeat. A partition whose release
// is running counts as unchanged. Otherwise the scheduler would decide whether the result includes the release.
func (r *roster) isOutdated() bool {
	return r.hasReported && slices.ContainsFunc(r.hub.partitions, func(s *partitionHandle) bool {
		return !s.leaving.Load() && slices.Contains(r.reported, s.number) != (s.owner() != nil)
	})
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

// longestBeat is the maximum size of a heartbeat, in bytes.
const longestBeat = 16 << 10

const refreshesAtOnce = 16
