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
	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A delivery is a message in flight in this process: it was received, is hidden from other workers,
// and will be deleted, abandoned or released.
type delivery struct {
	held  *heldMessages
	queue *store.Queue
	env   *wire.Envelope // set by decode; nil before that and if the message cannot be decoded
	lock  time.Duration  // the visibility timeout that a renewal sets

	dequeueCount int
	insertedOn   time.Time
	age          time.Duration // of the message when it was received, by the clock of the service
	receivedAt   time.Time     // by the local clock
	onSettled    func()        // called once, when this process no longer holds the message

	// newInstance is the instance that this message starts, if this process has just inserted its
	// row and nothing else is stored of it; otherwise nil.
	newInstance *instances.Instance
	// claimed means that the message was not received from its queue.
	claimed bool
	safety  safety

	// changing is held while the message is changed in storage. Each change returns a new receipt
	// and invalidates the previous one.
	changing chan struct{}

	mu        sync.Mutex // protects the following
	msg       store.Message
	until     clocks.Moment // end of the visibility timeout
	lost      bool          // another worker received it
	releasing bool          // a release request was sent; it can be received again from now on
	settled   bool
	// redeliverable means that a delete was requested and may have failed.
	redeliverable bool
}

// id returns the message's ID, empty if it is in no queue.
func (d *delivery) id() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.msg.ID
}

// text returns the text of the message as it was received.
func (d *delivery) text() string {
	d.mu.Lock() // a renewal may change msg
	defer d.mu.Unlock()
	return d.msg.Text
}

// event returns the message's event.
func (d *delivery) event() history.Event { return d.env.Message.Event }

// target returns the instance that the message is for.
func (d *delivery) target() history.OrchestrationInstance { return d.env.Message.Target }

// resumes reports whether the message resumes its instance.
func (d *delivery) resumes() bool { return d.event().Type() == history.TypeExecutionResumed }

// wakes reports whether the message, redelivered after a crash, makes a worker run the steps of an
// execution.
func (d *delivery) wakes(execution history.OrchestrationInstance) bool {
	if start, ok := d.event().(*history.ExecutionStarted); ok {
		return start.Instance == execution
	}
	return d.env.Message.WakesSteps() && d.target() == execution
}

// attrs returns the log attributes of the message, followed by more.
func (d *delivery) attrs(more ...any) []any {
	attrs := []any{
		slog.String("partition", d.queue.Name),
		slog.String("messageId", d.id()),
		slog.Int("dequeueCount", d.dequeueCount),
	}
	d.mu.Lock() // a renewal may log the message while it is being decoded
	env := d.env
	d.mu.Unlock()
	if env != nil {
		attrs = append(attrs,
			slog.String("instanceId", env.Message.Target.InstanceID),
			slog.String("executionId", env.Message.Target.ExecutionID),
			slog.String("eventType", env.Message.Event.Type().String()),
			slog.Int("taskEventId", taskEventID(env.Message.Event)))
		attrs = append(attrs, functionAttrs(env.Message.Event)...)
	}
	return append(attrs, more...)
}

// change calls f with the current message, while no other goroutine changes the message. f returns
// the message as it is afterwards. change does nothing if the delivery is settled.
func (d *delivery) change(ctx context.Context, f func(m store.Message) (store.Message, error)) error {
	select {
	case d.changing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return d.changeNow(f)
}

// changeNow is change for a caller that holds d.changing. It releases d.changing.
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

// remove deletes the message and settles the delivery. If the delete fails, the message is
// redelivered.
func (d *delivery) remove(ctx context.Context) error {
	defer d.settle()
	return d.safety.remove(ctx)
}

// discard deletes the message. If that fails, it logs a warning, and the message is redelivered.
func (d *delivery) discard(ctx context.Context) {
	if err := d.remove(ctx); err != nil && ctx.Err() == nil {
		d.held.Log.Warn("cannot delete message; it reappears when its visibility timeout ends", d.attrs("error", err)...)
	}
}

// removeDuplicate deletes a message that was received again after a checkpoint had consumed it.
func (d *delivery) removeDuplicate(ctx context.Context) {
	d.held.Routine.Record(disposition.Duplicate, d.attrs("details", "a checkpoint has consumed it earlier, but it was not deleted"))
	d.discard(ctx)
}

// markCommitted records that a checkpoint has consumed the message although it is going to be
// released. The reason is that the instance's row or its tracking records could not be written.
// When the message is redelivered, both are repaired and the message is deleted. The history alone
// may not identify it: an instance that continued as new no longer has the event.
func (d *delivery) markCommitted() { d.safety.markCommitted() }

// keepSpent restarts the time for which a spent message is remembered. repair is described at
// [heldMessages.isSpent].
func (d *delivery) keepSpent(repair string) { d.held.spend(d, spentMessage{repair: repair}) }

// maxAbandonDelay is the longest delay of an abandoned message. A message that reaches it is logged
// as a poison message (DurableTask.AzureStorage/Messaging/TaskHubQueue.cs, AbandonMessageAsync).
const maxAbandonDelay = 10 * time.Minute

// abandonDelay returns how long an abandoned message stays hidden. The delay is 2, 4, 8 seconds and
// so on after 1, 2, 3 receives, and 1 second if the message was never received.
func abandonDelay(dequeueCount int) time.Duration {
	if dequeueCount >= 10 {
		return maxAbandonDelay
	}
	return min(time.Second<<max(dequeueCount, 0), maxAbandonDelay)
}

// abandon hides the message for a delay that grows with each receive, and settles the delivery.
func (d *delivery) abandon(ctx context.Context, reason string) {
	d.abandonAs(ctx, disposition.Abandoning, reason)
}

// abandonOnError abandons the message after a storage error, which it logs.
func (d *delivery) abandonOnError(ctx context.Context, err error) {
	if ctx.Err() == nil {
		d.held.Log.Warn("cannot process message; it will be redelivered", d.attrs("error", err)...)
	}
	d.abandon(ctx, err.Error())
}

// abandonBecause abandons the message because of cause, which may ask for a shorter delay.
func (d *delivery) abandonBecause(ctx context.Context, cause error) {
	delay := abandonDelay(d.timesReceived())
	if sooner := provider.AbandonDelay(cause, time.Now(), delay); sooner < delay {
		d.abandonFor(ctx, disposition.Abandoning, sooner, cause.Error())
		return
	}
	d.abandon(ctx, cause.Error())
}

// abandonAs abandons the message and logs that as event.
func (d *delivery) abandonAs(ctx context.Context, event, reason string) {
	delay := abandonDelay(d.timesReceived())
	if delay >= maxAbandonDelay {
		d.held.Log.Warn("PoisonMessageDetected", d.attrs("reason", reason)...)
		d.held.Meter.RecordPoison(d.queue.Name)
	}
	d.abandonFor(ctx, event, delay, reason)
}

// timesReceived returns how often the message was received from its queue: 0 if it was claimed.
func (d *delivery) timesReceived() int {
	if d.claimed {
		return 0
	}
	return d.dequeueCount
}

// abandonFor hides the message for delay, logs that as event, and settles the delivery.
func (d *delivery) abandonFor(ctx context.Context, event string, delay time.Duration, reason string) {
	d.held.Routine.Record(event, d.attrs("delay", delay, "reason", reason))
	d.held.Meter.RecordHeldBack(d.queue.Name, d.heldBackReason())
	d.release(ctx, delay)
}

// release makes the message visible after delay and settles the delivery.
func (d *delivery) release(ctx context.Context, delay time.Duration) {
	defer d.settle()
	d.safety.release(ctx, delay)
}

// isOrdered reports whether a later message of the instance must not overtake this one. That holds
// for external events and for all messages that are delivered in memory.
func (d *delivery) isOrdered() bool {
	_, isEvent := d.event().(*history.EventRaised)
	return isEvent || d.claimed
}

// keepReceipt remembers the receipt of the hidden message. A resumption of the instance uses it.
func (d *delivery) keepReceipt() {
	d.mu.Lock()
	m, env := d.msg, d.env
	d.mu.Unlock()
	if env != nil {
		d.held.hidden.add(env.Message.Target.InstanceID, d.queue, m)
	}
}

func (d *delivery) isReleasing() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.releasing
}

// settle ends the delivery: the message was deleted or released. It frees its slot.
func (d *delivery) settle() {
	d.mu.Lock()
	first, free := !d.settled, d.onSettled
	d.settled = true
	d.mu.Unlock()
	if first {
		d.held.forget(d)
		free()
	}
}

// renew renews the message's visibility timeout. It does nothing if another goroutine is changing
// the message: waiting for that could delay other renewals.
func (d *delivery) renew(ctx context.Context) {
	select {
	case d.changing <- struct{}{}:
	default:
		return
	}
	err := d.changeNow(func(m store.Message) (store.Message, error) {
		m, err := d.queue.Update(store.Urgent(d.whileHidden(ctx)), m, d.held.stretched(d.lock))
		if err == nil {
			d.held.Log.Debug("RenewingMessage", d.attrs()...)
			d.mu.Lock()
			d.until = d.held.Clock.At(m.HiddenUntil())
			d.mu.Unlock()
		}
		return m, err
	})
	switch {
	case err == nil:
		d.held.Health.OK("queues")
	case store.IsMessageGone(err):
		d.mu.Lock()
		d.lost = true
		d.mu.Unlock()
		d.held.Routine.Record("MessageGone", d.attrs("details", "cannot renew its visibility timeout: "+err.Error()))
	case ctx.Err() == nil:
		d.held.Health.Failed("queues", err)
	}
}

// whileHidden returns a context whose operations are not retried once the message may be visible.
func (d *delivery) whileHidden(ctx context.Context) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return store.RetryBefore(ctx, time.Now().Add(d.until.Left(d.held.Clock.Now())))
}

// hiddenFor returns how long the message stays hidden. renewable is false if the message must not
// be renewed.
func (d *delivery) hiddenFor(now clocks.Moment) (left time.Duration, renewable bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.until.Left(now), !d.settled && !d.releasing && !d.lost
}

// forEach calls f for each delivery, several at the same time.
func forEach(deliveries []*delivery, f func(d *delivery)) {
	_ = store.ForEach(context.Background(), store.MessagesAtOnce, deliveries, func(_ context.Context, _ int, d *delivery) error {
		f(d)
		return nil
	})
}

// removeAll deletes the messages of deliveries.
func removeAll(ctx context.Context, deliveries []*delivery) {
	forEach(deliveries, func(d *delivery) { d.discard(ctx) })
}

// releaseAll makes messages visible now.
func releaseAll(ctx context.Context, deliveries []*delivery) {
	forEach(deliveries, func(d *delivery) { d.release(ctx, 0) })
}

// anyLost reports whether another worker may have received one of the messages because its
// visibility timeout has ended.
func anyLost(deliveries []*delivery) bool {
	return slices.ContainsFunc(deliveries, func(d *delivery) bool { return d.safety.isLost(d.held.Clock.Now()) })
}

// freeRoom frees the slot of d before d is settled.
func (d *delivery) freeRoom() {
	d.mu.Lock()
	free := d.onSettled
	d.onSettled = func() {}
	d.mu.Unlock()
	free()
}

// replace updates d after this process received its message again. The message had become visible.
func (d *delivery) replace(m store.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.msg, d.lost = m, false
	d.until = d.held.Clock.At(m.HiddenUntil())
}

// becomeHidden records that the message, which was in no queue, is now hidden in its queue as m. It
// registers the delivery for renewal.
func (d *delivery) becomeHidden(m store.Message) {
	d.replace(m)
	d.held.add(d)
}

// setEnvelope sets the decoded message.
func (d *delivery) setEnvelope(env *wire.Envelope) {
	d.mu.Lock() // a renewal may log the message
	defer d.mu.Unlock()
	d.env = env
}

// setText replaces the text of the message. The next change in storage writes it.
func (d *delivery) setText(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.msg.Text = text
}

// mayBeRedelivered reports whether the message was to be deleted and may still be in its queue.
func (d *delivery) mayBeRedelivered() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.redeliverable
}

// taskEventID returns the ID of the action that an event completes, or else the event's own ID,
// which is -1 for an event without one.
func taskEventID(ev history.Event) int {
	if id, ok := history.Completes(ev); ok {
		return id
	}
	return ev.Head().EventID
}

// functionAttrs returns the log attributes of the function that an event starts, if it starts one.
func functionAttrs(ev history.Event) []any {
	var name string
	var traced *history.TraceContext
	switch ev := ev.(type) {
	case *history.ExecutionStarted:
		name, traced = ev.Name, ev.ParentTraceContext
	case *history.TaskScheduled:
		name, traced = ev.Name, ev.ParentTraceContext
	default:
		return nil
	}
	attrs := []any{slog.String("name", name)}
	if id := traced.TraceID(); id != "" {
		attrs = append(attrs, slog.String("traceId", id))
	}
	return attrs
}

// heldBackReason returns why the message is held back: it cannot be decoded, or it came too early.
func (d *delivery) heldBackReason() metering.HoldReason {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.env == nil {
		return metering.Unreadable
	}
	return metering.Early
}

// queueAge returns how long a message has waited in its queue. A timer waits from its due time on.
func queueAge(d *delivery) time.Duration {
	since := d.insertedOn
	if d.env != nil && d.env.Message != nil {
		if due := provider.DueTime(*d.env.Message); due.After(since) {
			since = due
		}
	}
	return d.receivedAt.Sub(since)
}
