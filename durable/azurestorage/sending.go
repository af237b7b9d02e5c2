package azurestorage

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// sentMessage is a message that was put into a queue.
type sentMessage struct {
	queue       *messageQueue
	id, receipt string // with which it can be deleted until somebody receives it
	blob        string // that it is in, empty if it is not large
}

// send gives a message its identity and puts it into a queue, by way of a blob
// if it is large. See [messageQueue.put] for duplicates.
func (h *TaskHub) send(ctx context.Context, q *messageQueue, env *envelope, duplicates bool) (sentMessage, error) {
	text, blob, err := h.prepare(ctx, env)
	if err != nil {
		return sentMessage{}, err
	}
	id, receipt, err := q.put(ctx, text, visibilityDelay(env.Message.Event, time.Now()), duplicates)
	if err != nil {
		return sentMessage{}, err
	}
	h.logSent(q, env)
	return sentMessage{queue: q, id: id, receipt: receipt, blob: blob}, nil
}

// prepare gives a message its identity and returns the text to put into a
// queue, and the name of the blob that it is in if it is large.
func (h *TaskHub) prepare(ctx context.Context, env *envelope) (text, blob string, err error) {
	env.ActivityID = uuid.New()
	env.SequenceNumber = h.sequence.Add(1)
	encoded, err := encodeEnvelope(env)
	if err != nil {
		return "", "", fmt.Errorf("encode %s for %q: %w", env.Message.Event.Type(), env.Message.Target.InstanceID, err)
	}
	if len(encoded) > largeMessageThreshold {
		blob = messageBlobName(env.Message.Target.InstanceID, env.ActivityID, env.Message.Event.Type())
		if err := h.largeMessages.write(ctx, blob, encoded); err != nil {
			return "", "", err
		}
		if encoded, err = encodeEnvelope(newWrapper(blob)); err != nil {
			return "", "", fmt.Errorf("encode wrapper of %s: %w", blob, err)
		}
	}
	return encodeQueueText(encoded, h.cfg.QueueEncoding), blob, nil
}

func (h *TaskHub) logSent(q *messageQueue, env *envelope) {
	h.log.Debug("SendingMessage", "partition", q.name, "instanceId", env.Message.Target.InstanceID,
		"executionId", env.Message.Target.ExecutionID, "eventType", env.Message.Event.Type().String(), "sequenceNumber", env.SequenceNumber)
}

// wake makes this process look at once at those queues that it reads and that
// messages were sent to.
func (h *TaskHub) wake(sent []sentMessage) {
	for _, m := range sent {
		if m.queue == h.workItems {
			h.activities.signal()
			continue
		}
		for _, p := range h.partitions {
			if p.queue == m.queue {
				p.signal()
			}
		}
	}
}

// messagesAtOnce bounds how many messages of one checkpoint are sent at a time.
const messagesAtOnce = 32

// send sends the checkpoint's messages. Their sender is the execution that the
// work item was of, also when it has continued as new
// (DurableTask.AzureStorage/AzureStorageOrchestrationService.cs,
// CommitOutboundQueueMessages).
func (s *session) send(ctx context.Context, cp *provider.Checkpoint) ([]sentMessage, error) {
	sender, episode := s.instance(), s.loaded.known.episodes+1
	if sender.ExecutionID == "" {
		sender = cp.Instance
	}
	sent := make([]sentMessage, len(cp.Activities)+len(cp.Timers)+len(cp.Messages))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(messagesAtOnce)
	n := 0
	post := func(q *messageQueue, message *provider.TaskMessage) {
		i := n
		n++
		group.Go(func() (err error) {
			sent[i], err = s.hub.send(groupCtx, q, &envelope{Message: message, Episode: &episode, Sender: &sender}, true)
			return err
		})
	}
	for i := range cp.Activities {
		post(s.hub.workItems, &cp.Activities[i])
	}
	for i := range cp.Timers {
		post(s.slot.partition.queue, &cp.Timers[i])
	}
	for i := range cp.Messages {
		post(s.hub.partitionOf(cp.Messages[i].Target.InstanceID).queue, &cp.Messages[i])
	}
	return sent, group.Wait()
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
	w := historyWrite{hub: s.hub, instance: s.instance()}
	etag, err := w.sentinelETag(ctx)
	if err != nil {
		return err
	}
	if etag != s.loaded.etag {
		return fmt.Errorf("history of %q has changed: %w", s.slot.id, provider.ErrSessionLost)
	}
	return nil
}

// retract takes back what was sent by a checkpoint that does not count. What
// somebody has received already is held back for a while and then discarded,
// since no history has what it belongs to; an activity runs once too often.
func (s *session) retract(ctx context.Context, sent []sentMessage) {
	var group errgroup.Group
	group.SetLimit(messagesAtOnce)
	for _, m := range sent {
		group.Go(func() error {
			if _, err := m.queue.remove(ctx, m.id, m.receipt); err != nil {
				s.hub.log.Warn("message of a lost session could not be taken back", "instanceId", s.slot.id, "messageId", m.id, "partition", m.queue.name, "error", err)
			}
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
}
