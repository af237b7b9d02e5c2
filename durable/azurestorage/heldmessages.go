package azurestorage

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/disposition"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/monitor"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"golang.org/x/sync/errgroup"
)

// heldMessages holds the messages in flight in this process, by queue and ID.
type heldMessages struct {
	*monitor.Monitor
	pace         *store.Pace   // of the queues
	controlLock  time.Duration // the normal visibility timeout of control-queue messages
	workItemLock time.Duration // the normal visibility timeout of work items
	hidden       hiddenMessages

	mu   sync.Mutex
	byID map[string]*delivery
	// spent holds the keys of consumed messages that may be redelivered. Either their delete may
	// have failed, or they were released because the row or the tracking records could not be
	// written.
	spent map[string]spentMessage
	// empty is closed when no message is held. It is nil unless a goroutine waits for that.
	empty chan struct{}
}

// spentMessage is a message that a checkpoint has consumed.
type spentMessage struct {
	at     time.Time
	repair string // the instance whose row and tracking records may be incomplete, or empty
}

// heldConfig has the configured times of messages in flight.
type heldConfig struct {
	ControlQueueVisibilityTimeout  time.Duration
	WorkItemQueueVisibilityTimeout time.Duration
	LeaseInterval                  time.Duration
}

func newHeldMessages(m *monitor.Monitor, queues *store.Pace, cfg heldConfig) *heldMessages {
	return &heldMessages{
		Monitor: m, pace: queues,
		controlLock:  lockTime(cfg.ControlQueueVisibilityTimeout, cfg.LeaseInterval),
		workItemLock: lockTime(cfg.WorkItemQueueVisibilityTimeout, cfg.LeaseInterval),
		byID:         map[string]*delivery{}, spent: map[string]spentMessage{},
	}
}

func heldKey(queue, id string) string { return queue + "/" + id }

// add registers d. The message may be registered already, because its visibility timeout ended
// while this process held it. Then add updates that delivery with the new receipt and returns it. A
// delivery that is being released is replaced by d: the message can be received again before the
// release request returns.
func (h *heldMessages) add(d *delivery) (older *delivery) {
	key := heldKey(d.queue.Name, d.id())
	h.mu.Lock()
	older = h.byID[key]
	if older == nil || older.isReleasing() {
		h.byID[key], older = d, nil
	}
	h.mu.Unlock()
	if older != nil {
		older.replace(d.msg)
	}
	return older
}

// spentTTL is the time for which a spent message is remembered. It is longer than the longest delay
// of an abandoned message. maxSpent is the maximum number of spent messages.
const (
	spentTTL = 2 * maxAbandonDelay
	maxSpent = 4096
)

// spend records that a checkpoint has consumed d and that d may be redelivered.
func (h *heldMessages) spend(d *delivery, m spentMessage) {
	now := time.Now()
	m.at = now
	key := heldKey(d.queue.Name, d.id())
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.spent) >= maxSpent {
		maps.DeleteFunc(h.spent, func(_ string, m spentMessage) bool { return now.Sub(m.at) > spentTTL })
	}
	if len(h.spent) < maxSpent {
		h.spent[key] = m
	}
}

// isSpent reports whether a checkpoint has consumed d earlier. Such a message must only be deleted.
// The history may not identify it: an instance that continued as new no longer has the event. repair is
// the instance whose row and tracking records may be incomplete, or empty.
func (h *heldMessages) isSpent(d *delivery) (repair string, spent bool) {
	key := heldKey(d.queue.Name, d.id())
	h.mu.Lock()
	defer h.mu.Unlock()
	m, ok := h.spent[key]
	return m.repair, ok && time.Since(m.at) <= spentTTL
}

func (h *heldMessages) forget(d *delivery) {
	key := heldKey(d.queue.Name, d.id())
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byID[key] == d {
		delete(h.byID, key)
	}
	if len(h.byID) == 0 && h.empty != nil {
		close(h.empty)
		h.empty = nil
	}
}

// awaitEmpty waits until no message is held or ctx ends.
func (h *heldMessages) awaitEmpty(ctx context.Context) {
	h.mu.Lock()
	if len(h.byID) == 0 {
		h.mu.Unlock()
		return
	}
	if h.empty == nil {
		h.empty = make(chan struct{})
	}
	empty := h.empty
	h.mu.Unlock()
	select {
	case <-empty:
	case <-ctx.Done():
	}
}

// all returns the held messages, ordered by queue and ID.
func (h *heldMessages) all() []*delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*delivery, 0, len(h.byID))
	for _, key := range slices.Sorted(maps.Keys(h.byID)) {
		all = append(all, h.byID[key])
	}
	return all
}

// renewalsAtOnce is the maximum number of concurrent renewals.
const renewalsAtOnce = 32

// renew renews the visibility timeouts of all held messages until ctx ends. A slow renewal does not
// delay the others. Before each pass it calls shed with the current limit.
func (h *heldMessages) renew(ctx context.Context, shed func(most int)) {
	lock := min(h.controlLock, h.workItemLock)
	var group errgroup.Group
	group.SetLimit(renewalsAtOnce)
	for pause.For(ctx, lock/8) {
		shed(h.limit())
		for _, d := range h.all() {
			if left, renewable := d.hiddenFor(h.Clock.Now()); !renewable || left > h.stretched(d.lock)/2 {
				continue
			}
			group.Go(func() error {
				d.renew(ctx)
				return nil
			})
		}
	}
	_ = group.Wait() // the functions return no errors
}

// awaitRenewals waits while renewals are late, because the renewals of further messages would be
// late too. It does not wait for messages whose visibility timeout has ended.
func (h *heldMessages) awaitRenewals(ctx context.Context) {
	late := func(d *delivery) bool {
		left, renewable := d.hiddenFor(h.Clock.Now())
		return renewable && left > 0 && left <= d.lock/8
	}
	for slices.ContainsFunc(h.all(), late) && pause.For(ctx, time.Second) {
	}
}

// renewalShare is the share of the requests to throttled queues that may be renewals.
const renewalShare = 0.25

// limit returns how many messages of each kind, control-queue messages and work items, this process
// can renew and finish at the current request rate. A message is renewed once per half of its
// visibility timeout. limit is at least [store.MinInFlight], so that one long activity does not
// stop the others.
func (h *heldMessages) limit() int {
	rate, limited := h.pace.Rate()
	if !limited {
		return math.MaxInt32
	}
	lock := min(h.controlLock, h.workItemLock)
	return max(store.MinInFlight, int(rate*renewalShare*(lock/2).Seconds()/2))
}

// lockLatencies is the minimum visibility timeout in units of the queues' response time. If the
// queues are slow, it extends the timeouts so that renewals arrive in time, up to
// [disposition.MaxTimeoutFactor] times the normal timeout.
const lockLatencies = 8

// stretched returns the current visibility timeout for messages whose normal timeout is lock.
func (h *heldMessages) stretched(lock time.Duration) time.Duration {
	wanted := (lockLatencies * h.pace.Latency()).Truncate(time.Second)
	return max(lock, min(wanted, disposition.MaxTimeoutFactor*lock))
}

// lockTime returns the normal visibility timeout in whole seconds, the unit of the service. It is
// at most the lease interval of a partition, so that the messages of a dead worker reappear when
// its partitions become available.
func lockTime(configured, lease time.Duration) time.Duration {
	return max(min(configured, lease).Truncate(time.Second), time.Second)
}

// hold wraps received messages in deliveries, and registers them for renewal before any of them is
// processed: fetching a large message can take long. It omits messages that this process holds
// already.
func (h *heldMessages) hold(q *store.Queue, messages []store.Message, lock time.Duration, onSettled func()) (held []*delivery) {
	for _, m := range messages {
		d := h.newDelivery(q, m, lock, onSettled)
		if older := h.add(d); older != nil {
			h.Routine.Record(disposition.Duplicate, older.attrs("details", "its visibility timeout ended while this process held it"))
			continue
		}
		held = append(held, d)
	}
	return held
}

// claim returns the delivery of a message that this process has enqueued hidden, and registers it for
// renewal. env is the message as a receiver decodes it.
func (h *heldMessages) claim(q *store.Queue, m store.Message, lock time.Duration, env *wire.Envelope, onSettled func()) *delivery {
	d := h.newDelivery(q, m, lock, onSettled)
	d.env, d.claimed = env, true
	h.add(d)
	return d
}

// direct returns the delivery of a message that is in no queue, so that no other worker can receive it.
// Its safety must be set. q, m and lock apply once the message is enqueued.
func (h *heldMessages) direct(q *store.Queue, m store.Message, lock time.Duration, env *wire.Envelope, onSettled func()) *delivery {
	d := h.newDelivery(q, m, lock, onSettled)
	d.env, d.claimed, d.insertedOn, d.age = env, true, d.receivedAt, 0
	d.until = h.Clock.Now().Add(math.MaxInt64 / 2)
	return d
}

func (h *heldMessages) newDelivery(q *store.Queue, m store.Message, lock time.Duration, onSettled func()) *delivery {
	now := time.Now()
	d := &delivery{
		held: h, queue: q, lock: lock, msg: m,
		dequeueCount: m.DequeueCount, insertedOn: m.InsertedOn, age: m.Age(),
		receivedAt: now, until: h.Clock.At(m.HiddenUntil()), onSettled: onSettled,
		changing: make(chan struct{}, 1),
	}
	d.safety = inQueue{d}
	return d
}

func (h *heldMessages) count(all inuse.Counts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all["held messages"] = len(h.byID)
}
