package store

import (
	"context"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Queue is one storage queue of the hub.
type Queue struct {
	Name   string
	Client *azqueue.QueueClient
}

const (
	// MaxReceive is the most messages that the service returns at once.
	MaxReceive = 32
	// MessagesAtOnce bounds how many messages are sent or deleted at a time.
	MessagesAtOnce = 32
)

// NewQueue returns the queue with the name, which need not exist.
func NewQueue(service *azqueue.ServiceClient, name string) *Queue {
	return &Queue{Name: name, Client: service.NewQueueClient(name)}
}

// Message is a message as a receive returned it.
type Message struct {
	ID           string
	Receipt      string // what proves that we have it; every update brings another
	Text         string
	DequeueCount int
	InsertedOn   time.Time
	VisibleAt    time.Time // when others may receive it

	AskedAt   time.Time     // when the request was sent, by the local clock
	HiddenFor time.Duration // from when the service took that up
}

// Until returns when others may receive it, by our clock: not before that.
func (m Message) Until() time.Time { return m.AskedAt.Add(m.HiddenFor) }

// Age returns for how long the message had been in its queue when it was received; zero if it was not received. It is by the clock of the service, from
// which ours may differ.
func (m Message) Age() time.Duration {
	if m.VisibleAt.IsZero() {
		return 0
	}
	return m.VisibleAt.Sub(m.InsertedOn) - m.HiddenFor
}

// Create makes the queue if it is not there.
func (q *Queue) Create(ctx context.Context) error {
	return retryCreation(ctx, "create queue "+q.Name, func(ctx context.Context) error {
		_, err := q.Client.Create(ctx, nil)
		return ignoreExisting(err)
	})
}

// Put sends a message that becomes visible after delay. Where several copies
// do no harm, duplicates allows to send again when the fate of an attempt is
// unknown; otherwise only attempts that certainly failed are repeated.
func (q *Queue) Put(ctx context.Context, text string, delay time.Duration, duplicates bool) (m Sent, err error) {
	options := &azqueue.EnqueueMessageOptions{TimeToLive: new(int32(-1))}
	if seconds := int32(delay / time.Second); seconds > 0 {
		options.VisibilityTimeout = &seconds
	}
	again := func(err error) bool {
		m.Twice = m.Twice || !WasNotApplied(err) && !IsServerBusy(err)
		return IsTransient(err) && (duplicates || WasNotApplied(err))
	}
	err = RetryIf(ctx, "send to queue "+q.Name, again, func(ctx context.Context) error {
		resp, err := q.Client.EnqueueMessage(ctx, text, options)
		if err != nil {
			return err
		}
		m.AskedAt = sentAt(ctx)
		for _, put := range resp.Messages {
			m.ID, m.Receipt = Value(put.MessageID), Value(put.PopReceipt)
		}
		return nil
	})
	return m, err
}

// Sent is a message that was put into a queue. With its ID and receipt it can be
// deleted until a worker receives it.
type Sent struct {
	ID, Receipt string
	Twice       bool      // there may be another one of it, of an attempt that was not answered
	AskedAt     time.Time // when the request was sent, by the local clock
}

// Receive returns up to n messages and hides them from others for lock. It
// makes one attempt: if the answer is lost, the messages come back by
// themselves.
func (q *Queue) Receive(ctx context.Context, n int, lock time.Duration) ([]Message, error) {
	var messages []Message
	err := Once(ctx, func(ctx context.Context) error {
		resp, err := q.Client.DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{
			NumberOfMessages:  new(int32(n)),
			VisibilityTimeout: new(int32(lock / time.Second)),
		})
		if err != nil {
			return err
		}
		for _, m := range resp.Messages {
			messages = append(messages, Message{
				ID:           Value(m.MessageID),
				Receipt:      Value(m.PopReceipt),
				Text:         Value(m.MessageText),
				DequeueCount: int(Value(m.DequeueCount)),
				InsertedOn:   Value(m.InsertionTime),
				VisibleAt:    Value(m.TimeNextVisible),
				AskedAt:      sentAt(ctx),
				HiddenFor:    lock,
			})
		}
		return nil
	})
	return messages, err
}

// Update sets when m becomes visible to others, counted from now, and returns
// its new receipt. The text goes along, since the service would blank it
// otherwise. An error for which isGone is true means that others have it.
func (q *Queue) Update(ctx context.Context, m Message, delay time.Duration) (Message, error) {
	err := Retry(ctx, "update message "+m.ID+" in queue "+q.Name, func(ctx context.Context) error {
		resp, err := q.Client.UpdateMessage(ctx, m.ID, m.Receipt, m.Text, &azqueue.UpdateMessageOptions{
			VisibilityTimeout: new(int32(delay / time.Second)),
		})
		if err != nil {
			return err
		}
		m.AskedAt, m.HiddenFor = sentAt(ctx), delay
		m.Receipt, m.VisibleAt = Value(resp.PopReceipt), Value(resp.TimeNextVisible)
		return nil
	})
	return m, err
}

// Remove deletes a message. gone means that it was not there or that others
// have it, which is as good: it is not ours to delete.
func (q *Queue) Remove(ctx context.Context, id, receipt string) (gone bool, err error) {
	err = Retry(ctx, "delete message "+id+" from queue "+q.Name, func(ctx context.Context) error {
		_, err := q.Client.DeleteMessage(ctx, id, receipt, nil)
		if err != nil && IsGone(err) {
			gone = true
			return nil
		}
		return err
	})
	return gone, err
}

// Value returns *p, or the zero value if p is nil.
func Value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// Length returns how many messages a queue has, those included that are hidden.
func (q *Queue) Length(ctx context.Context) (n int, err error) {
	err = Retry(ctx, "count messages of queue "+q.Name, func(ctx context.Context) error {
		resp, err := q.Client.GetProperties(ctx, nil)
		if err == nil {
			n = int(Value(resp.ApproximateMessagesCount))
		}
		return err
	})
	return n, err
}

// Load returns how many messages wait in the queue, and for how long the first
// of them has. Hidden ones count only if one is visible, but for Stored.
func (q *Queue) Load(ctx context.Context, now time.Time) (load provider.QueueLoad, err error) {
	err = Retry(ctx, "look into queue "+q.Name, func(ctx context.Context) error {
		load = provider.QueueLoad{}
		first, err := q.Client.PeekMessage(ctx, nil)
		if err != nil {
			return err
		}
		properties, err := q.Client.GetProperties(ctx, nil)
		if err != nil {
			return err
		}
		load.Stored = int(Value(properties.ApproximateMessagesCount))
		if len(first.Messages) == 0 {
			return nil
		}
		load.Length = load.Stored
		if at := first.Messages[0].InsertionTime; at != nil {
			load.Latency = max(0, now.Sub(*at))
		}
		return nil
	})
	return load, err
}
