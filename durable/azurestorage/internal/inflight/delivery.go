package inflight

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

// A Delivery is a message in flight in this process: it was received, is hidden from other workers,
// and will be deleted, abandoned or released.
type Delivery struct {
	held              *Messages
	Queue             *store.Queue
	Env               *wire.Envelope // set by decode; nil before that and if the message cannot be decoded
	VisibilityTimeout time.Duration  // the visibility timeout that a renewal sets

	DequeueCount int
	InsertedOn   time.Time
	Age          time.Duration // of the message when it was received, by the clock of the service
	ReceivedAt   time.Time     // by the local clock
	onSettled    func()        // called once, when this process no longer holds the message

	// NewInstance is the instance that this message starts, if this process has just inserted its
	// row and nothing else is stored of it; otherwise nil.
	NewInstance *instances.Instance
	// claimed means that the message was not received from its queue.
	claimed bool
	Safety  Safety

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

// ID returns the message's ID, empty if it is in no queue.
func (d *Delivery) ID() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.msg.ID
}

// Text returns the text of the message as it was received.
func (d *Delivery) Text() string {
	d.mu.Lock() // a renewal may change msg
	defer d.mu.Unlock()
	return d.msg.Text
}

// Event returns the message's event.
func (d *Delivery) Event() history.Event { return d.Env.Message.Event }

// Target returns the instance that the message is for.
func (d *Delivery) Target() history.OrchestrationInstance { return d.Env.Message.Target }

// Resumes reports whether the message resumes its instance.
func (d *Delivery) Resumes() bool { return d.Event().Type() == history.TypeExecutionResumed }

// EndsPause reports whether the message ends the delays of the hidden messages of its instance. A
// termination acts without them.
func (d *Delivery) EndsPause() bool { return endsPause(d.Event()) }

func endsPause(ev history.Event) bool {
	return ev.Type() == history.TypeExecutionResumed || ev.Type() == history.TypeExecutionSuspended
}

// IsStart reports whether the message starts an execution.
func (d *Delivery) IsStart() bool {
	_, ok := d.Event().(*history.ExecutionStarted)
	return ok
}

// Wakes reports whether the message, redelivered after a crash, makes a worker run the steps of an
// execution.
func (d *Delivery) Wakes(execution history.OrchestrationInstance) bool {
	if start, ok := d.Event().(*history.ExecutionStarted); ok {
		return start.Instance == execution
	}
	return d.Env.Message.WakesSteps() && d.Target() == execution
}

// Attrs returns the log attributes of the message, followed by more.
func (d *Delivery) Attrs(more ...any) []any {
	attrs := []any{
		slog.String("partition", d.Queue.Name),
		slog.String("messageId", d.ID()),
		slog.Int("dequeueCount", d.DequeueCount),
	}
	d.mu.Lock() // a renewal may log the message while it is being decoded
	env := d.Env
	d.mu.Unlock()
	if env != nil {
		attrs = append(attrs,
			slog.String("instanceId", env.Message.Target.InstanceID),
			slog.String("executionId", env.Message.Target.ExecutionID),
			slog.String("eventType", env.Message.Event.Type().String()),
			slog.Int("taskEventId", TaskEventID(env.Message.Event)))
		attrs = append(attrs, FunctionAttrs(env.Message.Event)...)
	}
	return append(attrs, more...)
}

// change calls f with the current message, while no other goroutine changes the message. f returns
// the message as it is afterwards. change does nothing if the delivery is settled.
func (d *Delivery) change(ctx context.Context, f func(m store.Message) (store.Message, error)) error {
	select {
	case d.changing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return d.changeNow(f)
}

// changeNow is change for a caller that holds d.changing. It releases d.changing.
func (d *Delivery) changeNow(f func(m store.Message) (store.Message, error)) error {
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

// Remove deletes the message and settles the delivery. If the delete fails, the message is
// redelivered.
func (d *Delivery) Remove(ctx context.Context) error {
	defer d.Settle()
	return d.Safety.Remove(ctx)
}

// Discard deletes the message. If that fails, it logs a warning, and the message is redelivered.
func (d *Delivery) Discard(ctx context.Context) {
	if err := d.Remove(ctx); err != nil && ctx.Err() == nil {
		d.held.Log.Warn("cannot delete message; it reappears when its visibility timeout ends", d.Attrs("error", err)...)
	}
}

// RemoveDuplicate deletes a message that was received again after a checkpoint had consumed it.
func (d *Delivery) RemoveDuplicate(ctx context.Context) {
	d.held.Routine.Record(disposition.Duplicate, d.Attrs("details", "a checkpoint has consumed it earlier, but it was not deleted"))
	d.Discard(ctx)
}

// MarkCommitted records that a checkpoint has consumed the message although it is going to be
// released. The reason is that the instance's row or its tracking records could not be written.
// When the message is redelivered, both are repaired and the message is deleted. The history alone
// may not identify it: an instance that continued as new no longer has the event.
func (d *Delivery) MarkCommitted() { d.Safety.MarkCommitted() }

// KeepSpent restarts the time for which a spent message is remembered. repair is described at
// [Messages.IsSpent].
func (d *Delivery) KeepSpent(repair string) { d.held.spend(d, spentMessage{repair: repair}) }

// MaxAbandonDelay is the longest delay of an abandoned message. A message that reaches it is logged
// as a poison message (DurableTask.AzureStorage/Messaging/TaskHubQueue.cs, AbandonMessageAsync).
const MaxAbandonDelay = 10 * time.Minute

// AbandonDelay returns the time for which an abandoned message stays hidden. It is 1 second if the message
// was never received. After 1, 2 and 3 receives it is 2, 4 and 8 seconds; it doubles up to [MaxAbandonDelay].
func AbandonDelay(dequeueCount int) time.Duration {
	if dequeueCount >= 10 {
		return MaxAbandonDelay
	}
	return min(time.Second<<max(dequeueCount, 0), MaxAbandonDelay)
}

// Abandon hides the message for a delay that grows with each receive, and settles the delivery.
func (d *Delivery) Abandon(ctx context.Context, reason string) {
	d.AbandonAs(ctx, disposition.Abandoning, reason)
}

// AbandonOnError abandons the message after a storage error, which it logs.
func (d *Delivery) AbandonOnError(ctx context.Context, err error) {
	if ctx.Err() == nil {
		d.held.Log.Warn("cannot process message; it will be redelivered", d.Attrs("error", err)...)
	}
	d.Abandon(ctx, err.Error())
}

// AbandonBecause abandons the message because of cause, which may ask for a shorter delay.
func (d *Delivery) AbandonBecause(ctx context.Context, cause error) {
	delay := AbandonDelay(d.TimesReceived())
	if sooner := provider.AbandonDelay(cause, time.Now(), delay); sooner < delay {
		d.AbandonFor(ctx, disposition.Abandoning, sooner, cause.Error())
		return
	}
	d.Abandon(ctx, cause.Error())
}

// AbandonAs abandons the message and logs this as event.
func (d *Delivery) AbandonAs(ctx context.Context, event, reason string) {
	delay := AbandonDelay(d.TimesReceived())
	if delay >= MaxAbandonDelay {
		d.held.Log.Warn("PoisonMessageDetected", d.Attrs("reason", reason)...)
		d.held.Meter.RecordPoison(d.Queue.Name)
	}
	d.AbandonFor(ctx, event, delay, reason)
}

// TimesReceived returns the number of receives of the message from its queue. It is 0 if the message was
// claimed.
func (d *Delivery) TimesReceived() int {
	if d.claimed {
		return 0
	}
	return d.DequeueCount
}

// AbandonFor hides the message for delay, logs this as event, and settles the delivery.
func (d *Delivery) AbandonFor(ctx context.Context, event string, delay time.Duration, reason string) {
	d.held.Routine.Record(event, d.Attrs("delay", delay, "reason", reason))
	d.held.Meter.RecordHeldBack(d.Queue.Name, d.HeldBackReason())
	d.Release(ctx, delay)
}

// Release makes the message visible after delay and settles the delivery.
func (d *Delivery) Release(ctx context.Context, delay time.Duration) {
	defer d.Settle()
	d.Safety.Release(ctx, delay)
}

// IsOrdered reports whether a later message of the instance must not overtake this message. It is true for
// external events and for all messages that are delivered in memory.
func (d *Delivery) IsOrdered() bool {
	_, isEvent := d.Event().(*history.EventRaised)
	return isEvent || d.claimed
}

// keepReceipt remembers the receipt of the hidden message. A suspension or a resumption of the instance
// uses it.
func (d *Delivery) keepReceipt() {
	d.mu.Lock()
	m, env := d.msg, d.Env
	d.mu.Unlock()
	if env != nil {
		d.held.Hidden.Add(d.Queue, m, env.Message)
	}
}

func (d *Delivery) isReleasing() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.releasing
}

// Settle ends the delivery: the message was deleted or released. It frees its slot.
func (d *Delivery) Settle() {
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
func (d *Delivery) renew(ctx context.Context) {
	select {
	case d.changing <- struct{}{}:
	default:
		return
	}
	err := d.changeNow(func(m store.Message) (store.Message, error) {
		m, err := d.Queue.Update(store.Urgent(d.whileHidden(ctx)), m, d.held.Stretched(d.VisibilityTimeout))
		if err == nil {
			d.held.Log.Debug("RenewingMessage", d.Attrs()...)
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
		d.held.Routine.Record("MessageGone", d.Attrs("details", "cannot renew its visibility timeout: "+err.Error()))
	case ctx.Err() == nil:
		d.held.Health.Failed("queues", err)
	}
}

// whileHidden returns a context whose operations are not retried once the message may be visible.
func (d *Delivery) whileHidden(ctx context.Context) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return store.RetryBefore(ctx, time.Now().Add(d.until.Left(d.held.Clock.Now())))
}

// hiddenFor returns the remaining time for which the message stays hidden. renewable is false if the message
// must not be renewed.
func (d *Delivery) hiddenFor(now clocks.Moment) (left time.Duration, renewable bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.until.Left(now), !d.settled && !d.releasing && !d.lost
}

// ForEach calls f for each delivery, several at the same time.
func ForEach(deliveries []*Delivery, f func(d *Delivery)) {
	_ = store.ForEach(context.Background(), store.MessagesAtOnce, deliveries, func(_ context.Context, _ int, d *Delivery) error {
		f(d)
		return nil
	})
}

// RemoveAll deletes the messages of deliveries.
func RemoveAll(ctx context.Context, deliveries []*Delivery) {
	ForEach(deliveries, func(d *Delivery) { d.Discard(ctx) })
}

// ReleaseAll makes messages visible now.
func ReleaseAll(ctx context.Context, deliveries []*Delivery) {
	ForEach(deliveries, func(d *Delivery) { d.Release(ctx, 0) })
}

// AnyLost reports whether another worker may have received one of the messages because its
// visibility timeout has ended.
func AnyLost(deliveries []*Delivery) bool {
	return slices.ContainsFunc(deliveries, func(d *Delivery) bool { return d.Safety.IsLost(d.held.Clock.Now()) })
}

// FreeRoom frees the slot of d before d is settled.
func (d *Delivery) FreeRoom() {
	d.mu.Lock()
	free := d.onSettled
	d.onSettled = func() {}
	d.mu.Unlock()
	free()
}

// replace updates d after this process received its message again. The message had become visible.
func (d *Delivery) replace(m store.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.msg, d.lost = m, false
	d.until = d.held.Clock.At(m.HiddenUntil())
}

// BecomeHidden records that the message, which was in no queue, is now hidden in its queue as m. It
// registers the delivery for renewal.
func (d *Delivery) BecomeHidden(m store.Message) {
	d.replace(m)
	d.held.add(d)
}

// SetEnvelope sets the decoded message.
func (d *Delivery) SetEnvelope(env *wire.Envelope) {
	d.mu.Lock() // a renewal may log the message
	defer d.mu.Unlock()
	d.Env = env
}

// SetText replaces the text of the message. The next change in storage writes it.
func (d *Delivery) SetText(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.msg.Text = text
}

// MayBeRedelivered reports whether the message was to be deleted and may still be in its queue.
func (d *Delivery) MayBeRedelivered() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.redeliverable
}

// TaskEventID returns the ID of the action that an event completes, or else the event's own ID,
// which is -1 for an event without one.
func TaskEventID(ev history.Event) int {
	if id, ok := history.Completes(ev); ok {
		return id
	}
	return ev.Head().EventID
}

// FunctionAttrs returns the log attributes of the function that an event starts, if it starts one.
func FunctionAttrs(ev history.Event) []any {
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

// HeldBackReason returns the reason for holding the message back: it cannot be decoded, or it came too early.
func (d *Delivery) HeldBackReason() metering.HoldReason {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Env == nil {
		return metering.Unreadable
	}
	return metering.Early
}

// QueueAge returns the time for which a message has waited in its queue. A timer waits from its due time on.
func QueueAge(d *Delivery) time.Duration {
	since := d.InsertedOn
	if d.Env != nil && d.Env.Message != nil {
		if due := provider.DueTime(*d.Env.Message); due.After(since) {
			since = due
		}
	}
	return d.ReceivedAt.Sub(since)
}
