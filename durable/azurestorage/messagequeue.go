package azurestorage

import (
	"context"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

// messageQueue is one storage queue of the hub.
type messageQueue struct {
	name   string
	client *azqueue.QueueClient
}

func newMessageQueue(service *azqueue.ServiceClient, name string) *messageQueue {
	return &messageQueue{name: name, client: service.NewQueueClient(name)}
}

// queueMessage is a message as a receive returned it.
type queueMessage struct {
	id           string
	receipt      string // what proves that we have it; every update brings another
	text         string
	dequeueCount int
	insertedOn   time.Time
	visibleAt    time.Time // when others may receive it

	askedAt   time.Time     // when it was asked for, by our clock
	hiddenFor time.Duration // from when the service took that up
}

// until returns when others may receive it, by our clock: not before that.
func (m queueMessage) until() time.Time { return m.askedAt.Add(m.hiddenFor) }

// age returns for how long the message had been in its queue when it was received; zero if it was not received. It is by the clock of the service, from
// which ours may differ.
func (m queueMessage) age() time.Duration {
	if m.visibleAt.IsZero() {
		return 0
	}
	return m.visibleAt.Sub(m.insertedOn) - m.hiddenFor
}

// create makes the queue if it is not there.
func (q *messageQueue) create(ctx context.Context) error {
	return retry(ctx, "create queue "+q.name, func(ctx context.Context) error {
		_, err := q.client.Create(ctx, nil)
		return ignoreExisting(err)
	})
}

// put sends a message that becomes visible after delay. Where several copies
// do no harm, duplicates allows to send again when the fate of an attempt is
// unknown; otherwise only attempts that certainly failed are repeated.
func (q *messageQueue) put(ctx context.Context, text string, delay time.Duration, duplicates bool) (m putMessage, err error) {
	options := &azqueue.EnqueueMessageOptions{TimeToLive: new(int32(-1))}
	if seconds := int32(delay / time.Second); seconds > 0 {
		options.VisibilityTimeout = &seconds
	}
	again := func(err error) bool {
		m.twice = m.twice || !wasNotApplied(err)
		return isTransient(err) && (duplicates || wasNotApplied(err))
	}
	err = retryIf(ctx, "send to queue "+q.name, again, func(ctx context.Context) error {
		resp, err := q.client.EnqueueMessage(ctx, text, options)
		if err != nil {
			return err
		}
		for _, put := range resp.Messages {
			m.id, m.receipt = value(put.MessageID), value(put.PopReceipt)
		}
		return nil
	})
	return m, err
}

// putMessage is a message that was put into a queue. With its ID and receipt it can be
// deleted until somebody receives it.
type putMessage struct {
	id, receipt string
	twice       bool // there may be another one of it, of an attempt that was not answered
}

// receive returns up to n messages and hides them from others for lock. It
// makes one attempt: if the answer is lost, the messages come back by
// themselves.
func (q *messageQueue) receive(ctx context.Context, n int, lock time.Duration) ([]queueMessage, error) {
	var messages []queueMessage
	var asked time.Time
	err := once(ctx, func(ctx context.Context) error {
		asked = time.Now()
		resp, err := q.client.DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{
			NumberOfMessages:  new(int32(n)),
			VisibilityTimeout: new(int32(lock / time.Second)),
		})
		if err != nil {
			return err
		}
		for _, m := range resp.Messages {
			messages = append(messages, queueMessage{
				id:           value(m.MessageID),
				receipt:      value(m.PopReceipt),
				text:         value(m.MessageText),
				dequeueCount: int(value(m.DequeueCount)),
				insertedOn:   value(m.InsertionTime),
				visibleAt:    value(m.TimeNextVisible),
				askedAt:      asked,
				hiddenFor:    lock,
			})
		}
		return nil
	})
	return messages, err
}

// update sets when m becomes visible to others, counted from now, and returns
// its new receipt. The text goes along, since the service would blank it
// otherwise. An error for which isGone is true means that others have it.
func (q *messageQueue) update(ctx context.Context, m queueMessage, delay time.Duration) (queueMessage, error) {
	err := retry(ctx, "update message "+m.id+" in queue "+q.name, func(ctx context.Context) error {
		m.askedAt, m.hiddenFor = time.Now(), delay
		resp, err := q.client.UpdateMessage(ctx, m.id, m.receipt, m.text, &azqueue.UpdateMessageOptions{
			VisibilityTimeout: new(int32(delay / time.Second)),
		})
		if err != nil {
			return err
		}
		m.receipt, m.visibleAt = value(resp.PopReceipt), value(resp.TimeNextVisible)
		return nil
	})
	return m, err
}

// remove deletes a message. gone means that it was not there or that others
// have it, which is as good: it is not ours to delete.
func (q *messageQueue) remove(ctx context.Context, id, receipt string) (gone bool, err error) {
	err = retry(ctx, "delete message "+id+" from queue "+q.name, func(ctx context.Context) error {
		_, err := q.client.DeleteMessage(ctx, id, receipt, nil)
		if err != nil && isGone(err) {
			gone = true
			return nil
		}
		return err
	})
	return gone, err
}

// value returns *p, or the zero value if p is nil.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
