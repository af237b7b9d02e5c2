package azurestorage

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"golang.org/x/sync/errgroup"
)

// trackingQueue is where the rows of the audit wait, and the table that they go
// to. The worker that has the first partition moves them.
type trackingQueue struct {
	hub   *TaskHub
	queue *store.Queue
	table *store.Table
	wake  store.Nudge // something was sent to the queue from here
}

func newTrackingQueue(h *TaskHub) *trackingQueue {
	return &trackingQueue{
		hub: h, queue: store.NewQueue(h.services.Queues, h.names.TrackingQueue()),
		table: store.NewTable(h.services.Tables, h.services.TableEndpoint, h.names.InstanceHistoryTable()), wake: store.NewNudge(),
	}
}

func (t *trackingQueue) create(ctx context.Context) error {
	if err := t.queue.Create(ctx); err != nil {
		return err
	}
	return t.table.Create(ctx)
}

// run moves what is in the queue into the table, for as long as the partition is
// read.
func (t *trackingQueue) run(p *partition, r *reading) {
	backoff := store.PollBackoff{Max: t.hub.cfg.MaxQueuePollingInterval}
	for r.ctx.Err() == nil {
		if !p.isListening() {
			store.Sleep(r.ctx, time.Second)
			continue
		}
		messages, err := t.queue.Receive(r.work, maxReceive, t.hub.stretched(t.hub.controlLock()))
		if err == nil {
			err = t.take(r.work, messages)
		}
		switch {
		case err == nil:
			t.hub.health.OK("tracking")
		case r.work.Err() == nil:
			t.hub.health.Failed("tracking", err)
		}
		backoff.Wait(r.ctx, t.wake, t.queue.Name, len(messages), err)
	}
}

// take moves the rows of messages into the table and deletes them. Those that
// cannot be read or stored are held back. An error means that the rest comes
// back by itself.
func (t *trackingQueue) take(ctx context.Context, messages []store.Message) error {
	var all []wire.Row
	var good []store.Message
	rows := make(map[string][]wire.Row, len(messages))
	for _, m := range messages {
		raw, err := wire.DecodeQueueText(m.Text)
		if err == nil {
			rows[m.ID], err = wire.DecodeRows(raw)
		}
		if err != nil {
			t.hold(ctx, m, err)
			continue
		}
		all, good = append(all, rows[m.ID]...), append(good, m)
	}
	err := t.store(ctx, all)
	switch {
	case err == nil:
		return t.removeAll(ctx, good)
	case store.IsTransient(err) || ctx.Err() != nil:
		return err
	}
	for _, m := range good { // one of them is refused
		switch err := t.store(ctx, rows[m.ID]); {
		case err == nil:
			if err := t.removeAll(ctx, []store.Message{m}); err != nil {
				return err
			}
		case store.IsTransient(err) || ctx.Err() != nil:
			return err
		default:
			t.hold(ctx, m, err)
		}
	}
	return nil
}

// hold keeps a message back that cannot be stored, for longer each time.
func (t *trackingQueue) hold(ctx context.Context, m store.Message, cause error) {
	delay := abandonDelay(m.DequeueCount)
	attrs := []any{"partition", t.queue.Name, "messageId", m.ID, "dequeueCount", m.DequeueCount, "error", cause}
	if t.hub.undecodable.see(t.queue.Name, m.ID, cause) {
		t.hub.log.Error("MessageFailure", attrs...)
	}
	if delay >= maxAbandonDelay {
		t.hub.meter.Poison(t.queue.Name)
	}
	if _, err := t.queue.Update(ctx, m, delay); err != nil && !store.IsGone(err) {
		t.hub.log.Warn("message could not be handed back, it comes back by itself", append(attrs, "cause", err)...)
	}
}

func (t *trackingQueue) removeAll(ctx context.Context, messages []store.Message) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(messagesAtOnce)
	for _, m := range messages {
		group.Go(func() error {
			_, err := t.queue.Remove(ctx, m.ID, m.Receipt)
			return err
		})
	}
	return group.Wait()
}

// store adds rows to the table, but for those that are there already.
func (t *trackingQueue) store(ctx context.Context, rows []wire.Row) error {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b wire.Row) int {
		if c := strings.Compare(a.PartitionKey, b.PartitionKey); c != 0 {
			return c
		}
		return strings.Compare(a.RowKey, b.RowKey)
	})
	rows = slices.CompactFunc(rows, func(a, b wire.Row) bool { return a.PartitionKey == b.PartitionKey && a.RowKey == b.RowKey })
	for len(rows) > 0 {
		n, size := 1, 0
		for ; n < len(rows) && n < store.MaxTransactionOperations && rows[n].PartitionKey == rows[0].PartitionKey; n++ {
			if size += len(rows[n].JSON()) + operationOverhead; size > wire.MaxHistoryBatchBytes {
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
func (t *trackingQueue) insert(ctx context.Context, rows []wire.Row) error {
	for n := 1; len(rows) > 0; n++ {
		ops := make([]store.Operation, len(rows))
		for i, row := range rows {
			ops[i] = store.Operation{Method: http.MethodPost, Entity: row}
		}
		err := store.Retry(ctx, "add to table "+t.table.Name, func(ctx context.Context) error {
			_, err := t.table.Transact(ctx, ops)
			return err
		})
		if err == nil || !store.IsConflict(err) || n == store.MaxAttempts {
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
func (t *trackingQueue) missing(ctx context.Context, rows []wire.Row) ([]wire.Row, error) {
	there := map[string]bool{}
	q := store.Query{Columns: []string{"RowKey"}, Filter: fmt.Sprintf("PartitionKey eq '%s' and RowKey ge '%s' and RowKey le '%s'",
		store.Doubled(rows[0].PartitionKey), store.Doubled(rows[0].RowKey), store.Doubled(rows[len(rows)-1].RowKey))}
	err := t.table.All(ctx, q, func(raw []byte) error {
		var row struct{ RowKey string }
		if err := json.Unmarshal(raw, &row); err != nil {
			return fmt.Errorf("decode tracking row: %w", err)
		}
		there[row.RowKey] = true
		return nil
	})
	return slices.DeleteFunc(slices.Clone(rows), func(row wire.Row) bool { return there[row.RowKey] }), err
}
