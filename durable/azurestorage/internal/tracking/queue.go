package tracking

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
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A Queue buffers tracking rows in a storage queue and moves them into a table. The worker that owns
// the first partition moves them.
type Queue struct {
	Queue  *store.Queue
	Table  *store.Table
	Base64 bool // encode messages as Base64
	// MaxPollingInterval is the maximum time between two polls of the empty queue.
	MaxPollingInterval time.Duration
	// VisibilityTimeout returns the visibility timeout of received messages.
	VisibilityTimeout func() time.Duration
	// HoldBack hides a message that cannot be decoded or stored, longer after each attempt.
	HoldBack func(ctx context.Context, q *store.Queue, m store.Message, cause error)
	Health   store.Health

	wake store.Nudge // a message was enqueued by this process
}

// NewQueue returns a queue with the configuration q.
func NewQueue(q Queue) *Queue {
	q.wake = store.NewNudge()
	return &q
}

// Create creates the queue and the table if they do not exist.
func (t *Queue) Create(ctx context.Context) error {
	if err := t.Queue.Create(ctx); err != nil {
		return err
	}
	return t.Table.Create(ctx)
}

// Send enqueues rows.
func (t *Queue) Send(ctx context.Context, rows []wire.Row) error {
	err := store.ForEach(ctx, store.MessagesAtOnce, wire.SplitTracking(rows), func(ctx context.Context, _ int, part []wire.Row) error {
		_, err := t.Queue.Put(ctx, wire.EncodeQueueText([]byte(wire.RowsJSON(part)), t.Base64), 0, true)
		return err
	})
	if err == nil {
		t.wake.Send()
	}
	return err
}

// Records returns a page of an instance's tracking records.
func (t *Queue) Records(ctx context.Context, id string, q provider.TrackingQuery) (*provider.TrackingPage, error) {
	raw, continuation, err := t.Table.Page(store.AllowMissing(ctx), store.Query{
		Filter: "PartitionKey eq '" + store.EscapeOData(wire.EscapeKey(id)) + "'", Top: min(max(q.PageSize, 0), store.MaxPageSize), Continuation: q.Continuation,
	})
	if err != nil {
		return nil, err
	}
	page := &provider.TrackingPage{Records: make([]provider.TrackingRecord, len(raw)), Continuation: continuation}
	for i := range raw {
		if page.Records[i], err = decodeRecord(raw[i]); err != nil {
			return nil, err
		}
	}
	return page, nil
}

// Run moves rows from the queue into the table while mayRead returns true, until ctx ends. It
// completes the current batch unless work ends.
func (t *Queue) Run(ctx, work context.Context, mayRead func() bool) {
	backoff := store.PollBackoff{Max: t.MaxPollingInterval}
	for ctx.Err() == nil {
		if !mayRead() {
			pause.For(ctx, time.Second)
			continue
		}
		messages, err := t.Queue.Receive(work, store.MaxReceive, t.VisibilityTimeout())
		if err == nil {
			err = t.take(work, messages)
		}
		switch {
		case err == nil:
			t.Health.OK("tracking")
		case work.Err() == nil:
			t.Health.Failed("tracking", err)
		}
		backoff.Wait(ctx, t.wake, t.Queue.Name, len(messages), err)
	}
}

// take moves the rows of messages into the table and deletes the messages. It holds back messages that
// cannot be decoded or stored. After an error, the remaining messages reappear when their visibility
// timeout ends.
func (t *Queue) take(ctx context.Context, messages []store.Message) error {
	var all []wire.Row
	var good []store.Message
	rows := make(map[string][]wire.Row, len(messages))
	for _, m := range messages {
		raw, err := wire.DecodeQueueText(m.Text)
		if err == nil {
			rows[m.ID], err = wire.DecodeRows(raw)
		}
		if err != nil {
			t.HoldBack(ctx, t.Queue, m, err)
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
	for _, m := range good { // the table rejects one of them
		switch err := t.store(ctx, rows[m.ID]); {
		case err == nil:
			if err := t.removeAll(ctx, []store.Message{m}); err != nil {
				return err
			}
		case store.IsTransient(err) || ctx.Err() != nil:
			return err
		default:
			t.HoldBack(ctx, t.Queue, m, err)
		}
	}
	return nil
}

func (t *Queue) removeAll(ctx context.Context, messages []store.Message) error {
	return store.ForEach(ctx, store.MessagesAtOnce, messages, func(ctx context.Context, _ int, m store.Message) error {
		_, err := t.Queue.Remove(ctx, m.ID, m.Receipt)
		return err
	})
}

// store adds rows to the table, except those that exist already.
func (t *Queue) store(ctx context.Context, rows []wire.Row) error {
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
			if size += len(rows[n].JSON()) + store.OperationOverhead; size > wire.MaxHistoryBatchBytes {
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

// insert adds rows of one instance in one transaction. If some of them exist already, it adds the
// others.
func (t *Queue) insert(ctx context.Context, rows []wire.Row) error {
	for n := 1; len(rows) > 0; n++ {
		ops := make([]store.Operation, len(rows))
		for i, row := range rows {
			ops[i] = store.Operation{Method: http.MethodPost, Entity: row}
		}
		err := store.Retry(ctx, "add to table "+t.Table.Name, func(ctx context.Context) error {
			_, err := t.Table.Transact(ctx, ops)
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

// missing returns the rows that the table does not contain. rows must be ordered by key.
func (t *Queue) missing(ctx context.Context, rows []wire.Row) ([]wire.Row, error) {
	there := map[string]bool{}
	q := store.Query{Columns: []string{"RowKey"}, Filter: fmt.Sprintf("PartitionKey eq '%s' and RowKey ge '%s' and RowKey le '%s'",
		store.EscapeOData(rows[0].PartitionKey), store.EscapeOData(rows[0].RowKey), store.EscapeOData(rows[len(rows)-1].RowKey))}
	err := t.Table.All(ctx, q, func(raw []byte) error {
		var row struct{ RowKey string }
		if err := json.Unmarshal(raw, &row); err != nil {
			return fmt.Errorf("decode tracking row: %w", err)
		}
		there[row.RowKey] = true
		return nil
	})
	return slices.DeleteFunc(slices.Clone(rows), func(row wire.Row) bool { return there[row.RowKey] }), err
}
