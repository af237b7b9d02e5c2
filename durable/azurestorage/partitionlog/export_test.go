package partitionlog

import (
	"context"
	"errors"
	"fmt"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/mailbox"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Sweep writes the first partition to its base, adds the file left as if a crash had left it, and
// deletes unneeded base files. It returns the base files before and after the deletion. If lost is
// true, the partition is lost before the deletion.
func (h *Hub) Sweep(ctx context.Context, left string, lost bool) (before, after []string, err error) {
	if err := h.ensure(ctx); err != nil {
		return nil, nil, err
	}
	s := h.partitions[0]
	o, err := s.acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := h.Flush(ctx, s.number, 1); err != nil {
		return nil, nil, err
	}
	if err := h.blobs.CreateBlob(ctx, s.prefix+left, []byte("left")); err != nil {
		return nil, nil, err
	}
	if lost {
		o.finish()
	}
	before, err = h.blobs.List(ctx, s.prefix+"base-")
	if err == nil {
		err = o.sweep(ctx, nil)
	}
	if err == nil {
		after, err = h.blobs.List(ctx, s.prefix+"base-")
	}
	return before, after, err
}

// PollsForIdleClients reports whether the removal of idle clients polls the mailbox again if it starts after
// the first poll.
func (h *Hub) PollsForIdleClients(ctx context.Context) (bool, error) {
	if err := h.ensure(ctx); err != nil {
		return false, err
	}
	o, err := h.partitions[0].acquire(ctx)
	if err == nil {
		err = o.drainSince(ctx, o.opened)
	}
	if err != nil {
		return false, err
	}
	o.mu.Lock()
	next := o.currentPoll
	o.mu.Unlock()
	o.spawn(o.removeIdleClients)
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	return next.begun, nil
}

// Flush writes a partition of this process to its base the given number of times, each time with
// another record.
func (h *Hub) Flush(ctx context.Context, number, times int) error {
	if err := h.ensure(ctx); err != nil {
		return err
	}
	o, err := h.partitions[number].acquire(ctx)
	for n := 0; err == nil && n < times; n++ {
		err = o.Update(ctx, func(t *logstore.Txn) error {
			o.store.Limits.FlushSize = 1
			t.Put(0, fmt.Append(nil, "key", n), []byte("value"))
			return nil
		})
		for flushing := true; err == nil && flushing; flushing, _ = o.store.Flushing() {
			if !pause.For(ctx, time.Millisecond) {
				err = ctx.Err()
			}
		}
	}
	return err
}

// Named returns the number of files in the base of a partition that this process owns.
func (h *Hub) Named(number int) int { return len(h.partitions[number].owner().base.Names()) }

// Damage makes the record of an instance undecodable.
func (h *Hub) Damage(ctx context.Context, id string) error {
	if err := h.ensure(ctx); err != nil {
		return err
	}
	o, err := h.partitionOf(id).acquire(ctx)
	if err != nil {
		return err
	}
	const instances = 0 // index in partition.MailTables
	return o.Update(ctx, func(t *logstore.Txn) error {
		t.Put(instances, []byte(id), []byte{255})
		return nil
	})
}

// SendDirectly acquires the partition of an instance and sends the instance a message.
func (h *Hub) SendDirectly(ctx context.Context, msg provider.TaskMessage) error {
	if err := h.ensure(ctx); err != nil {
		return err
	}
	if _, err := h.partitionOf(msg.Target.InstanceID).acquire(ctx); err != nil {
		return err
	}
	return h.Send(ctx, msg)
}

// LimitMessages replaces the maximum size of a message.
func (h *Hub) LimitMessages(bytes int) { h.maxMessage = bytes }

// SendFrom acquires a partition and makes it send a message to an instance of another partition. It
// returns before the message is delivered.
func (h *Hub) SendFrom(ctx context.Context, number int, msg provider.TaskMessage) error {
	if err := h.ensure(ctx); err != nil {
		return err
	}
	o, err := h.partitions[number].acquire(ctx)
	if err == nil {
		err = o.Partition.Send(ctx, msg)
	}
	return err
}

// MailThenDirect makes partition 0 send a message to partition 1 by mail, and then a direct one
// before the mailbox is polled. It returns how many messages partition 1 has received.
func (h *Hub) MailThenDirect(ctx context.Context) (received int, err error) {
	if err := h.ensure(ctx); err != nil {
		return 0, err
	}
	from, err := h.partitions[0].acquire(ctx)
	if err != nil {
		return 0, err
	}
	to, err := h.partitions[1].acquire(ctx)
	if err != nil {
		return 0, err
	}
	id := "a"
	for n := 0; h.partitionOf(id) != h.partitions[1]; n++ {
		id = fmt.Sprint("a", n)
	}
	mail := func(number uint64) *partition.Mail { return mailTo(id, from.handle.name(), number) }
	time.Sleep(10 * time.Second) // until the mailbox is polled rarely
	c := from.couriers[1]
	c.sender = mailbox.NewSender(to.handle.mailConfig())
	if err := sendMail(ctx, c.sender, mail(1), neverFinal); err != nil {
		return 0, err
	}
	c.mailed = h.moment()
	if !c.deliver(mail(2)) {
		return 0, errors.New("the mail was not delivered")
	}
	time.Sleep(10 * time.Second) // until the mailbox was polled
	received, _, _, err = to.Pending()
	return received, err
}

// mailTo returns mail with an event for an instance.
func mailTo(id, sender string, number uint64) *partition.Mail {
	record, err := partition.EncodeMessage(provider.TaskMessage{Event: &history.EventRaised{Name: "E"}, Target: history.OrchestrationInstance{InstanceID: id}})
	if err != nil {
		panic(err)
	}
	return &partition.Mail{Sender: sender, Requests: []partition.Request{{Number: number, Message: record}}}
}

// Mail puts mail with an event for an instance into the mailbox of partition 0.
func (h *Hub) Mail(ctx context.Context, id, sender string, number uint64) error {
	if err := h.ensure(ctx); err != nil {
		return err
	}
	return sendMail(ctx, mailbox.NewSender(h.partitions[0].mailConfig()), mailTo(id, sender, number), neverFinal)
}

// Messages returns how many messages partition 0 has stored when it has received all mail.
func (h *Hub) Messages(ctx context.Context) (int, error) {
	if err := h.ensure(ctx); err != nil {
		return 0, err
	}
	o, err := h.partitions[0].acquire(ctx)
	if err == nil {
		err = o.drainSince(ctx, h.moment())
	}
	if err != nil {
		return 0, err
	}
	messages, _, _, err := o.Pending()
	return messages, err
}

// Roll makes the log of a partition continue in its third blob.
func (h *Hub) Roll(ctx context.Context, number int) error {
	o, err := h.partitions[number].acquire(ctx)
	for round := 0; err == nil && round < 2; round++ {
		o.log.Rotate()
		err = o.Update(ctx, func(t *logstore.Txn) error {
			t.Put(0, fmt.Append(nil, "key", round), []byte("value"))
			return nil
		})
	}
	return err
}

// FlushBase writes the records of a partition to its base without adding a record to the table of
// instances.
func (h *Hub) FlushBase(ctx context.Context, number int) error {
	o, err := h.partitions[number].acquire(ctx)
	if err != nil {
		return err
	}
	err = o.Update(ctx, func(*logstore.Txn) error { o.store.Limits.FlushSize = 1; return nil })
	if err == nil {
		err = o.SetImported(ctx) // writes a record
	}
	for flushing := true; err == nil && flushing; flushing, err = o.store.Flushing() {
		if !pause.For(ctx, time.Millisecond) {
			return ctx.Err()
		}
	}
	return err
}

// Read calls f with the records of a partition, as the calls of clients do.
func (h *Hub) Read(ctx context.Context, number int, f func() error) error {
	return h.partitions[number].read(ctx, func(*partition.Reader) error { return f() })
}
