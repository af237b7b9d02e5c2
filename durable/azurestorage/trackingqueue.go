package azurestorage

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// trackingQueue is where the rows of the audit wait, and the table that they go
// to. The worker that has the first partition moves them.
type trackingQueue struct {
	hub   *TaskHub
	queue *messageQueue
	table *table
	wake  nudge // something was sent to the queue from here
}

func newTrackingQueue(h *TaskHub) *trackingQueue {
	return &trackingQueue{
		hub: h, queue: newMessageQueue(h.services.queues, h.names.TrackingQueue()),
		table: newTable(h.services.tables, h.services.tableEndpoint, h.names.InstanceHistoryTable()), wake: newNudge(),
	}
}

func (t *trackingQueue) create(ctx context.Context) error {
	if err := t.queue.create(ctx); err != nil {
		return err
	}
	return t.table.create(ctx)
}

// run moves what is in the queue into the table, for as long as the partition is
// read.
func (t *trackingQueue) run(p *partition, r *reading) {
	backoff := pollBackoff{max: t.hub.cfg.MaxQueuePollingInterval}
	for r.ctx.Err() == nil {
		if !p.isListening() {
			sleep(r.ctx, time.Second)
			continue
		}
		messages, err := t.queue.receive(r.work, maxReceive, t.hub.stretched(t.hub.controlLock()))
		if err == nil {
			err = t.take(r.work, messages)
		}
		switch {
		case err == nil:
			t.hub.health.ok("tracking")
		case r.work.Err() == nil:
			t.hub.health.failed("tracking", err)
		}
		backoff.wait(r.ctx, t.wake, t.queue.name, len(messages), err)
	}
}

// take moves the rows of messages into the table and deletes them. Those that
// cannot be read or stored are held back. An error means that the rest comes
// back by itself.
func (t *trackingQueue) take(ctx context.Context, messages []queueMessage) error {
	var all []entity
	var good []queueMessage
	rows := make(map[string][]entity, len(messages))
	for _, m := range messages {
		raw, err := decodeQueueText(m.text)
		if err == nil {
			rows[m.id], err = decodeRows(raw)
		}
		if err != nil {
			t.hold(ctx, m, err)
			continue
		}
		all, good = append(all, rows[m.id]...), append(good, m)
	}
	err := t.store(ctx, all)
	switch {
	case err == nil:
		return t.removeAll(ctx, good)
	case isTransient(err) || ctx.Err() != nil:
		return err
	}
	for _, m := range good { // one of them is refused
		switch err := t.store(ctx, rows[m.id]); {
		case err == nil:
			if err := t.removeAll(ctx, []queueMessage{m}); err != nil {
				return err
			}
		case isTransient(err) || ctx.Err() != nil:
			return err
		default:
			t.hold(ctx, m, err)
		}
	}
	return nil
}

// hold keeps a message back that cannot be stored, for longer each time.
func (t *trackingQueue) hold(ctx context.Context, m queueMessage, cause error) {
	delay := abandonDelay(m.dequeueCount)
	attrs := []any{"partition", t.queue.name, "messageId", m.id, "dequeueCount", m.dequeueCount, "error", cause}
	if t.hub.undecodable.see(t.queue.name, m.id, cause) {
		t.hub.log.Error("MessageFailure", attrs...)
	}
	if delay >= maxAbandonDelay {
		t.hub.meter.Poison(t.queue.name)
	}
	if _, err := t.queue.update(ctx, m, delay); err != nil && !isGone(err) {
		t.hub.log.Warn("message could not be handed back, it comes back by itself", append(attrs, "cause", err)...)
	}
}

func (t *trackingQueue) removeAll(ctx context.Context, messages []queueMessage) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(messagesAtOnce)
	for _, m := range messages {
		group.Go(func() error {
			_, err := t.queue.remove(ctx, m.id, m.receipt)
			return err
		})
	}
	return group.Wait()
}

// store adds rows to the table, but for those that are there already.
func (t *trackingQueue) store(ctx context.Context, rows []entity) error {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b entity) int {
		if c := strings.Compare(a.PartitionKey, b.PartitionKey); c != 0 {
			return c
		}
		return strings.Compare(a.RowKey, b.RowKey)
	})
	rows = slices.CompactFunc(rows, func(a, b entity) bool { return a.PartitionKey == b.PartitionKey && a.RowKey == b.RowKey })
	for len(rows) > 0 {
		n, size := 1, 0
		for ; n < len(rows) && n < maxTransactionOperations && rows[n].PartitionKey == rows[0].PartitionKey; n++ {
			if size += len(rows[n].JSON()) + operationOverhead; size > maxHistoryBatchBytes {
				break
			}
		}
		if err := t.insert(ctx, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// insert adds rows of one instance in one transaction. If some of them are there
// already, it looks which, and adds the others.
func (t *trackingQueue) insert(ctx context.Context, rows []entity) error {
	for n := 1; len(rows) > 0; n++ {
		ops := make([]tableOperation, len(rows))
		for i, row := range rows {
			ops[i] = tableOperation{method: http.MethodPost, entity: row}
		}
		err := retry(ctx, "add to table "+t.table.name, func(ctx context.Context) error {
			_, err := t.table.transact(ctx, ops)
			return err
		})
		if err == nil || !isConflict(err) || n == maxAttempts {
			return err
		}
		if rows, err = t.missing(ctx, rows); err != nil {
			return err
		}
	}
	return nil
}

// missing returns those of rows, which are in the order of their keys, that the
// table does not have.
func (t *trackingQueue) missing(ctx context.Context, rows []entity) ([]entity, error) {
	there := map[string]bool{}
	q := tableQuery{columns: []string{"RowKey"}, filter: fmt.Sprintf("PartitionKey eq '%s' and RowKey ge '%s' and RowKey le '%s'",
		doubled(rows[0].PartitionKey), doubled(rows[0].RowKey), doubled(rows[len(rows)-1].RowKey))}
	err := t.table.all(ctx, q, func(raw []byte) error {
		var row struct{ RowKey string }
		if err := json.Unmarshal(raw, &row); err != nil {
			return fmt.Errorf("decode tracking row: %w", err)
		}
		there[row.RowKey] = true
		return nil
	})
	return slices.DeleteFunc(slices.Clone(rows), func(row entity) bool { return there[row.RowKey] }), err
}
