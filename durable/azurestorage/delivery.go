package azurestorage

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/disposition"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A delivery is a message that this process has in flight: it was received, is hidden
// from others, and will be deleted, abandoned or released.
type delivery struct {
	hub   *TaskHub
	queue *store.Queue
	env   *wire.Envelope // set by decode, nil before and if the message cannot be read
	lock  time.Duration  // for how long a renewal hides it

	dequeueCount int
	insertedOn   time.Time
	age          time.Duration // since then, when it was received, by the clock of the service
	receivedAt   time.Time     // by our clock
	onSettled    func()        // called once, when it is not ours any more

	// fresh is what is stored of an instance that this message starts, if this
	// process has just seen to it that there was nothing before; else nil.
	fresh *instances.Instance
	// claimed means that the message was never received.
	claimed bool
	// direct is set if this is not a message of a control queue but the result of
	// an activity that ran here.
	direct *directResult
	// raised is set if this is an event of a client of this process, which may not be in
	// its queue yet.
	raised *directEvent

	// changing is held while the message is changed in storage. Each change brings a
	// new receipt and invalidates the old one.
	changing chan struct{}

	mu      sync.Mutex // protects the following
	msg     store.Message
	until   time.Time // when others may receive it, by our clock
	lost    bool      // somebody else received it
	leaving bool      // it is being given back, and may be received anew from now on
	settled bool
	// inDoubt means that it was to be deleted, and that it is not known to be.
	inDoubt bool
}

// id returns the message's ID, empty if it is not in its queue.
func (d *delivery) id() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.msg.ID
}

// text returns the message as it was received.
func (d *delivery) text() string {
	d.mu.Lock() // a renewal may be under way
	defer d.mu.Unlock()
	return d.msg.Text
}

// event returns what the message carries.
func (d *delivery) event() history.Event { return d.env.Message.Event }

// target returns whom the message is for.
func (d *delivery) target() history.OrchestrationInstance { return d.env.Message.Target }

// attrs returns what log entries about the message have in common.
func (d *delivery) attrs(more ...any) []any {
	attrs := []any{
		slog.String("partition", d.queue.Name),
		slog.String("messageId", d.id()),
		slog.Int("dequeueCount", d.dequeueCount),
	}
	d.mu.Lock() // a renewal may log it while it is being read
	env := d.env
	d.mu.Unlock()
	if env != nil {
		attrs = append(attrs,
			slog.String("instanceId", env.Message.Target.InstanceID),
			slog.String("executionId", env.Message.Target.ExecutionID),
			slog.String("eventType", env.Message.Event.Type().String()),
			slog.Int("taskEventId", taskEventID(env.Message.Event)))
	}
	return append(attrs, more...)
}

// change calls f with the current message, while no other goroutine changes it. f
// returns the message as it is afterwards. change does nothing to a settled message.
func (d *delivery) change(ctx context.Context, f func(m store.Message) (store.Message, error)) error {
	select {
	case d.changing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return d.changeNow(f)
}

// changeNow is change for a caller that has sent to d.changing. It receives from it at
// the end.
func (d *delivery) changeNow(f func(m store.Message) (store.Message, error)) error {
	defer func() { <-d.changing }()
	d.mu.Lock()
	m, settled := d.msg, d.settled
	d.mu.Unlock()
	if settled {
		return nil
	}
	changed, err := f(m)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil && d.msg.Receipt == m.Receipt {
		d.msg = changed
	}
	return err
}

// remove deletes the message and settles the delivery. If it fails, the message will be
// received again.
func (d *delivery) remove(ctx context.Context) error {
	defer d.settle()
	if d.direct != nil {
		return d.direct.item.remove(ctx)
	}
	if d.raised.taken() {
		return nil
	}
	deleted := false
	defer func() {
		d.mu.Lock()
		d.inDoubt = !deleted
		d.mu.Unlock()
		if !deleted {
			d.hub.held.spend(d, spentMessage{})
		}
	}()
	return d.change(ctx, func(m store.Message) (store.Message, error) {
		gone, err := d.queue.Remove(d.whileHidden(ctx), m.ID, m.Receipt)
		deleted = err == nil && !gone
		if gone {
			d.hub.routine.note("MessageGone", d.attrs("details", "it was deleted, or another worker received it"))
		}
		return m, err
	})
}

// discard deletes the message. If that fails, it comes back by itself.
func (d *delivery) discard(ctx context.Context) {
	if err := d.remove(ctx); err != nil && ctx.Err() == nil {
		d.hub.log.Warn("message could not be deleted, it comes back by itself", d.attrs("error", err)...)
	}
}

// refuse deletes the message of a start that does not count, and remembers its blob: another
// copy of the message may be in the queue.
func (d *delivery) refuse(ctx context.Context) {
	d.discard(ctx)
	if wrapper, err := wire.DecodeEnvelope(d.text()); err == nil {
		d.hub.starts.blobs.remember(wrapper.CompressedBlobName)
	}
}

// removeAgain deletes a message that was received again after this process had taken it.
func (d *delivery) removeAgain(ctx context.Context) {
	d.hub.routine.note(disposition.Duplicate, d.attrs("details", "it was taken before, and not deleted then"))
	d.discard(ctx)
}

// noteCommitted notes that a checkpoint took a message which is released, since the
// instance's row or its tracking records could not be written. The history may not show
// for long that it was taken: an instance that continues as new with an event has it no
// more. When the message comes again, both are repaired, and it is deleted.
func (d *delivery) noteCommitted() {
	if d.direct == nil && !d.raised.noteCommitted() && !history.IsEntity(d.target().InstanceID) { // an entity remembers what it took
		d.hub.held.spend(d, spentMessage{repair: d.target().InstanceID})
	}
}

// repair repairs the row and the tracking records for which a message was released, and
// deletes the message.
func (d *delivery) repair(ctx context.Context, instanceID string) {
	if err := d.hub.repair(ctx, instanceID, nil); err != nil {
		d.hub.held.spend(d, spentMessage{repair: instanceID}) // for as long anew
		d.abandonAfter(ctx, err)
		return
	}
	d.removeAgain(ctx)
}

// The longest a message is hidden after it could not be processed. At that
// point it has failed often enough to tell a person
// (DurableTask.AzureStorage/Messaging/TaskHubQueue.cs, AbandonMessageAsync).
const maxAbandonDelay = 10 * time.Minute

// abandonDelay returns for how long a message is hidden that could not be
// processed the n-th time: 2, 4, 8 seconds and so on; 1 second before the first.
func abandonDelay(dequeueCount int) time.Duration {
	if dequeueCount >= 10 {
		return maxAbandonDelay
	}
	return min(time.Second<<max(dequeueCount, 0), maxAbandonDelay)
}

// abandon gives the message back after a delay that grows with every delivery.
func (d *delivery) abandon(ctx context.Context, reason string) {
	d.abandonAs(ctx, disposition.Abandoning, reason)
}

// abandonAfter is abandon after an error of the storage, which it logs.
func (d *delivery) abandonAfter(ctx context.Context, err error) {
	if ctx.Err() == nil {
		d.hub.log.Warn("message could not be processed; it will be delivered again", d.attrs("error", err)...)
	}
	d.abandon(ctx, err.Error())
}

// abandonBecause is abandon for a cause that may ask for a shorter delay.
func (d *delivery) abandonBecause(ctx context.Context, cause error) {
	delay := abandonDelay(d.receives())
	if sooner := provider.AbandonDelay(cause, time.Now(), delay); sooner < delay {
		d.abandonFor(ctx, disposition.Abandoning, sooner, cause.Error())
		return
	}
	d.abandon(ctx, cause.Error())
}

// abandonAs is abandon that is logged as the given event.
func (d *delivery) abandonAs(ctx context.Context, event, reason string) {
	delay := abandonDelay(d.receives())
	if delay >= maxAbandonDelay {
		d.hub.log.Warn("PoisonMessageDetected", d.attrs("reason", reason)...)
		d.hub.meter.Poison(d.queue.Name)
	}
	d.abandonFor(ctx, event, delay, reason)
}

// receives returns how often the message was received, as its queue has counted:
// one that was claimed will be received for the first time.
func (d *delivery) receives() int {
	if d.claimed {
		return 0
	}
	return d.dequeueCount
}

// abandonFor gives the message back, hidden for the given time, and logs that as event.
func (d *delivery) abandonFor(ctx context.Context, event string, delay time.Duration, reason string) {
	d.hub.routine.note(event, d.attrs("delay", delay, "reason", reason))
	d.hub.meter.HeldBack(d.queue.Name, d.heldWhy())
	d.handBack(ctx, delay)
}

// handBack gives the message back: it becomes visible after delay, and the delivery is
// settled.
func (d *delivery) handBack(ctx context.Context, delay time.Duration) {
	defer d.settle()
	if d.direct != nil {
		d.direct.send(ctx, d.env, delay)
		return
	}
	if d.raised.send(ctx, delay) {
		return
	}
	d.mu.Lock()
	d.leaving = true
	d.mu.Unlock()
	err := d.change(ctx, func(m store.Message) (store.Message, error) { return d.queue.Update(d.whileHidden(ctx), m, delay) })
	switch {
	case err == nil:
		d.keepReceipt()
	case store.IsGone(err):
		d.hub.routine.note("MessageGone", d.attrs("details", err.Error()))
	default:
		d.hub.log.Warn("message could not be handed back, it comes back by itself", d.attrs("after", d.lock, "error", err)...)
	}
}

// isOrdered reports whether a later message of the instance must not overtake this one. It is
// also true for a message that was handed over in memory.
func (d *delivery) isOrdered() bool {
	_, isEvent := d.event().(*history.EventRaised)
	return isEvent || d.claimed
}

// keepReceipt keeps the receipt of the message, which is hidden, for a resumption.
func (d *delivery) keepReceipt() {
	d.mu.Lock()
	m, env := d.msg, d.env
	d.mu.Unlock()
	if env != nil {
		d.hub.hidden.add(env.Message.Target.InstanceID, d.queue, m)
	}
}

func (d *delivery) isLeaving() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.leaving
}

// settle marks the delivery as deleted or given back, and returns its room.
func (d *delivery) settle() {
	d.mu.Lock()
	first, give := !d.settled, d.onSettled
	d.settled = true
	d.mu.Unlock()
	if first {
		d.hub.held.forget(d)
		give()
	}
}

// renew keeps the message hidden, unless another goroutine is changing it: waiting for
// that could delay the renewal of other messages.
func (d *delivery) renew(ctx context.Context) {
	select {
	case d.changing <- struct{}{}:
	default:
		return
	}
	err := d.changeNow(func(m store.Message) (store.Message, error) {
		m, err := d.queue.Update(store.Urgent(d.whileHidden(ctx)), m, d.hub.held.stretched(d.lock))
		if err == nil {
			d.hub.log.Debug("RenewingMessage", d.attrs()...)
			d.mu.Lock()
			d.until = m.Until()
			d.mu.Unlock()
		}
		return m, err
	})
	switch {
	case err == nil:
		d.hub.health.OK("queues")
	case store.IsGone(err):
		d.mu.Lock()
		d.lost = true
		d.mu.Unlock()
		d.hub.routine.note("MessageGone", d.attrs("details", "its lock was lost: "+err.Error()))
	case ctx.Err() == nil:
		d.hub.health.Failed("queues", err)
	}
}

// whileHidden returns a context whose operations are not retried after the message becomes
// visible.
func (d *delivery) whileHidden(ctx context.Context) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return store.RetryBefore(ctx, d.until)
}

// hiddenFor returns for how long the message stays hidden from others. renewable is
// false if it is not to be renewed.
func (d *delivery) hiddenFor(now time.Time) (left time.Duration, renewable bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.until.Sub(now), !d.settled && !d.leaving && !d.lost
}

// anyLost reports whether another worker may have one of the messages, since it was
// not renewed in time.
func anyLost(deliveries []*delivery) bool {
	now := time.Now()
	return slices.ContainsFunc(deliveries, func(d *delivery) bool {
		if d.direct != nil {
			d = d.direct.item
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.lost || now.After(d.until)
	})
}

// giveRoom returns the room that d takes up, although d is not settled yet.
func (d *delivery) giveRoom() {
	d.mu.Lock()
	give := d.onSettled
	d.onSettled = func() {}
	d.mu.Unlock()
	give()
}

// replace gives d the newer copy of its message, which became visible and was received
// again by this process.
func (d *delivery) replace(m store.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.msg, d.lost = m, false
	d.until = m.Until()
}

// isInDoubt reports whether the message may be received again although it was to be
// deleted.
func (d *delivery) isInDoubt() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inDoubt
}

// taskEventID returns the ID of the action that an event belongs to, -1 if there is
// none.
func taskEventID(ev history.Event) int {
	if id, ok := history.Completes(ev); ok {
		return id
	}
	return ev.Head().EventID
}

// heldWhy returns why a message is held back: it cannot be decoded, or it came too
// early.
func (d *delivery) heldWhy() metering.Held {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.env == nil {
		return metering.Unreadable
	}
	return metering.Early
}

// ageOf returns for how long a message has waited in its queue, that of a timer since
// it was due.
func ageOf(d *delivery) time.Duration {
	since := d.insertedOn
	if d.env != nil && d.env.Message != nil {
		if due := provider.Due(*d.env.Message); due.After(since) {
			since = due
		}
	}
	return d.receivedAt.Sub(since)
}
