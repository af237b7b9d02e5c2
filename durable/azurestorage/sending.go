package azurestorage

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

// outgoing is a message on its way into a queue.
type outgoing struct {
	queue     *store.Queue
	partition *partition // whose queue it is, nil for the work-item queue
	env       *wire.Envelope
	// delay hides the message for longer than its event asks for.
	delay time.Duration
	// number is its sequence number, 0 for the next one.
	number int64
	// claim says that room is reserved to hand the message over in memory.
	claim bool
	// duplicates is as in [store.Queue.Put].
	duplicates bool
	// batch is the name of the entity's batch that the message is of. It is put hidden
	// then.
	batch string

	// prepare sets the following.
	text       string         // to put into the queue
	shown      string         // the text that it has once its batch counts, empty if it is of none
	blob       string         // that the message is in, empty if it is not large
	asReceived *wire.Envelope // what a receiver would make of it, if it is claimed
}

// sentMessage is a message that was put into a queue.
type sentMessage struct {
	queue     *store.Queue
	partition *partition // whose queue it is, nil for the work-item queue
	store.Sent
	claimed     *delivery // to be handed over in memory, or nil
	shown, blob string    // as in outgoing
	message     *provider.TaskMessage
}

// send gives a message its identity and puts it into a queue, by way of a blob
// if it is large, visible to everybody. See [store.Queue.Put] for duplicates.
func (h *TaskHub) send(ctx context.Context, q *store.Queue, env *wire.Envelope, duplicates bool) (sentMessage, error) {
	return h.post(ctx, &outgoing{queue: q, env: env, duplicates: duplicates})
}

// post gives a message its identity and puts it into its queue.
func (h *TaskHub) post(ctx context.Context, out *outgoing) (sentMessage, error) {
	if err := h.prepare(ctx, out); err != nil {
		return sentMessage{}, err
	}
	return h.enqueue(ctx, out)
}

// enqueue puts a prepared message into its queue.
func (h *TaskHub) enqueue(ctx context.Context, out *outgoing) (sentMessage, error) {
	start := time.Now()
	delay := visibilityDelay(out.env.Message, start) + out.delay
	if out.claim || out.batch != "" {
		delay = min(delay+h.lockOf(out.partition), maxVisibility)
	}
	put, err := out.queue.Put(ctx, out.text, delay, out.duplicates)
	if err != nil {
		if out.claim {
			h.unclaim(out)
		}
		if store.WasNotApplied(err) && !put.Twice {
			h.dropBlob(ctx, out.blob)
		}
		return sentMessage{}, err
	}
	h.logSent(out.queue, out.env)
	sent := sentMessage{queue: out.queue, partition: out.partition, Sent: put, shown: out.shown, blob: out.blob, message: out.env.Message}
	if out.claim {
		m := store.Message{ID: put.ID, Receipt: put.Receipt, Text: out.text, DequeueCount: 1, InsertedOn: start, AskedAt: start, HiddenFor: delay}
		sent.claimed = h.newClaim(out, m)
	}
	return sent, nil
}

// lockOf returns for how long a message is hidden that this process has of a
// partition's queue, or of the work-item queue if p is nil.
func (h *TaskHub) lockOf(p *partition) time.Duration {
	if p == nil {
		return h.workItemLock()
	}
	return h.controlLock()
}

// prepare gives a message its identity and makes of it what goes into the queue.
func (h *TaskHub) prepare(ctx context.Context, out *outgoing) (err error) {
	if out.claim {
		defer func() {
			if err != nil {
				h.unclaim(out)
			}
		}()
	}
	env := out.env
	env.ActivityID = uuid.New()
	if env.SequenceNumber = out.number; out.number == 0 {
		env.SequenceNumber = h.sequence.Add(1)
	}
	encoded, err := wire.EncodeEnvelope(env)
	if err != nil {
		return fmt.Errorf("encode %s for %q: %w", env.Message.Event.Type(), env.Message.Target.InstanceID, err)
	}
	if out.claim {
		if out.asReceived, err = wire.DecodeEnvelopeJSON(encoded); err != nil {
			return fmt.Errorf("read back %s for %q: %w", env.Message.Event.Type(), env.Message.Target.InstanceID, err)
		}
	}
	if len(encoded) > wire.LargeMessageThreshold {
		out.blob = wire.MessageBlobName(env.Message.Target.InstanceID, env.ActivityID, env.Message.Event.Type())
		if err := h.largeMessages.Write(ctx, out.blob, encoded); err != nil {
			return err
		}
		env = wire.NewWrapper(out.blob)
		if encoded, err = wire.EncodeEnvelope(env); err != nil {
			return fmt.Errorf("encode wrapper of %s: %w", out.blob, err)
		}
	}
	out.text = wire.EncodeQueueText(encoded, h.cfg.QueueEncoding == Base64)
	if out.batch == "" {
		return nil
	}
	out.shown = out.text
	named := *env
	named.Batch = out.batch
	if encoded, err = wire.EncodeEnvelope(&named); err != nil {
		return fmt.Errorf("encode %s for %q: %w", out.env.Message.Event.Type(), out.env.Message.Target.InstanceID, err)
	}
	out.text = wire.EncodeQueueText(encoded, h.cfg.QueueEncoding == Base64)
	return nil
}

func (h *TaskHub) logSent(q *store.Queue, env *wire.Envelope) {
	h.log.Debug("SendingMessage", "partition", q.Name, "instanceId", env.Message.Target.InstanceID,
		"executionId", env.Message.Target.ExecutionID, "eventType", env.Message.Event.Type().String(), "sequenceNumber", env.SequenceNumber)
}

// wake makes this process look at once, if it reads the queue, for a message
// that is visible in it.
func (h *TaskHub) wake(m sentMessage) {
	if m.partition == nil {
		h.activities.fallBehind()
		h.activities.wake.Give()
		return
	}
	m.partition.fallBehind()
	m.partition.wake.Give()
}

// send sends the checkpoint's messages. Their sender is the execution that the
// work item was of, also when it has continued as new
// (DurableTask.AzureStorage/AzureStorageOrchestrationService.cs,
// CommitOutboundQueueMessages).
func (s *session) send(ctx context.Context, cp *provider.Checkpoint) ([]sentMessage, error) {
	sender, episode := s.instance(), s.loaded.Known.Episodes+1
	if sender.ExecutionID == "" && !history.IsEntity(sender.InstanceID) {
		sender = cp.Instance
	}
	out := s.outgoing(cp)
	batch := ""
	if after, isOne := s.batchesAfter(cp); isOne {
		batch = after.Name()
	}
	for _, o := range out {
		o.batch = batch
		o.env.Episode, o.env.Sender = &episode, &sender
		o.number = s.hub.sequence.Add(1) // in the order of the decisions, whichever is sent first
	}
	sent := make([]sentMessage, len(out))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(store.MessagesAtOnce)
	for i, o := range out {
		group.Go(func() (err error) {
			sent[i], err = s.hub.post(groupCtx, o)
			return err
		})
	}
	return sent, group.Wait()
}

// outgoing returns the checkpoint's messages with the queues that they go to,
// and reserves room for those that this process will take itself.
func (s *session) outgoing(cp *provider.Checkpoint) []*outgoing {
	var out []*outgoing
	scheduled := map[int]time.Time{} // when activities were, as the history has it
	for _, e := range cp.NewEvents {
		if id := taskOf(e); id >= 0 {
			scheduled[id] = history.Ticks(e.Head().Timestamp)
		}
	}
	add := func(p *partition, messages []provider.TaskMessage) {
		for i := range messages {
			to, queue := p, s.hub.workItems
			if to == nil && messages[i].Event.Type() != history.TypeTaskScheduled {
				to = s.hub.partitionOf(messages[i].Target.InstanceID)
			}
			if to != nil {
				queue = to.queue
			}
			env := &wire.Envelope{Message: &messages[i]}
			if id := taskOf(messages[i].Event); id >= 0 {
				env.Scheduled = scheduled[id]
			}
			out = append(out, &outgoing{queue: queue, partition: to, env: env, duplicates: true})
		}
	}
	add(nil, cp.Activities)
	add(s.slot.partition, cp.Timers)
	add(nil, cp.Messages)
	s.hub.reserve(out)
	return out
}

// taskOf returns the ID of the activity that an event schedules, -1 if it schedules
// none.
func taskOf(e history.Event) int {
	if scheduled, ok := e.(*history.TaskScheduled); ok {
		return scheduled.EventID
	}
	return -1
}

// reserve decides which messages are handed over in memory. Those to one
// partition are, or none of them, so that they keep their order.
func (h *TaskHub) reserve(out []*outgoing) {
	now := time.Now()
	byPartition := make([][]*outgoing, len(h.partitions))
	var activities []*outgoing
	for _, o := range out {
		switch {
		case o.partition == nil:
			activities = append(activities, o)
		case h.claimable(visibilityDelay(o.env.Message, now)):
			i := slices.Index(h.partitions, o.partition)
			byPartition[i] = append(byPartition[i], o)
		}
	}
	for _, o := range activities[:h.activities.claim(len(activities))] {
		o.claim = true
	}
	for i, messages := range byPartition {
		if h.partitions[i].claim(len(messages)) {
			for _, o := range messages {
				o.claim = true
			}
		}
	}
}

// isDoubtful reports whether somebody else may have gone on with the instance:
// the partition is not ours any more, or others may have received a message.
func (s *session) isDoubtful() bool {
	return !s.slot.partition.isListening() || anyLost(s.current)
}

// checkDoubt looks, if there is reason to doubt it, whether the history is still
// as the session knows it. What a lost session decided is then not sent in the
// first place. The write of the history looks again in any case.
func (s *session) checkDoubt(ctx context.Context, doubtful bool) error {
	if !doubtful {
		return nil
	}
	etag, err := s.hub.instances.Histories.SentinelETag(ctx, s.slot.id)
	if err != nil {
		return err
	}
	if etag != s.loaded.ETag {
		return fmt.Errorf("history of %q has changed: %w", s.slot.id, provider.ErrSessionLost)
	}
	if etag != "" || s.loaded.Row == nil {
		return nil
	}
	// Of an instance that was purged, there is no more than of one that has not
	// begun, but its row is missing.
	row, err := s.hub.instances.Rows.Read(ctx, s.slot.id)
	if err == nil && (row == nil || row.State.Instance.ExecutionID != s.loaded.Row.State.Instance.ExecutionID) {
		err = fmt.Errorf("instance %q was purged or replaced: %w", s.slot.id, provider.ErrSessionLost)
	}
	return err
}

// retract takes back what was sent by a checkpoint that does not count. What
// somebody has received already is held back for a while and then discarded,
// since no history has what it belongs to; an activity runs once too often. The blob of
// a large message goes after it, unless somebody may have the message.
func (h *TaskHub) retract(ctx context.Context, sent []sentMessage) {
	ctx, cancel := settling(ctx)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(store.MessagesAtOnce)
	for _, m := range sent {
		if m.queue == nil {
			continue // it was not sent
		}
		group.Go(func() error {
			var gone bool
			var err error
			if m.claimed != nil {
				err = m.claimed.remove(ctx)
				gone = m.claimed.isDoubtful()
			} else {
				gone, err = m.queue.Remove(ctx, m.ID, m.Receipt)
			}
			switch {
			case err != nil:
				h.log.Warn("message that does not count could not be taken back", "messageId", m.ID, "partition", m.queue.Name, "error", err)
			case !gone && !m.Twice:
				h.dropBlob(ctx, m.blob)
			}
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
}

// dropBlob deletes the blob of a message that nobody has, if it has one.
func (h *TaskHub) dropBlob(ctx context.Context, name string) {
	if name == "" {
		return
	}
	ctx, cancel := settling(ctx)
	defer cancel()
	if err := h.largeMessages.Remove(ctx, name); err != nil {
		h.log.Warn("blob of a message that does not count could not be deleted", "blob", name, "error", err)
	}
}

// reveal makes visible what was sent by a checkpoint of which it is not known
// whether it counts.
func (h *TaskHub) reveal(ctx context.Context, sent []sentMessage) {
	ctx, cancel := settling(ctx)
	defer cancel()
	var claimed []*delivery
	for _, m := range sent {
		if m.claimed != nil {
			claimed = append(claimed, m.claimed)
		} else if m.queue != nil {
			h.wake(m)
		}
	}
	handBackAll(ctx, claimed)
}

// settling returns a context for doing away with messages: it goes on when ctx
// has ended, but not for long, since what fails comes right by itself.
func settling(ctx context.Context) (context.Context, context.CancelFunc) {
	on, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() { time.AfterFunc(settleTimeout, cancel) })
	return on, func() {
		unhook()
		cancel()
	}
}

const settleTimeout = 10 * time.Second
