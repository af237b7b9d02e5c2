package store

import (
	"context"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Queue is a storage queue of a task hub.
type Queue struct {
	Name   string
	Client *azqueue.QueueClient
}

const (
	// MaxReceive is the service's maximum number of messages in one receive.
	MaxReceive = 32
	// MessagesAtOnce is the maximum number of concurrent sends or deletes of one call.
	MessagesAtOnce = 32
	// MaxVisibilityTimeout is the service's limit for the visibility timeout.
	MaxVisibilityTimeout = 7 * 24 * time.Hour
)

// NewQueue returns the queue with the given name. The queue need not exist.
func NewQueue(service *azqueue.ServiceClient, name string) *Queue {
	return &Queue{Name: name, Client: service.NewQueueClient(name)}
}

// Message is a received message.
type Message struct {
	ID           string
	Receipt      string // pop receipt; every update returns a new one
	Text         string
	DequeueCount int
	InsertedOn   time.Time
	VisibleAt    time.Time // when the visibility timeout ends, by the service's clock

	RequestedAt time.Time     // time of the request, by the local clock
	HiddenFor   time.Duration // visibility timeout, from the time at which the service processed the request
}

// HiddenUntil returns the earliest end of the visibility timeout by the local clock.
func (m Message) HiddenUntil() time.Time { return m.RequestedAt.Add(m.HiddenFor) }

// Age returns the time that the message had been in its queue when it was received, by the service's
// clock. It returns zero for a message that was not received.
func (m Message) Age() time.Duration {
	if m.VisibleAt.IsZero() {
		return 0
	}
	return m.VisibleAt.Sub(m.InsertedOn) - m.HiddenFor
}

// Create creates the queue if it does not exist.
func (q *Queue) Create(ctx context.Context) error {
	return retryCreation(ctx, "create queue "+q.Name, func(ctx context.Context) error {
		_, err := q.Client.Create(ctx, nil)
		return ignoreExisting(err)
	})
}

// Put enqueues a message that becomes visible after delay. If duplicates is true, Put may enqueue the
// message again after an attempt with unknown outcome. Otherwise it repeats only attempts that
// certainly failed. If Put fails and m.MayBeDuplicate is false, the message is not in the queue.
func (q *Queue) Put(ctx context.Context, text string, delay time.Duration, duplicates bool) (m Sent, err error) {
	options := &azqueue.EnqueueMessageOptions{TimeToLive: new(int32(-1))}
	if seconds := int32(delay / time.Second); seconds > 0 {
		options.VisibilityTimeout = &seconds
	}
	again := func(err error) bool { return IsTransient(err) && (duplicates || !m.MayBeDuplicate) }
	err = RetryIf(ctx, "send to queue "+q.Name, again, func(ctx context.Context) error {
		resp, err := q.Client.EnqueueMessage(ctx, text, options)
		if err != nil {
			m.MayBeDuplicate = m.MayBeDuplicate || !WasNotApplied(err) && !isServerBusy(err)
			return err
		}
		m.RequestedAt = sentAt(ctx)
		for _, put := range resp.Messages {
			m.ID, m.Receipt = Value(put.MessageID), Value(put.PopReceipt)
		}
		return nil
	})
	return m, err
}

// Sent is an enqueued message. It can be deleted with its ID and receipt until a worker receives it.
type Sent struct {
	ID, Receipt    string
	MayBeDuplicate bool      // an attempt with unknown outcome may have enqueued it twice
	RequestedAt    time.Time // time of the request, by the local clock
}

// Receive receives up to n messages and hides them for lock. It makes one attempt. If the response is
// lost, the messages reappear when their visibility timeout ends.
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
				RequestedAt:  sentAt(ctx),
				HiddenFor:    lock,
			})
		}
		return nil
	})
	return messages, err
}

// Update hides m for delay from now and returns m with its new receipt. It sends the text again,
// because the service would otherwise clear it. If [IsMessageGone] is true for the error, another
// worker has received or deleted the message.
func (q *Queue) Update(ctx context.Context, m Message, delay time.Duration) (Message, error) {
	err := Retry(ctx, "update message "+m.ID+" in queue "+q.Name, func(ctx context.Context) error {
		resp, err := q.Client.UpdateMessage(ctx, m.ID, m.Receipt, m.Text, &azqueue.UpdateMessageOptions{
			VisibilityTimeout: new(int32(delay / time.Second)),
		})
		if err != nil {
			return err
		}
		m.RequestedAt, m.HiddenFor = sentAt(ctx), delay
		m.Receipt, m.VisibleAt = Value(resp.PopReceipt), Value(resp.TimeNextVisible)
		return nil
	})
	return m, err
}

// Remove deletes a message. gone means that the message was deleted already, or that another worker
// has received it and will delete it.
func (q *Queue) Remove(ctx context.Context, id, receipt string) (gone bool, err error) {
	err = Retry(ctx, "delete message "+id+" from queue "+q.Name, func(ctx context.Context) error {
		_, err := q.Client.DeleteMessage(ctx, id, receipt, nil)
		if err != nil && IsMessageGone(err) {
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

// Length returns the number of messages in a queue, including hidden messages.
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

// Load returns the number of messages in a queue and the age of the first visible one. Stored is the
// number of all messages, including hidden ones. Length is equal to Stored if a message is visible.
// Otherwise Length and Latency are 0.
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
