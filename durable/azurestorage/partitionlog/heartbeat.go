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

// heartbeat is the report of a worker about itself, see [roster].
type heartbeat struct {
	size int64 // size of the blob with the heartbeat in its metadata; 0 if the blob has no newer heartbeat

	// Idle is the number of free activity slots.
	Idle int `json:"idle"`
	// Young means that the worker started recently: other workers give it no partitions.
	Young bool `json:"young,omitempty"`
	// Build names the worker's program, in ASCII.
	Build string `json:"build,omitempty"`
	// Steps is the number of steps that run or wait for a slot. StepsAge is the age of the first
	// that waits, in milliseconds.
	Steps    int   `json:"steps,omitempty"`
	StepsAge int64 `json:"stepsAge,omitempty"`
	// Backlogs contains the backlogs of the worker's partitions, by partition number.
	Backlogs map[int]backlog `json:"partitions"`
}

// backlog is a [partition.Backlog]: counts, and ages in milliseconds.
type backlog struct {
	Messages      int   `json:"m,omitempty"`
	Stored        int   `json:"s,omitempty"` // messages, including hidden ones; 0 in heartbeats of older versions
	MessagesAge   int64 `json:"ma,omitempty"`
	Activities    int   `json:"a,omitempty"`
	ActivitiesAge int64 `json:"aa,omitempty"`
}

const heartbeatKey = "heartbeat"

// heartbeat returns the current heartbeat of this worker.
func (h *Hub) heartbeat() *heartbeat {
	b := &heartbeat{Idle: int(h.idle.Load()), Build: ascii(h.cfg.Build, 200), Backlogs: map[int]backlog{}}
	if steps := h.steps.Load(); steps != nil {
		load := (*steps)()
		b.Steps, b.StepsAge = load.Length, load.Latency.Milliseconds()
	}
	for _, o := range h.owners() {
		waits := o.Backlog()
		b.Backlogs[o.handle.number] = backlog{
			waits.Messages.Length, o.Stored() + o.outgoing(), waits.Messages.Latency.Milliseconds(), waits.Activities.Length, waits.Activities.Latency.Milliseconds(),
		}
	}
	return b
}

// ascii returns the first most bytes of a text, with "?" for each character that an HTTP header
// cannot contain.
func ascii(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return text[:min(len(text), most)]
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

// deadAfter is the number of intervals without a heartbeat after which a worker counts as dead. A
// worker is young for the same time. A worker that crashes repeatedly leaves heartbeats that count
// as alive for this time. Other workers give no partitions to young workers, so these heartbeats
// never add up to a share.
const deadAfter = 3
