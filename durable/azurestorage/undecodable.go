package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/disposition"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// undecodable remembers the messages that this process has received and cannot
// decode, so that the log has each once and health shows them.
type undecodable struct {
	hub *TaskHub

	mu    sync.Mutex // protects byKey
	byKey map[string]undecodableMessage
}

type undecodableMessage struct {
	provider.UndecodableMessage
	seen time.Time
}

// How many of them are remembered, how much of why, in bytes of JSON, and for how long
// after one was received, which is longer than any is hidden for.
const (
	maxUndecodable      = 1000
	maxUndecodableCause = 300
	undecodableFor      = 2 * maxAbandonDelay
)

// see notes that a message was received that cannot be decoded. It reports whether to
// log that.
func (u *undecodable) see(queue, id string, cause error) (news bool) {
	key, now := heldKey(queue, id), time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	m, known := u.byKey[key]
	if !known {
		if len(u.byKey) >= maxUndecodable {
			u.forgetOld(now)
		}
		if len(u.byKey) >= maxUndecodable {
			return false
		}
		if u.byKey == nil {
			u.byKey = make(map[string]undecodableMessage)
		}
		text := cause.Error()
		m.UndecodableMessage = provider.UndecodableMessage{Queue: queue, ID: id, Cause: wire.CutJSON(text, maxUndecodableCause), Since: now}
		if m.Cause != text {
			m.Cause += "…"
		}
	}
	m.seen = now
	u.byKey[key] = m
	return !known
}

// knows reports whether a message was received before and could not be decoded.
func (u *undecodable) knows(queue, id string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, known := u.byKey[heldKey(queue, id)]
	return known
}

// forgetOld forgets the messages that have not come for so long that another worker must
// have decoded or deleted them. u.mu is held.
func (u *undecodable) forgetOld(now time.Time) {
	maps.DeleteFunc(u.byKey, func(_ string, m undecodableMessage) bool { return !m.SetAside && now.Sub(m.seen) > undecodableFor })
}

// setAside notes that a message is in the queue of those that are set aside.
func (u *undecodable) setAside(queue, id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if m, known := u.byKey[heldKey(queue, id)]; known {
		m.SetAside = true
		u.byKey[heldKey(queue, id)] = m
	}
}

// takenBack forgets the messages of a queue that were set aside, since they are put back.
func (u *undecodable) takenBack(queue string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.byKey, func(_ string, m undecodableMessage) bool { return m.SetAside && m.Queue == queue })
}

// all returns the messages in the order of their keys.
func (u *undecodable) all() []provider.UndecodableMessage {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.forgetOld(time.Now())
	var all []provider.UndecodableMessage
	for _, key := range slices.Sorted(maps.Keys(u.byKey)) {
		all = append(all, u.byKey[key].UndecodableMessage)
	}
	return all
}

// errBlobGone means that the blob of a large message does not exist. It is written
// before the message.
var errBlobGone = errors.New("its blob is not there")

// blobMissedTimes is how often such a message must have been received before it is set
// aside.
const blobMissedTimes = 5

// leave abandons a message that cannot be decoded, for longer each time: a worker of
// another version may be able to decode it
// (DurableTask.AzureStorage/Messaging/ControlQueue.cs, GetMessagesAsync, and
// TaskHubQueue.cs, AbandonMessageAsync). .NET logs it each time, we do once. It is set
// aside when it is a poison message, if the configuration says so; sooner and in any case
// if its blob is not there, since no worker can read it then: a request that came twice
// leaves a copy of a large message, whose blob goes with the instance. A message whose
// blob could not be read is abandoned like any other.
func (d *delivery) leave(ctx context.Context, cause error) {
	h := d.hub
	if !store.IsUnreadable(cause) {
		h.log.Warn("MessageFailure", d.attrs("error", cause)...)
		d.abandon(ctx, cause.Error())
		return
	}
	if h.undecodable.see(d.queue.Name, d.id(), cause) {
		h.log.Error("MessageFailure", d.attrs("error", cause)...)
	}
	delay := abandonDelay(d.receives())
	aside := errors.Is(cause, errBlobGone) && d.receives() >= blobMissedTimes
	if delay >= maxAbandonDelay {
		h.meter.Poison(d.queue.Name)
		aside = aside || h.cfg.SetAsideUndecodable
	}
	if aside && d.setAside(ctx) {
		return
	}
	h.log.Debug(disposition.Abandoning, d.attrs("delay", delay, "reason", cause)...)
	h.meter.HeldBack(d.queue.Name, d.heldWhy())
	d.handBack(ctx, delay)
}

// holdBack abandons a message that cannot be decoded or stored, for longer each time.
func (u *undecodable) holdBack(ctx context.Context, q *store.Queue, m store.Message, cause error) {
	delay := abandonDelay(m.DequeueCount)
	attrs := []any{"partition", q.Name, "messageId", m.ID, "dequeueCount", m.DequeueCount, "error", cause}
	if u.see(q.Name, m.ID, cause) {
		u.hub.log.Error("MessageFailure", attrs...)
	}
	if delay >= maxAbandonDelay {
		u.hub.meter.Poison(q.Name)
	}
	if _, err := q.Update(ctx, m, delay); err != nil && !store.IsGone(err) {
		u.hub.log.Warn("message could not be handed back, it comes back by itself", append(attrs, "cause", err)...)
	}
}

// setAside moves the message, as it is, to the queue of those that are set aside, and
// reports whether it is there. It copies the message first: a worker that dies in between
// leaves it in both queues, and receivers recognize duplicates.
func (d *delivery) setAside(ctx context.Context) bool {
	aside := d.hub.undecodable.asideOf(d.queue)
	err := aside.Create(ctx)
	if err == nil {
		_, err = aside.Put(store.Optional(ctx), d.text(), 0, true)
	}
	if err != nil {
		d.hub.log.Warn("message could not be set aside, that is tried again", d.attrs("error", err)...)
		return false
	}
	d.hub.log.Error("MessageSetAside", d.attrs("queue", aside.Name)...)
	d.hub.undecodable.setAside(d.queue.Name, d.id())
	d.discard(ctx)
	return true
}

// asideOf returns the queue for messages of q that are set aside. It is created with the
// first of them.
func (u *undecodable) asideOf(q *store.Queue) *store.Queue {
	return store.NewQueue(u.hub.services.Queues, u.hub.names.Aside(q.Name))
}

// Undecodable implements [provider.UndecodableKeeper].
func (h *TaskHub) Undecodable() []provider.UndecodableMessage { return h.undecodable.all() }

// RetryUndecodable implements [provider.UndecodableKeeper].
func (h *TaskHub) RetryUndecodable(ctx context.Context) (n int, err error) {
	if err := h.resources.ensureCreated(ctx); err != nil {
		return 0, err
	}
	for _, q := range h.undecodable.messageQueues() {
		for {
			messages, err := h.undecodable.asideOf(q).Receive(store.Optional(ctx), store.MaxReceive, h.held.controlLock())
			if err != nil && !store.IsMissing(err) {
				return n, fmt.Errorf("receive from queue %s: %w", h.names.Aside(q.Name), err)
			}
			if len(messages) == 0 {
				break
			}
			for _, m := range messages {
				if _, err := q.Put(ctx, m.Text, 0, true); err != nil {
					return n, err
				}
				if _, err := h.undecodable.asideOf(q).Remove(ctx, m.ID, m.Receipt); err != nil {
					return n, err
				}
				n++
			}
		}
		h.undecodable.takenBack(q.Name)
	}
	if n > 0 {
		h.activities.wake.Give()
		for _, p := range h.partitions {
			p.wake.Give()
		}
	}
	return n, nil
}

// lookAside forgets messages that are not set aside any more, since another process has
// put them back. It looks only into queues into which this process has put messages.
func (u *undecodable) lookAside(ctx context.Context) error {
	var queues []string
	for _, m := range u.all() {
		if m.SetAside && !slices.Contains(queues, m.Queue) {
			queues = append(queues, m.Queue)
		}
	}
	for _, name := range queues {
		n, err := store.NewQueue(u.hub.services.Queues, u.hub.names.Aside(name)).Length(store.Optional(ctx))
		if err != nil && !store.IsMissing(err) {
			return err
		}
		if n == 0 {
			u.takenBack(name)
		}
	}
	return nil
}

// messageQueues are the queues whose messages can be set aside.
func (u *undecodable) messageQueues() []*store.Queue {
	return append(slices.Clone(u.hub.controlQueues), u.hub.workItems)
}
