package inbound

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/disposition"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/monitor"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Undecodable remembers the messages that this process cannot decode, so that each is logged once
// and health checks can show them.
type Undecodable struct {
	*monitor.Monitor
	Queues   []*store.Queue                  // the queues that have a poison queue
	Aside    func(queue string) *store.Queue // returns the poison queue of a queue
	SetAside bool                            // set aside each poison message

	mu    sync.Mutex // protects byKey
	byKey map[string]undecodableMessage
}

type undecodableMessage struct {
	provider.UndecodableMessage
	seen time.Time
}

// maxUndecodable is the maximum number of remembered messages. maxUndecodableCause limits the
// stored cause, in bytes of JSON. undecodableTTL is the time for which a message is remembered after
// its last receive; it is longer than the longest abandon delay.
const (
	maxUndecodable      = 1000
	maxUndecodableCause = 300
	undecodableTTL      = 2 * inflight.MaxAbandonDelay
)

// record remembers a message that cannot be decoded. It returns true if the message is new and must
// be logged.
func (u *Undecodable) record(queue, id string, cause error) (news bool) {
	key, now := inflight.Key(queue, id), time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	m, known := u.byKey[key]
	if !known {
		if len(u.byKey) >= maxUndecodable {
			u.removeOld(now)
		}
		if len(u.byKey) >= maxUndecodable {
			return false
		}
		if u.byKey == nil {
			u.byKey = make(map[string]undecodableMessage)
		}
		text := cause.Error()
		m.UndecodableMessage = provider.UndecodableMessage{Queue: queue, ID: id, Cause: wire.TruncateJSON(text, maxUndecodableCause), Since: now}
		if m.Cause != text {
			m.Cause += "…"
		}
	}
	m.seen = now
	u.byKey[key] = m
	return !known
}

// has reports whether a message was received earlier and could not be decoded.
func (u *Undecodable) has(queue, id string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, known := u.byKey[inflight.Key(queue, id)]
	return known
}

// removeOld forgets the messages that were not received for undecodableTTL: another worker must
// have decoded or deleted them. The caller holds u.mu.
func (u *Undecodable) removeOld(now time.Time) {
	maps.DeleteFunc(u.byKey, func(_ string, m undecodableMessage) bool { return !m.SetAside && now.Sub(m.seen) > undecodableTTL })
}

// moved records that a message was moved to the poison queue.
func (u *Undecodable) moved(queue, id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if m, known := u.byKey[inflight.Key(queue, id)]; known {
		m.SetAside = true
		u.byKey[inflight.Key(queue, id)] = m
	}
}

// removeSetAside forgets the messages of a queue's poison queue after they were moved back.
func (u *Undecodable) removeSetAside(queue string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.byKey, func(_ string, m undecodableMessage) bool { return m.SetAside && m.Queue == queue })
}

// All returns the messages, ordered by queue and ID.
func (u *Undecodable) All() []provider.UndecodableMessage {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.removeOld(time.Now())
	var all []provider.UndecodableMessage
	for _, key := range slices.Sorted(maps.Keys(u.byKey)) {
		all = append(all, u.byKey[key].UndecodableMessage)
	}
	return all
}

// errBlobGone means that the blob of a large message does not exist. The sender writes it before
// the message.
var errBlobGone = errors.New("its blob does not exist")

// Counts returns the number of messages in each queue that the worker reads, and in the poison queues. Another worker
// counts the messages of a queue that this worker has released.
func (u *Undecodable) Counts(queues []*store.Queue) map[string]int {
	counts := map[string]int{}
	for _, q := range queues {
		counts[q.Name] = 0
	}
	for _, m := range u.All() {
		if m.SetAside {
			counts[u.Aside(m.Queue).Name]++
		} else if _, reads := counts[m.Queue]; reads {
			counts[m.Queue]++
		}
	}
	return counts
}

// maxBlobMisses is the number of receives after which a message without its blob is set aside.
const maxBlobMisses = 5

// reject handles a message that cannot be decoded. It abandons the message with a growing delay,
// because a worker of another version may be able to decode it
// (DurableTask.AzureStorage/Messaging/ControlQueue.cs, GetMessagesAsync, and TaskHubQueue.cs,
// AbandonMessageAsync). It logs the message once; .NET logs it every time.
//
// A poison message is set aside if the configuration requires it. A message without its blob is set
// aside earlier and in any case, because no worker can ever read it. Such messages exist if a
// retried request enqueued a large message twice: the blob is deleted with the instance. If the
// blob exists but cannot be read, the message is abandoned as usual.
func (u *Undecodable) reject(ctx context.Context, d *inflight.Delivery, cause error) {
	if !store.IsUnreadable(cause) {
		u.Log.Warn("MessageFailure", d.Attrs("error", cause)...)
		d.Abandon(ctx, cause.Error())
		return
	}
	if u.record(d.Queue.Name, d.ID(), cause) {
		u.Log.Error("MessageFailure", d.Attrs("error", cause)...)
	}
	delay := inflight.AbandonDelay(d.TimesReceived())
	aside := errors.Is(cause, errBlobGone) && d.TimesReceived() >= maxBlobMisses
	if delay >= inflight.MaxAbandonDelay {
		u.Meter.RecordPoison(d.Queue.Name)
		aside = aside || u.SetAside
	}
	if aside && u.move(ctx, d) {
		return
	}
	u.Log.Debug(disposition.Abandoning, d.Attrs("delay", delay, "reason", cause)...)
	u.Meter.RecordHeldBack(d.Queue.Name, d.HeldBackReason())
	d.Release(ctx, delay)
}

// HoldBack abandons a message that cannot be decoded or stored, with a growing delay.
func (u *Undecodable) HoldBack(ctx context.Context, q *store.Queue, m store.Message, cause error) {
	delay := inflight.AbandonDelay(m.DequeueCount)
	attrs := []any{"partition", q.Name, "messageId", m.ID, "dequeueCount", m.DequeueCount, "error", cause}
	if u.record(q.Name, m.ID, cause) {
		u.Log.Error("MessageFailure", attrs...)
	}
	if delay >= inflight.MaxAbandonDelay {
		u.Meter.RecordPoison(q.Name)
	}
	if _, err := q.Update(ctx, m, delay); err != nil && !store.IsMessageGone(err) {
		u.Log.Warn("cannot release message; it reappears when its visibility timeout ends", append(attrs, "cause", err)...)
	}
}

// move moves the unchanged message to the poison queue. It returns false if that fails. It
// copies the message before it deletes it: if the worker dies in between, both queues have it, and
// receivers recognize the duplicate.
func (u *Undecodable) move(ctx context.Context, d *inflight.Delivery) bool {
	aside := u.Aside(d.Queue.Name)
	err := aside.Create(ctx)
	if err == nil {
		_, err = aside.Put(store.AllowMissing(ctx), d.Text(), 0, true)
	}
	if err != nil {
		u.Log.Warn("cannot set message aside; trying again at its next delivery", d.Attrs("error", err)...)
		return false
	}
	u.Log.Error("MessageSetAside", d.Attrs("queue", aside.Name)...)
	u.moved(d.Queue.Name, d.ID())
	d.Discard(ctx)
	return true
}

// RefreshSetAside forgets messages that another process has moved back. It queries only poison
// queues that this process has used.
func (u *Undecodable) RefreshSetAside(ctx context.Context) error {
	var queues []string
	for _, m := range u.All() {
		if m.SetAside && !slices.Contains(queues, m.Queue) {
			queues = append(queues, m.Queue)
		}
	}
	for _, name := range queues {
		n, err := u.Aside(name).Length(store.AllowMissing(ctx))
		if err != nil && !store.IsMissing(err) {
			return err
		}
		if n == 0 {
			u.removeSetAside(name)
		}
	}
	return nil
}

// Retry moves all messages of the poison queues back. It returns their number.
func (u *Undecodable) Retry(ctx context.Context, lock time.Duration) (n int, err error) {
	for _, q := range u.Queues {
		aside := u.Aside(q.Name)
		for {
			messages, err := aside.Receive(store.AllowMissing(ctx), store.MaxReceive, lock)
			if err != nil && !store.IsMissing(err) {
				return n, fmt.Errorf("receive from queue %s: %w", aside.Name, err)
			}
			if len(messages) == 0 {
				break
			}
			for _, m := range messages {
				if _, err := q.Put(ctx, m.Text, 0, true); err != nil {
					return n, err
				}
				if _, err := aside.Remove(ctx, m.ID, m.Receipt); err != nil {
					return n, err
				}
				n++
			}
		}
		u.removeSetAside(q.Name)
	}
	return n, nil
}
