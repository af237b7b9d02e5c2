package inflight

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
)

// maxHiddenBytes limits the memory for abandoned messages, whose texts are needed to update them.
// If it is exceeded, further messages appear when their delays end.
const maxHiddenBytes = 8 << 20

// hiddenMessages holds the abandoned messages of instances until their delays end, with their
// receipts. A resumption makes the messages of its instance visible. Messages that another process
// abandoned, or this process before a restart, appear when their delays end.
type hiddenMessages struct {
	mu         sync.Mutex                          // protects the following
	byInstance map[string]map[string]hiddenMessage // by the IDs of instance and message
	bytes      int                                 // total size of all messages
	pruned     time.Time                           // time of the last prune
}

type hiddenMessage struct {
	queue *store.Queue
	msg   store.Message
}

// size returns the approximate memory size of the message.
func (m hiddenMessage) size() int { return len(m.msg.Text) + 256 }

// add remembers the receipt of an abandoned message.
func (h *hiddenMessages) add(instanceID string, q *store.Queue, m store.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	added, now := hiddenMessage{q, m}, time.Now()
	if h.bytes+added.size() > maxHiddenBytes && now.Sub(h.pruned) >= time.Second {
		h.prune(now)
	}
	if h.bytes+added.size() > maxHiddenBytes {
		return
	}
	if h.byInstance == nil {
		h.byInstance = map[string]map[string]hiddenMessage{}
	}
	all := h.byInstance[instanceID]
	if all == nil {
		all = map[string]hiddenMessage{}
		h.byInstance[instanceID] = all
	}
	if _, again := all[m.ID]; !again {
		h.bytes += added.size()
	}
	all[m.ID] = added
}

// prune removes messages whose delays have ended. The caller holds h.mu.
func (h *hiddenMessages) prune(now time.Time) {
	h.pruned = now
	for instanceID, all := range h.byInstance {
		for id, one := range all {
			if !one.msg.HiddenUntil().After(now) {
				h.bytes -= one.size()
				delete(all, id)
			}
		}
		if len(all) == 0 {
			delete(h.byInstance, instanceID)
		}
	}
}

// take removes and returns the messages of an instance, the oldest first.
func (h *hiddenMessages) take(instanceID string) []hiddenMessage {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.SortedFunc(maps.Values(h.byInstance[instanceID]), func(a, b hiddenMessage) int {
		return cmp.Or(a.msg.InsertedOn.Compare(b.msg.InsertedOn), strings.Compare(a.msg.ID, b.msg.ID))
	})
	delete(h.byInstance, instanceID)
	for _, one := range all {
		h.bytes -= one.size()
	}
	return all
}

// Reveal makes the hidden messages of an instance visible. A message with an invalid receipt was
// received again. If a request fails, the message appears when its delay ends.
func (h *hiddenMessages) Reveal(ctx context.Context, instanceID string) {
	_ = store.ForEach(ctx, RenewalsAtOnce, h.take(instanceID), func(ctx context.Context, _ int, one hiddenMessage) error {
		_, _ = one.queue.Update(ctx, one.msg, 0)
		return nil
	})
}
