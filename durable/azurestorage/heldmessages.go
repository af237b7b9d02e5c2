package azurestorage

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/disposition"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"golang.org/x/sync/errgroup"
)

// heldMessages are the messages that this process has in flight, by queue and ID.
type heldMessages struct {
	hub  *TaskHub
	mu   sync.Mutex
	byID map[string]*delivery
	// spent are messages that a checkpoint took and that may be received again: their
	// deletion is in doubt, or they were released since the row or the tracking
	// records could not be written.
	spent map[string]spentMessage
	// none is closed when there are none; nil unless somebody waits for that.
	none chan struct{}
}

// spentMessage is a message that was taken.
type spentMessage struct {
	at     time.Time
	repair string // the instance whose row and tracking records may not be written, or empty
}

func newHeldMessages(h *TaskHub) *heldMessages {
	return &heldMessages{hub: h, byID: map[string]*delivery{}, spent: map[string]spentMessage{}}
}

func heldKey(queue, id string) string { return queue + "/" + id }

// add registers d. If we have its message already, the older delivery gets the
// newer receipt and is returned: the message's visibility ended while it was
// here. One that is being given back makes room for d: the answer to that request may
// come later than the message.
func (h *heldMessages) add(d *delivery) (older *delivery) {
	key := heldKey(d.queue.Name, d.id())
	h.mu.Lock()
	older = h.byID[key]
	if older == nil || older.isLeaving() {
		h.byID[key], older = d, nil
	}
	h.mu.Unlock()
	if older != nil {
		older.replace(d.msg)
	}
	return older
}

// How long a message is remembered that may be received again, which is longer than the
// longest delay of an abandoned message, and how many are.
const (
	spentFor = 2 * maxAbandonDelay
	maxSpent = 4096
)

// spend notes that d was taken and may be received again.
func (h *heldMessages) spend(d *delivery, m spentMessage) {
	now := time.Now()
	m.at = now
	key := heldKey(d.queue.Name, d.id())
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.spent) >= maxSpent {
		maps.DeleteFunc(h.spent, func(_ string, m spentMessage) bool { return now.Sub(m.at) > spentFor })
	}
	if len(h.spent) < maxSpent {
		h.spent[key] = m
	}
}

// isSpent reports whether d was taken before. Then it is only to be deleted. The history
// may not show it: that of an instance that continued as new with an event does not.
func (h *heldMessages) isSpent(d *delivery) (m spentMessage, spent bool) {
	key := heldKey(d.queue.Name, d.id())
	h.mu.Lock()
	defer h.mu.Unlock()
	m, ok := h.spent[key]
	return m, ok && time.Since(m.at) <= spentFor
}

func (h *heldMessages) forget(d *delivery) {
	key := heldKey(d.queue.Name, d.id())
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byID[key] == d {
		delete(h.byID, key)
	}
	if len(h.byID) == 0 && h.none != nil {
		close(h.none)
		h.none = nil
	}
}

// awaitNone waits until no message is held or ctx has ended.
func (h *heldMessages) awaitNone(ctx context.Context) {
	h.mu.Lock()
	if len(h.byID) == 0 {
		h.mu.Unlock()
		return
	}
	if h.none == nil {
		h.none = make(chan struct{})
	}
	none := h.none
	h.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
}

// all returns the messages, in the order of their names.
func (h *heldMessages) all() []*delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*delivery, 0, len(h.byID))
	for _, key := range slices.Sorted(maps.Keys(h.byID)) {
		all = append(all, h.byID[key])
	}
	return all
}

// renewalsAtOnce bounds how many messages are renewed at a time.
const renewalsAtOnce = 32

// renew keeps all messages that this process has hidden from others
// until ctx ends. One renewal that takes long keeps no other one from its turn.
func (h *heldMessages) renew(ctx context.Context) {
	lock := min(h.controlLock(), h.workItemLock())
	var group errgroup.Group
	group.SetLimit(renewalsAtOnce)
	for pause.For(ctx, lock/8) {
		h.hub.inbox.shed(h.most())
		for _, d := range h.all() {
			if left, renewable := d.hiddenFor(time.Now()); !renewable || left > h.stretched(d.lock)/2 {
				continue
			}
			group.Go(func() error {
				d.renew(ctx)
				return nil
			})
		}
	}
	_ = group.Wait() // no function returns an error
}

// awaitRenewals waits while renewals are late: messages that were received now would be
// late, too. It does not wait for messages whose visibility timeout has ended.
func (h *heldMessages) awaitRenewals(ctx context.Context) {
	late := func(d *delivery) bool {
		left, renewable := d.hiddenFor(time.Now())
		return renewable && left > 0 && left <= d.lock/8
	}
	for slices.ContainsFunc(h.all(), late) && pause.For(ctx, time.Second) {
	}
}

// renewalShare is the share of the requests to throttled queues that may renew messages.
const renewalShare = 0.25

// most returns the number of messages of each kind, control-queue messages and work items,
// that this process can renew and finish now. A message is renewed once in half of its lock.
// most is at least [store.LeastInFlight]: one long activity must not stop the others.
func (h *heldMessages) most() int {
	rate, limited := h.hub.services.QueuePace.Rate()
	if !limited {
		return math.MaxInt32
	}
	lock := min(h.controlLock(), h.workItemLock())
	return max(store.LeastInFlight, int(rate*renewalShare*(lock/2).Seconds()/2))
}

// Where the queues answer slowly, messages are hidden for lockLatencies times as long as
// an answer takes, so that they can be renewed in time, and for [disposition.SlowLocks] times as long
// as usual at most.
const lockLatencies = 8

// stretched returns for how long a message is hidden now that is hidden for lock while
// the queues answer as usual.
func (h *heldMessages) stretched(lock time.Duration) time.Duration {
	wanted := (lockLatencies * h.hub.services.QueuePace.Latency()).Truncate(time.Second)
	return max(lock, min(wanted, disposition.SlowLocks*lock))
}

func (h *heldMessages) controlLock() time.Duration {
	return lockTime(h.hub.cfg.ControlQueueVisibilityTimeout, h.hub.cfg.LeaseInterval)
}

func (h *heldMessages) workItemLock() time.Duration {
	return lockTime(h.hub.cfg.WorkItemQueueVisibilityTimeout, h.hub.cfg.LeaseInterval)
}

// lockTime returns for how long a message is hidden when it is received or
// renewed: not for longer than a partition's lease, so that what a dead worker
// held comes back when its partitions do. The service counts in seconds.
func lockTime(configured, lease time.Duration) time.Duration {
	return max(min(configured, lease).Truncate(time.Second), time.Second)
}

// take makes deliveries of messages that were received, and has them kept hidden
// from others before the first is looked at: what is large may take long to fetch.
// Those that this process has already are left out.
func (h *heldMessages) take(q *store.Queue, messages []store.Message, lock time.Duration, onSettled func()) (held []*delivery) {
	for _, m := range messages {
		d := h.newDelivery(q, m, lock, onSettled)
		if older := h.add(d); older != nil {
			h.hub.routine.note(disposition.Duplicate, older.attrs("details", "its lock had ended while it was here"))
			continue
		}
		held = append(held, d)
	}
	return held
}

func (h *heldMessages) newDelivery(q *store.Queue, m store.Message, lock time.Duration, onSettled func()) *delivery {
	now := time.Now()
	return &delivery{
		hub: h.hub, queue: q, lock: lock, msg: m,
		dequeueCount: m.DequeueCount, insertedOn: m.InsertedOn, age: m.Age(),
		receivedAt: now, until: m.Until(), onSettled: onSettled,
		changing: make(chan struct{}, 1),
	}
}

func (h *heldMessages) count(all inuse.Counts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all["messages that are held"] = len(h.byID)
}
