package azurestorage

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
//     are slow (see stretched).
//  3. If the checkpoint is not committed, the message is retracted. If the partition is lost or the
//     worker stops before the delivery, it is released.
//  4. It never overtakes a visible message: messages are claimed only while the last poll has
//     emptied the queue.

// A sender enqueues messages in the queues of the hub.
type sender struct {
	*monitor.Monitor
	held      *inflight.Messages
	blobs     *store.Container // of large messages
	base64    bool             // encode texts in Base64
	startLost store.Nudge      // sent if the start of an inserted row may be in no queue
	sequence  atomic.Int64     // last sequence number, over all queues
	armedFor  time.Duration    // how long an armed message stays hidden
}

// A destination is a queue of the hub. If this process serves the queue, it can deliver messages
// to the queue in memory.
type destination interface {
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

// A controlQueue is the destination of messages to instances. If this process owns its partition, it can
// deliver a message that never was in the queue.
type controlQueue interface {
	destination
	// IsReading reports whether the queue is being read.
	IsReading() bool
	// Reserve reserves a slot for a message that never was in the queue. It returns false if this
	// process does not serve the queue, or if no slot is free.
	Reserve() bool
	// Arrive delivers messages. It returns false if the queue is not being read.
	Arrive(deliveries ...*inflight.Delivery) bool
}

// outgoing is a message to enqueue.
type outgoing struct {
	to  destination
	env *wire.Envelope
	// delay hides the message in addition to the delay that its event requires.
	delay time.Duration
	// number is the message's sequence number; 0 selects the next one.
	number int64
	// claim means that a slot is reserved to deliver the message in memory.
	claim bool
	// duplicates is described at [store.Queue.Put].
	duplicates bool
	// batch is the name of the entity's batch that sends the message. Such a message is enqueued
	// hidden.
	batch string

	// The following fields are set by prepare.
	text       string         // the text to enqueue
	finalText  string         // the text after the batch is committed; empty if batch is empty
	blob       string         // the name of the blob with the message; empty unless the message is large
	asReceived *wire.Envelope // the message as a receiver would decode it, if claim is set
}

// sentMessage is a message that was enqueued.
type sentMessage struct {
	to destination // nil if the message was not sent
	store.Sent
	claimed         *inflight.Delivery // the delivery to pass on in memory, or nil
	finalText, blob string             // see outgoing
	message         *provider.TaskMessage
}

// send enqueues a visible message. Duplicates of it must be harmless.
func (s *sender) send(ctx context.Context, to destination, env *wire.Envelope) (sentMessage, error) {
	return s.post(ctx, &outgoing{to: to, env: env, duplicates: true})
}

// post prepares a message and enqueues it.
func (s *sender) post(ctx context.Context, out *outgoing) (sentMessage, error) {
	if err := s.prepare(ctx, out); err != nil {
		return sentMessage{}, err
	}
	return s.enqueue(ctx, out)
}

// nextNumber returns the next sequence number.
func (s *sender) nextNumber() int64 { return s.sequence.Add(1) }

// keepHidden enqueues a message that stays hidden until its delivery ends. The delivery occupies no
// slot. Duplicates of the message must be harmless.
func (s *sender) keepHidden(ctx context.Context, to destination, env *wire.Envelope) (*inflight.Delivery, error) {
	lock := to.VisibilityTimeout()
	out := &outgoing{to: to, env: env, duplicates: true, delay: s.held.Stretched(lock)}
	if err := s.prepare(ctx, out); err != nil {
		return nil, err
	}
	_, m, err := s.put(ctx, out)
	if err != nil {
		return nil, err
	}
	return s.held.Claim(to.Queue(), m, lock, env, func() {}), nil
}

// enqueue enqueues a prepared message.
func (s *sender) enqueue(ctx context.Context, out *outgoing) (sentMessage, error) {
	put, m, err := s.put(ctx, out)
	if err != nil {
		if out.claim {
			out.to.Unclaim()
		}
		return sentMessage{}, err
	}
	sent := sentMessage{to: out.to, Sent: put, finalText: out.finalText, blob: out.blob, message: out.env.Message}
	if out.claim {
		sent.claimed = s.held.Claim(out.to.Queue(), m, out.to.VisibilityTimeout(), out.asReceived, out.to.Unclaim)
	}
	return sent, nil
}

// put enqueues a prepared message, hidden if it is claimed or belongs to an entity's batch. It also
// returns the message as if it had been received.
func (s *sender) put(ctx context.Context, out *outgoing) (put store.Sent, m store.Message, err error) {
	delay := visibilityDelay(out.env.Message, time.Now()) + out.delay
	if out.claim || out.batch != "" {
		delay = min(delay+s.held.Stretched(out.to.VisibilityTimeout()), store.MaxVisibilityTimeout)
	}
	if put, err = out.to.Queue().Put(ctx, out.text, delay, out.duplicates); err != nil {
		if (store.WasNotApplied(err) || store.IsServerBusy(err)) && !put.MayBeDuplicate && s.deleteBlob(ctx, out.blob) {
			out.blob = ""
		}
		return put, m, err
	}
	s.logSent(out)
	return put, store.Message{ID: put.ID, Receipt: put.Receipt, Text: out.text, DequeueCount: 1, InsertedOn: put.RequestedAt, RequestedAt: put.RequestedAt, HiddenFor: delay}, nil
}

// prepare assigns the message's ID and sequence number, and encodes it. It writes a large message
// to a blob.
func (s *sender) prepare(ctx context.Context, out *outgoing) (err error) {
	if out.claim {
		defer func() {
			if err != nil {
				out.to.Unclaim()
			}
		}()
	}
	env := out.env
	env.ActivityID = uuid.New()
	if env.SequenceNumber = out.number; out.number == 0 {
		env.SequenceNumber = s.nextNumber()
	}
	encoded, err := encode(env)
	if err == nil && out.claim {
		out.asReceived, err = wire.DecodeEnvelopeJSON(encoded)
	}
	if err != nil {
		return err
	}
	if len(encoded) > wire.LargeMessageThreshold {
		out.blob = wire.MessageBlobName(env.Message.Target.InstanceID, env.ActivityID, env.Message.Event.Type())
		if err := s.blobs.Write(ctx, out.blob, encoded); err != nil {
			if store.WasNotApplied(err) || s.deleteBlob(ctx, out.blob) {
				out.blob = ""
			}
			return err
		}
		env = wire.NewWrapper(out.blob)
		if encoded, err = wire.EncodeEnvelope(env); err != nil {
			return fmt.Errorf("encode wrapper of %s: %w", out.blob, err)
		}
	}
	out.text = wire.EncodeQueueText(encoded, s.base64)
	if out.batch == "" {
		return nil
	}
	out.finalText = out.text
	named := *env
	named.Batch = out.batch
	if encoded, err = wire.EncodeEnvelope(&named); err != nil {
		return fmt.Errorf("encode message of batch %s: %w", out.batch, err)
	}
	out.text = wire.EncodeQueueText(encoded, s.base64)
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

func (s *sender) logSent(out *outgoing) {
	env := out.env
	attrs := []any{
		"partition", out.to.Queue().Name, "instanceId", env.Message.Target.InstanceID,
		"executionId", env.Message.Target.ExecutionID, "eventType", env.Message.Event.Type().String(), "sequenceNumber", env.SequenceNumber,
	}
	s.Log.Debug("SendingMessage", append(attrs, inflight.FunctionAttrs(env.Message.Event)...)...)
}

// visibilityDelay returns how long a message must be hidden when it is sent, in whole seconds
// (DurableTask.AzureStorage/Messaging/TaskHubQueue.cs, GetVisibilityDelay). The service limits it
// to a week. A worker that receives a message before it is due hides it again.
func visibilityDelay(m *provider.TaskMessage, now time.Time) time.Duration {
	due := provider.DueTime(*m)
	if due.IsZero() {
		return 0
	}
	return max(0, min(due.Sub(now), store.MaxVisibilityTimeout)).Truncate(time.Second)
}

// reserve decides which messages are delivered in memory, and reserves their slots.
func (s *sender) reserve(out []*outgoing) {
	now := time.Now()
	byDestination := map[destination][]*outgoing{}
	var order []destination
	for _, o := range out {
		if visibilityDelay(o.env.Message, now) > s.held.ControlTimeout/2 {
			continue // a message that is due later waits in its queue
		}
		if byDestination[o.to] == nil {
			order = append(order, o.to)
		}
		byDestination[o.to] = append(byDestination[o.to], o)
	}
	for _, to := range order {
		messages := byDestination[to]
		for _, o := range messages[:to.Claim(len(messages))] {
			o.claim = true
		}
	}
}

// retract deletes the messages of a checkpoint that was not committed. Another worker may have
// received one. It then holds the message back and later discards it, because no history explains
// it; an activity runs once too often. retract then deletes the blob of a large message, unless
// another worker may hold the message. If the blob is deleted, retract clears its name in sent.
func (s *sender) retract(ctx context.Context, sent []sentMessage) {
	ctx, cancel := settling(ctx)
	defer cancel()
	_ = store.ForEach(ctx, store.MessagesAtOnce, sent, func(ctx context.Context, i int, m sentMessage) (err error) {
		var gone bool
		switch {
		case m.to == nil: // not sent
			return nil
		case m.claimed != nil:
			err = m.claimed.Remove(ctx)
			gone = m.claimed.MayBeRedelivered()
		default:
			gone, err = m.to.Queue().Remove(ctx, m.ID, m.Receipt)
		}
		switch {
		case err != nil:
			s.Log.Warn("cannot delete message of a checkpoint that was not committed; its receiver discards it", "messageId", m.ID, "partition", m.to.Queue().Name, "error", err)
		case !gone && !m.MayBeDuplicate && s.deleteBlob(ctx, m.blob):
			sent[i].blob = ""
		}
		return nil
	})
}

// deleteBlob deletes the blob of a message that is in no queue. It does nothing if name is empty.
// It returns false if the delete fails.
func (s *sender) deleteBlob(ctx context.Context, name string) bool {
	if name == "" {
		return true
	}
	ctx, cancel := settling(ctx)
	defer cancel()
	err := s.blobs.Remove(ctx, name)
	if err != nil {
		s.Log.Warn("cannot delete blob of a message that was not sent", "blob", name, "error", err)
	}
	return err == nil
}

// releaseSent makes the messages of a checkpoint visible. The outcome of the checkpoint is unknown.
func (s *sender) releaseSent(ctx context.Context, sent []sentMessage) {
	ctx, cancel := settling(ctx)
	defer cancel()
	var claimed []*inflight.Delivery
	for _, m := range sent {
		if m.claimed != nil {
			claimed = append(claimed, m.claimed)
		} else if m.to != nil {
			m.to.Announce()
		}
	}
	inflight.ReleaseAll(ctx, claimed)
}

// settling returns a context for deleting and releasing messages. It ends settleTimeout after ctx.
// A message whose release fails becomes visible when its visibility timeout ends.
func settling(ctx context.Context) (context.Context, context.CancelFunc) {
	on, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() { time.AfterFunc(settleTimeout, cancel) })
	return on, func() {
		unhook()
		cancel()
	}
}

const settleTimeout = 10 * time.Second

// An armedMessage is hidden in its queue until it is released. If the process dies first, it
// becomes visible when its visibility timeout ends.
type armedMessage struct {
	to  destination
	msg store.Message
}

// armedForDefault is the visibility timeout of an armed message. It is longer than the time until
// the release.
const armedForDefault = 30 * time.Second

// arm enqueues hidden messages. Duplicates of them must be harmless.
func (s *sender) arm(ctx context.Context, out []*outgoing) ([]armedMessage, error) {
	armed := make([]armedMessage, len(out))
	for i, o := range out {
		if err := s.prepare(ctx, o); err != nil {
			return nil, err
		}
		hiddenFor := s.held.Stretched(s.armedFor)
		m, err := o.to.Queue().Put(ctx, o.text, hiddenFor, true)
		if err != nil {
			return nil, err
		}
		s.logSent(o)
		armed[i] = armedMessage{to: o.to, msg: store.Message{ID: m.ID, Receipt: m.Receipt, Text: o.text, HiddenFor: hiddenFor}}
	}
	return armed, nil
}

// release makes armed messages visible. A message whose release fails becomes visible when its
// visibility timeout ends.
func (s *sender) release(ctx context.Context, armed []armedMessage) {
	for _, a := range armed {
		if _, err := a.to.Queue().Update(ctx, a.msg, 0); err != nil && !store.IsMessageGone(err) {
			s.Log.Warn("cannot release message; it reappears when its visibility timeout ends",
				"partition", a.to.Queue().Name, "messageId", a.msg.ID, "after", a.msg.HiddenFor, "error", err)
			continue
		}
		a.to.Announce()
	}
}

// handOver delivers committed messages: claimed ones in memory, the others by polling their queues.
func (s *sender) handOver(ctx context.Context, sent []sentMessage) {
	ctx, cancel := settling(ctx)
	defer cancel()
	claimed := map[destination][]*inflight.Delivery{}
	var order []destination // in the order of their first messages
	for _, m := range sent {
		switch {
		case m.to == nil: // not sent
		case m.claimed == nil:
			m.to.Announce()
		default:
			if claimed[m.to] == nil {
				order = append(order, m.to)
			}
			claimed[m.to] = append(claimed[m.to], m.claimed)
		}
	}
	for _, to := range order {
		to.Admit(ctx, claimed[to])
	}
}

// publishBatch makes the hidden messages of an entity's batch visible after the batch is committed.
// It fails if another worker may have received a message and deleted it, because the batch was not
// committed then. The messages that the batch consumed are redelivered, and the batch's messages
// are sent again.
func (s *sender) publishBatch(ctx context.Context, sent []sentMessage) error {
	return store.ForEach(ctx, store.MessagesAtOnce, sent, func(_ context.Context, _ int, m sentMessage) error {
		switch {
		case m.finalText == "":
		case m.claimed != nil && inflight.AnyLost([]*inflight.Delivery{m.claimed}):
			return fmt.Errorf("message %s was visible in queue %s before the entity's batch was committed", m.ID, m.to.Queue().Name)
		case m.claimed != nil:
			m.claimed.SetText(m.finalText)
		default:
			hidden := store.Message{ID: m.ID, Receipt: m.Receipt, Text: m.finalText}
			_, err := m.to.Queue().Update(ctx, hidden, visibilityDelay(m.message, time.Now()))
			return err
		}
		return nil
	})
}
