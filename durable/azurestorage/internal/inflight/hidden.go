package inflight

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// maxHiddenBytes limits the memory for abandoned messages, whose texts are needed to update them.
// If it is exceeded, further messages appear when their delays end.
const maxHiddenBytes = 8 << 20

// hiddenMessages holds the abandoned messages of instances until their delays end, with their
// receipts. A suspension or a resumption is delivered together with the hidden messages of its instance if they
// can be delivered: a suspension has no effect without the start message. If a poll receives the start message at
// the same time, the suspension is hidden and is delivered with the start. A resumption also makes hidden
// activities visible. Messages that another process abandoned, or this process before a restart, appear when their
// delays end.
type hiddenMessages struct {
	mu         sync.Mutex                          // protects the following
	byInstance map[string]map[string]hiddenMessage // by the IDs of instance and message
	bytes      int                                 // total size of all messages
	pruned     time.Time                           // time of the last prune
}

type hiddenMessage struct {
	queue *store.Queue
	msg   store.Message
	start history.OrchestrationInstance // the execution that the message starts; empty if it is not a start

	startsChild bool // the message starts a child, which needs no row
	endsPause   bool // the message is a suspension or a resumption
}

// size returns the approximate memory size of the message.
func (m hiddenMessage) size() int { return len(m.msg.Text) + 256 }

// Add remembers the receipt of an abandoned message. It ignores a message that is not due, which stays
// hidden.
func (h *hiddenMessages) Add(q *store.Queue, m store.Message, message *provider.TaskMessage) {
	if provider.DueTime(*message).After(time.Now()) {
		return
	}
	added := hiddenMessage{queue: q, msg: m, endsPause: endsPause(message.Event)}
	if start, ok := message.Event.(*history.ExecutionStarted); ok {
		added.start, added.startsChild = start.Instance, start.Parent != nil
	}
	h.keep(message.Target.InstanceID, added)
}

func (h *hiddenMessages) keep(instanceID string, added hiddenMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m, now := added.msg, time.Now()
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

// take removes and returns the messages of an instance for which wanted returns true, the oldest first.
func (h *hiddenMessages) take(instanceID string, wanted func(hiddenMessage) bool) (taken []hiddenMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.byInstance[instanceID]
	for id, one := range all {
		if wanted(one) {
			taken = append(taken, one)
			h.bytes -= one.size()
			delete(all, id)
		}
	}
	if len(all) == 0 {
		delete(h.byInstance, instanceID)
	}
	slices.SortFunc(taken, func(a, b hiddenMessage) int {
		return cmp.Or(a.msg.InsertedOn.Compare(b.msg.InsertedOn), strings.Compare(a.msg.ID, b.msg.ID))
	})
	return taken
}

// HasStart reports whether the start message of an instance is hidden.
func (h *hiddenMessages) HasStart(instance history.OrchestrationInstance) bool {
	return h.has(instance.InstanceID, func(one hiddenMessage) bool {
		return one.start == instance && one.msg.HiddenUntil().After(time.Now())
	})
}

// CanStart reports whether a start message of an instance is hidden that can be delivered beside the
// instance's row. row may be nil. The start of a child needs no row. A start whose delay has ended counts
// until a poll receives it.
func (h *hiddenMessages) CanStart(instanceID string, row *wire.InstanceRow) bool {
	return h.has(instanceID, func(one hiddenMessage) bool {
		return one.startsChild || row != nil && one.start.InstanceID != "" &&
			(row.State.Instance.ExecutionID == "" || one.start == row.State.Instance)
	})
}

// HasPauseEnd reports whether a suspension or a resumption of an instance is hidden.
func (h *hiddenMessages) HasPauseEnd(instanceID string) bool {
	return h.has(instanceID, func(one hiddenMessage) bool { return one.endsPause })
}

// has reports whether an instance has a hidden message for which wanted returns true.
func (h *hiddenMessages) has(instanceID string, wanted func(hiddenMessage) bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.byInstance[instanceID] {
		if wanted(one) {
			return true
		}
	}
	return false
}

// RevealOthers makes an instance's hidden messages in other queues than q visible. A message with an invalid
// receipt was received again. If a request fails, the message appears when its delay ends.
func (h *hiddenMessages) RevealOthers(ctx context.Context, instanceID string, q *store.Queue) {
	hidden := h.take(instanceID, func(one hiddenMessage) bool { return one.queue != q })
	_ = store.ForEach(ctx, RenewalsAtOnce, hidden, func(ctx context.Context, _ int, one hiddenMessage) error {
		_, _ = one.queue.Update(ctx, one.msg, 0)
		return nil
	})
}

// HoldHidden receives the hidden messages of an instance in q again before their delays end, and holds
// them. They occupy no slots. If a request fails, the message appears when its delay ends.
func (h *Messages) HoldHidden(ctx context.Context, instanceID string, q *store.Queue) []*Delivery {
	hidden := h.Hidden.take(instanceID, func(one hiddenMessage) bool { return one.queue == q })
	received := make([]store.Message, len(hidden))
	_ = store.ForEach(ctx, RenewalsAtOnce, hidden, func(ctx context.Context, i int, one hiddenMessage) error {
		m, err := q.Update(ctx, one.msg, h.Stretched(h.ControlTimeout))
		switch {
		case err == nil:
			m.DequeueCount++
			received[i] = m
		case !store.IsMessageGone(err):
			h.Hidden.keep(instanceID, one)
		}
		return nil
	})
	received = slices.DeleteFunc(received, func(m store.Message) bool { return m.ID == "" })
	return h.Hold(q, received, h.ControlTimeout, func() {})
}
