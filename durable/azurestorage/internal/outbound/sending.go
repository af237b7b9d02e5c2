package outbound

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/monitor"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/uuid"
)

// Claims
//
// A message for a queue that this process serves is enqueued hidden, as if the process had already
// received it, and delivered in memory. This saves the receive and the wait for the next poll.
//
//  1. It is delivered only when its sender is committed: a checkpoint's messages after the history
//     is written, a start after its row is inserted.
//  2. Until it is deleted, its visibility timeout is renewed, like the timeout of a received
//     message. If the process dies, it becomes visible within LeaseInterval, or later if the queues
//     are slow (see [inflight.Messages.Stretched]).
//  3. If the checkpoint is not committed, the message is retracted. If the partition is lost or the
//     worker stops before the delivery, it is released.
//  4. It never overtakes a visible message: messages are claimed only while the last poll has
//     emptied the queue.

// A Sender enqueues messages in the queues of the hub.
type Sender struct {
	*monitor.Monitor
	Held      *inflight.Messages
	Blobs     *store.Container // of large messages
	Base64    bool             // encode texts in Base64
	StartLost store.Nudge      // sent if the start of an inserted row may be in no queue
	sequence  atomic.Int64     // last sequence number, over all queues
	ArmedFor  time.Duration    // visibility timeout of armed messages
}

// A Destination is a queue of the hub. If this process serves the queue, it can deliver messages
// to the queue in memory.
type Destination interface {
	// Queue returns the queue.
	Queue() *store.Queue
	// VisibilityTimeout returns the normal visibility timeout of a message in the queue.
	VisibilityTimeout() time.Duration
	// Announce makes this process poll the queue now, if it serves the queue. The queue has a new
	// visible message.
	Announce()
	// Claim reserves slots for up to n messages that will be delivered in memory. It returns their
	// number.
	Claim(n int) int
	// Unclaim frees a slot.
	Unclaim()
	// Admit delivers claimed messages. If this process does not serve the queue any more, Admit
	// releases them.
	Admit(ctx context.Context, claimed []*inflight.Delivery)
}

// A ControlQueue is the destination of messages to instances. If this process owns its partition, it can
// deliver a message that never was in the queue.
type ControlQueue interface {
	Destination
	// IsReading reports whether the queue is being read.
	IsReading() bool
	// Reserve reserves a slot for a message that never was in the queue. It returns false if this
	// process does not serve the queue, or if no slot is free.
	Reserve() bool
	// Arrive delivers messages. It returns false if the queue is not being read.
	Arrive(deliveries ...*inflight.Delivery) bool
}

// Message is a message to enqueue.
type Message struct {
	To  Destination
	Env *wire.Envelope
	// Delay hides the message in addition to the delay that its event requires.
	Delay time.Duration
	// Number is the message's sequence number; 0 selects the next one.
	Number int64
	// Claim means that a slot is reserved to deliver the message in memory.
	Claim bool
	// Duplicates is described at [store.Queue.Put].
	Duplicates bool
	// Batch is the name of the entity's batch that sends the message. Such a message is enqueued
	// hidden.
	Batch string

	mayBeSent bool // set by put: it failed, but the message may be in the queue

	// The following fields are set by prepare.
	text       string         // the text to enqueue
	finalText  string         // the text after the batch is committed; empty if Batch is empty
	Blob       string         // the name of the blob with the message; empty unless the message is large
	asReceived *wire.Envelope // the message as a receiver would decode it, if Claim is set
}

// sendError returns the error of a failed send of m. It wraps ErrMaybeSent if the message may have
// been stored.
func (m *Message) sendError(err error) error {
	if m.mayBeSent {
		return maybeSentError(err)
	}
	return err
}

// Sent is a message that was enqueued.
type Sent struct {
	To Destination // nil if the message was not sent
	store.Sent
	Claimed         *inflight.Delivery // the delivery to pass on in memory, or nil
	finalText, Blob string             // see Message
	message         *provider.TaskMessage
}

// Send enqueues a visible message. Duplicates of it must be harmless.
func (s *Sender) Send(ctx context.Context, to Destination, env *wire.Envelope) (Sent, error) {
	return s.Post(ctx, &Message{To: to, Env: env, Duplicates: true})
}

// Post prepares a message and enqueues it.
func (s *Sender) Post(ctx context.Context, out *Message) (Sent, error) {
	if err := s.prepare(ctx, out); err != nil {
		return Sent{}, err
	}
	return s.enqueue(ctx, out)
}

// NextNumber returns the next sequence number.
func (s *Sender) NextNumber() int64 { return s.sequence.Add(1) }

// KeepHidden enqueues a message that stays hidden until its delivery ends. The delivery occupies no
// slot. Duplicates of the message must be harmless.
func (s *Sender) KeepHidden(ctx context.Context, to Destination, env *wire.Envelope) (*inflight.Delivery, error) {
	lock := to.VisibilityTimeout()
	out := &Message{To: to, Env: env, Duplicates: true, Delay: s.Held.Stretched(lock)}
	if err := s.prepare(ctx, out); err != nil {
		return nil, err
	}
	_, m, err := s.put(ctx, out)
	if err != nil {
		return nil, err
	}
	return s.Held.Claim(to.Queue(), m, lock, env, func() {}), nil
}

// redeliver enqueues a message that was delivered in memory and abandoned. It is visible after
// out.Delay, or when its instance is suspended or resumed.
func (s *Sender) redeliver(ctx context.Context, out *Message) error {
	if err := s.prepare(ctx, out); err != nil {
		return err
	}
	_, m, err := s.put(ctx, out)
	switch {
	case err != nil:
		return err
	case out.Delay == 0:
		out.To.Announce()
	default:
		s.Held.Hidden.Add(out.To.Queue(), m, out.Env.Message)
	}
	return nil
}

// enqueue enqueues a prepared message.
func (s *Sender) enqueue(ctx context.Context, out *Message) (Sent, error) {
	put, m, err := s.put(ctx, out)
	if err != nil {
		if out.Claim {
			out.To.Unclaim()
		}
		return Sent{}, err
	}
	sent := Sent{To: out.To, Sent: put, finalText: out.finalText, Blob: out.Blob, message: out.Env.Message}
	if out.Claim {
		sent.Claimed = s.Held.Claim(out.To.Queue(), m, out.To.VisibilityTimeout(), out.asReceived, out.To.Unclaim)
	}
	return sent, nil
}

// put enqueues a prepared message, hidden if it is claimed or belongs to an entity's batch. It also
// returns the message as if it had been received.
func (s *Sender) put(ctx context.Context, out *Message) (put store.Sent, m store.Message, err error) {
	delay := visibilityDelay(out.Env.Message, time.Now()) + out.Delay
	if out.Claim || out.Batch != "" {
		delay = min(delay+s.Held.Stretched(out.To.VisibilityTimeout()), store.MaxVisibilityTimeout)
	}
	if put, err = out.To.Queue().Put(ctx, out.text, delay, out.Duplicates); err != nil {
		out.mayBeSent = put.MayBeDuplicate
		if !out.mayBeSent && s.DeleteBlob(ctx, out.Blob) {
			out.Blob = ""
		}
		return put, m, err
	}
	s.logSent(out)
	return put, store.Message{ID: put.ID, Receipt: put.Receipt, Text: out.text, DequeueCount: 1, InsertedOn: put.RequestedAt, RequestedAt: put.RequestedAt, HiddenFor: delay}, nil
}

// prepare assigns the message's ID and sequence number, and encodes it. It writes a large message
// to a blob.
func (s *Sender) prepare(ctx context.Context, out *Message) (err error) {
	if out.Claim {
		defer func() {
			if err != nil {
				out.To.Unclaim()
			}
		}()
	}
	env := out.Env
	env.ActivityID = uuid.New()
	if env.SequenceNumber = out.Number; out.Number == 0 {
		env.SequenceNumber = s.NextNumber()
	}
	encoded, err := encode(env)
	if err == nil && out.Claim {
		out.asReceived, err = wire.DecodeEnvelopeJSON(encoded)
	}
	if err != nil {
		return err
	}
	if len(encoded) > wire.LargeMessageThreshold {
		out.Blob = wire.MessageBlobName(env.Message.Target.InstanceID, env.ActivityID, env.Message.Event.Type())
		if err := s.Blobs.Write(ctx, out.Blob, encoded); err != nil {
			if store.WasNotApplied(err) || s.DeleteBlob(ctx, out.Blob) {
				out.Blob = ""
			}
			return err
		}
		env = wire.NewWrapper(out.Blob)
		if encoded, err = wire.EncodeEnvelope(env); err != nil {
			return fmt.Errorf("encode wrapper of %s: %w", out.Blob, err)
		}
	}
	out.text = wire.EncodeQueueText(encoded, s.Base64)
	if out.Batch == "" {
		return nil
	}
	out.finalText = out.text
	named := *env
	named.Batch = out.Batch
	if encoded, err = wire.EncodeEnvelope(&named); err != nil {
		return fmt.Errorf("encode message of batch %s: %w", out.Batch, err)
	}
	out.text = wire.EncodeQueueText(encoded, s.Base64)
	return nil
}

// encode returns a message as JSON.
func encode(env *wire.Envelope) ([]byte, error) {
	text, err := wire.EncodeEnvelope(env)
	if err != nil {
		return nil, fmt.Errorf("encode %s for %q: %w", env.Message.Event.Type(), env.Message.Target.InstanceID, err)
	}
	return text, nil
}

func (s *Sender) logSent(out *Message) {
	env := out.Env
	attrs := []any{
		"partition", out.To.Queue().Name, "instanceId", env.Message.Target.InstanceID,
		"executionId", env.Message.Target.ExecutionID, "eventType", env.Message.Event.Type().String(), "sequenceNumber", env.SequenceNumber,
	}
	s.Log.Debug("SendingMessage", append(attrs, inflight.FunctionAttrs(env.Message.Event)...)...)
}

// visibilityDelay returns the time for which a sent message must stay hidden, in whole seconds
// (DurableTask.AzureStorage/Messaging/TaskHubQueue.cs, GetVisibilityDelay). The service limits it to a week.
// A worker that receives a message before it is due hides it again.
func visibilityDelay(m *provider.TaskMessage, now time.Time) time.Duration {
	due := provider.DueTime(*m)
	if due.IsZero() {
		return 0
	}
	return max(0, min(due.Sub(now), store.MaxVisibilityTimeout)).Truncate(time.Second)
}

// Reserve decides which messages are delivered in memory, and reserves their slots.
func (s *Sender) Reserve(out []*Message) {
	now := time.Now()
	byDestination := map[Destination][]*Message{}
	var order []Destination
	for _, o := range out {
		if visibilityDelay(o.Env.Message, now) > s.Held.ControlTimeout/2 {
			continue // a message that is due later waits in its queue
		}
		if byDestination[o.To] == nil {
			order = append(order, o.To)
		}
		byDestination[o.To] = append(byDestination[o.To], o)
	}
	for _, to := range order {
		messages := byDestination[to]
		for _, o := range messages[:to.Claim(len(messages))] {
			o.Claim = true
		}
	}
}

// Retract deletes the messages of a checkpoint that was not committed. Another worker may have received one.
// It then holds the message back and later discards it, because no history explains it; an activity runs once
// too often. Retract then deletes the blob of a large message, unless another worker may hold the message. If
// the blob is deleted, Retract clears its name in sent.
func (s *Sender) Retract(ctx context.Context, sent []Sent) {
	ctx, cancel := Settling(ctx)
	defer cancel()
	_ = store.ForEach(ctx, store.MessagesAtOnce, sent, func(ctx context.Context, i int, m Sent) (err error) {
		var gone bool
		switch {
		case m.To == nil: // not sent
			return nil
		case m.Claimed != nil:
			err = m.Claimed.Remove(ctx)
			gone = m.Claimed.MayBeRedelivered()
		default:
			gone, err = m.To.Queue().Remove(ctx, m.ID, m.Receipt)
		}
		switch {
		case err != nil:
			s.Log.Warn("cannot delete message of a checkpoint that was not committed; its receiver discards it", "messageId", m.ID, "partition", m.To.Queue().Name, "error", err)
		case !gone && !m.MayBeDuplicate && s.DeleteBlob(ctx, m.Blob):
			sent[i].Blob = ""
		}
		return nil
	})
}

// DeleteBlob deletes the blob of a message that is in no queue. It does nothing if name is empty.
// It returns false if the delete fails.
func (s *Sender) DeleteBlob(ctx context.Context, name string) bool {
	if name == "" {
		return true
	}
	ctx, cancel := Settling(ctx)
	defer cancel()
	err := s.Blobs.Remove(ctx, name)
	if err != nil {
		s.Log.Warn("cannot delete blob of a message that was not sent", "blob", name, "error", err)
	}
	return err == nil
}

// ReleaseSent makes the messages of a checkpoint visible. The outcome of the checkpoint is unknown.
func (s *Sender) ReleaseSent(ctx context.Context, sent []Sent) {
	ctx, cancel := Settling(ctx)
	defer cancel()
	var claimed []*inflight.Delivery
	for _, m := range sent {
		if m.Claimed != nil {
			claimed = append(claimed, m.Claimed)
		} else if m.To != nil {
			m.To.Announce()
		}
	}
	inflight.ReleaseAll(ctx, claimed)
}

// Settling returns a context for deleting and releasing messages. It ends settleTimeout after ctx. A message
// whose release fails becomes visible when its visibility timeout ends.
func Settling(ctx context.Context) (context.Context, context.CancelFunc) {
	on, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() { time.AfterFunc(settleTimeout, cancel) })
	return on, func() {
		unhook()
		cancel()
	}
}

const settleTimeout = 10 * time.Second

// An Armed is a message that is hidden in its queue until it is released. If the process dies first, the
// message becomes visible when its visibility timeout ends.
type Armed struct {
	to  Destination
	msg store.Message
}

// ArmedFor is the visibility timeout of an armed message. It is longer than the time until
// the release.
const ArmedFor = 30 * time.Second

// Arm enqueues hidden messages. Duplicates of them must be harmless.
func (s *Sender) Arm(ctx context.Context, out []*Message) ([]Armed, error) {
	armed := make([]Armed, len(out))
	for i, o := range out {
		if err := s.prepare(ctx, o); err != nil {
			return nil, err
		}
		hiddenFor := s.Held.Stretched(s.ArmedFor)
		m, err := o.To.Queue().Put(ctx, o.text, hiddenFor, true)
		if err != nil {
			return nil, err
		}
		s.logSent(o)
		armed[i] = Armed{to: o.To, msg: store.Message{ID: m.ID, Receipt: m.Receipt, Text: o.text, HiddenFor: hiddenFor}}
	}
	return armed, nil
}

// Release makes armed messages visible. A message whose release fails becomes visible when its
// visibility timeout ends.
func (s *Sender) Release(ctx context.Context, armed []Armed) {
	for _, a := range armed {
		if _, err := a.to.Queue().Update(ctx, a.msg, 0); err != nil && !store.IsMessageGone(err) {
			s.Log.Warn("cannot release message; it reappears when its visibility timeout ends",
				"partition", a.to.Queue().Name, "messageId", a.msg.ID, "after", a.msg.HiddenFor, "error", err)
			continue
		}
		a.to.Announce()
	}
}

// HandOver delivers committed messages: claimed ones in memory, the others by polling their queues.
func (s *Sender) HandOver(ctx context.Context, sent []Sent) {
	ctx, cancel := Settling(ctx)
	defer cancel()
	claimed := map[Destination][]*inflight.Delivery{}
	var order []Destination // in the order of their first messages
	for _, m := range sent {
		switch {
		case m.To == nil: // not sent
		case m.Claimed == nil:
			m.To.Announce()
		default:
			if claimed[m.To] == nil {
				order = append(order, m.To)
			}
			claimed[m.To] = append(claimed[m.To], m.Claimed)
		}
	}
	for _, to := range order {
		to.Admit(ctx, claimed[to])
	}
}

// PublishBatch makes the hidden messages of an entity's batch visible after the batch is committed. It fails
// if another worker may have received a message before the commit and deleted it. The messages that the batch
// consumed are redelivered, and the batch's messages are sent again.
func (s *Sender) PublishBatch(ctx context.Context, sent []Sent) error {
	return store.ForEach(ctx, store.MessagesAtOnce, sent, func(_ context.Context, _ int, m Sent) error {
		switch {
		case m.finalText == "":
		case m.Claimed != nil && inflight.AnyLost([]*inflight.Delivery{m.Claimed}):
			return fmt.Errorf("message %s was visible in queue %s before the entity's batch was committed", m.ID, m.To.Queue().Name)
		case m.Claimed != nil:
			m.Claimed.SetText(m.finalText)
		default:
			hidden := store.Message{ID: m.ID, Receipt: m.Receipt, Text: m.finalText}
			_, err := m.To.Queue().Update(ctx, hidden, visibilityDelay(m.message, time.Now()))
			return err
		}
		return nil
	})
}
