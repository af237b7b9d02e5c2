package inflight

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

// Messages holds the messages in flight in this process, by queue and ID.
type Messages struct {
	*monitor.Monitor
	pace            *store.Pace    // of the queues
	ControlTimeout  time.Duration  // the normal visibility timeout of control-queue messages
	WorkItemTimeout time.Duration  // the normal visibility timeout of work items
	Hidden          hiddenMessages // abandoned by this process

	mu   sync.Mutex
	byID map[string]*Delivery
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

// Config has the configured times of messages in flight.
type Config struct {
	ControlQueueVisibilityTimeout  time.Duration
	WorkItemQueueVisibilityTimeout time.Duration
	LeaseInterval                  time.Duration
}

// New returns an empty set of messages. queues is the pace of requests to queues.
func New(m *monitor.Monitor, queues *store.Pace, cfg Config) *Messages {
	return &Messages{
		Monitor: m, pace: queues,
		ControlTimeout:  lockTime(cfg.ControlQueueVisibilityTimeout, cfg.LeaseInterval),
		WorkItemTimeout: lockTime(cfg.WorkItemQueueVisibilityTimeout, cfg.LeaseInterval),
		byID:            map[string]*Delivery{}, spent: map[string]spentMessage{},
	}
}

// Key returns the key of a message in maps.
func Key(queue, id string) string { return queue + "/" + id }

// add registers d. The message may be registered already, because its visibility timeout ended
// while this process held it. Then add updates that delivery with the new receipt and returns it. A
// delivery that is being released is replaced by d: the message can be received again before the
// release request returns.
func (h *Messages) add(d *Delivery) (older *Delivery) {
	key := Key(d.Queue.Name, d.ID())
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
	spentTTL = 2 * MaxAbandonDelay
	maxSpent = 4096
)

// spend records that a checkpoint has consumed d and that d may be redelivered.
func (h *Messages) spend(d *Delivery, m spentMessage) {
	now := time.Now()
	m.at = now
	key := Key(d.Queue.Name, d.ID())
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.spent) >= maxSpent {
		maps.DeleteFunc(h.spent, func(_ string, m spentMessage) bool { return now.Sub(m.at) > spentTTL })
	}
	if len(h.spent) < maxSpent {
		h.spent[key] = m
	}
}

// IsSpent reports whether a checkpoint has consumed d earlier. Such a message must only be deleted.
// The history may not identify it: an instance that continued as new no longer has the event. repair is
// the instance whose row and tracking records may be incomplete, or empty.
func (h *Messages) IsSpent(d *Delivery) (repair string, spent bool) {
	key := Key(d.Queue.Name, d.ID())
	h.mu.Lock()
	defer h.mu.Unlock()
	m, ok := h.spent[key]
	return m.repair, ok && time.Since(m.at) <= spentTTL
}

func (h *Messages) forget(d *Delivery) {
	key := Key(d.Queue.Name, d.ID())
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

// AwaitEmpty waits until no message is held or ctx ends.
func (h *Messages) AwaitEmpty(ctx context.Context) {
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
func (h *Messages) all() []*Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*Delivery, 0, len(h.byID))
	for _, key := range slices.Sorted(maps.Keys(h.byID)) {
		all = append(all, h.byID[key])
	}
	return all
}

// RenewalsAtOnce is the maximum number of concurrent renewals.
const RenewalsAtOnce = 32

// Renew renews the visibility timeouts of all held messages until ctx ends. A slow renewal does not
// delay the others. Before each pass it calls shed with the current limit.
func (h *Messages) Renew(ctx context.Context, shed func(most int)) {
	lock := min(h.ControlTimeout, h.WorkItemTimeout)
	var group errgroup.Group
	group.SetLimit(RenewalsAtOnce)
	for pause.For(ctx, lock/8) {
		shed(h.Limit())
		for _, d := range h.all() {
			if left, renewable := d.hiddenFor(h.Clock.Now()); !renewable || left > h.Stretched(d.VisibilityTimeout)/2 {
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

// AwaitRenewals waits while renewals are late, because the renewals of further messages would be
// late too. It does not wait for messages whose visibility timeout has ended.
func (h *Messages) AwaitRenewals(ctx context.Context) {
	late := func(d *Delivery) bool {
		left, renewable := d.hiddenFor(h.Clock.Now())
		return renewable && left > 0 && left <= d.VisibilityTimeout/8
	}
	for slices.ContainsFunc(h.all(), late) && pause.For(ctx, time.Second) {
	}
}

// renewalShare is the share of the requests to throttled queues that may be renewals.
const renewalShare = 0.25

// Limit returns the number of messages that this process can renew and finish at the current request rate. It
// applies to control-queue messages and work items separately. A message is renewed once per half of its
// visibility timeout. The limit is at least [store.MinInFlight], so that one long activity does not stop the
// others.
func (h *Messages) Limit() int {
	rate, limited := h.pace.Rate()
	if !limited {
		return math.MaxInt32
	}
	lock := min(h.ControlTimeout, h.WorkItemTimeout)
	return max(store.MinInFlight, int(rate*renewalShare*(lock/2).Seconds()/2))
}

// lockLatencies is the minimum visibility timeout in units of the queues' response time. If the
// queues are slow, it extends the timeouts so that renewals arrive in time, up to
// [disposition.MaxTimeoutFactor] times the normal timeout.
const lockLatencies = 8

// Stretched returns the current visibility timeout for messages whose normal timeout is lock.
func (h *Messages) Stretched(lock time.Duration) time.Duration {
	wanted := (lockLatencies * h.pace.Latency()).Truncate(time.Second)
	return max(lock, min(wanted, disposition.MaxTimeoutFactor*lock))
}

// lockTime returns the normal visibility timeout in whole seconds, the unit of the service. It is
// at most the lease interval of a partition, so that the messages of a dead worker reappear when
// its partitions become available.
func lockTime(configured, lease time.Duration) time.Duration {
	return max(min(configured, lease).Truncate(time.Second), time.Second)
}

// Hold wraps received messages in deliveries, and registers them for renewal before any of them is
// processed: fetching a large message can take long. It omits messages that this process holds
// already.
func (h *Messages) Hold(q *store.Queue, messages []store.Message, lock time.Duration, onSettled func()) (held []*Delivery) {
	for _, m := range messages {
		d := h.newDelivery(q, m, lock, onSettled)
		if older := h.add(d); older != nil {
			h.Routine.Record(disposition.Duplicate, older.Attrs("details", "its visibility timeout ended while this process held it"))
			continue
		}
		held = append(held, d)
	}
	return held
}

// Claim returns the delivery of a message that this process has enqueued hidden, and registers it for
// renewal. env is the message as a receiver decodes it.
func (h *Messages) Claim(q *store.Queue, m store.Message, lock time.Duration, env *wire.Envelope, onSettled func()) *Delivery {
	d := h.newDelivery(q, m, lock, onSettled)
	d.Env, d.claimed = env, true
	h.add(d)
	return d
}

// Direct returns the delivery of a message that is in no queue, so that no other worker can receive it.
// Its safety must be set. q, m and lock apply once the message is enqueued.
func (h *Messages) Direct(q *store.Queue, m store.Message, lock time.Duration, env *wire.Envelope, onSettled func()) *Delivery {
	d := h.newDelivery(q, m, lock, onSettled)
	d.Env, d.claimed, d.InsertedOn, d.Age = env, true, d.ReceivedAt, 0
	d.until = h.Clock.Now().Add(math.MaxInt64 / 2)
	return d
}

func (h *Messages) newDelivery(q *store.Queue, m store.Message, lock time.Duration, onSettled func()) *Delivery {
	now := time.Now()
	d := &Delivery{
		held: h, Queue: q, VisibilityTimeout: lock, msg: m,
		DequeueCount: m.DequeueCount, InsertedOn: m.InsertedOn, Age: m.Age(),
		ReceivedAt: now, until: h.Clock.At(m.HiddenUntil()), onSettled: onSettled,
		changing: make(chan struct{}, 1),
	}
	d.Safety = InQueue{d}
	return d
}

// Count adds the number of messages to all.
func (h *Messages) Count(all inuse.Counts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all["held messages"] = len(h.byID)
}
