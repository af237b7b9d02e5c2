package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Reader reads a partition's records. Its methods are safe for concurrent use.
type Reader struct {
	cfg   Config
	store *logstore.Store
}

// NewReader returns a reader of a store that this process does not write to.
func NewReader(store *logstore.Store, cfg Config) *Reader { return &Reader{cfg.withDefaults(), store} }

// read calls f with the current records. Writes wait until f returns, unless cfg.HighLatency is set.
func (r *Reader) read(what string, f func(tables) error) error {
	if r.cfg.HighLatency {
		return r.scan(what, f)
	}
	return r.readView(what, r.store.View, f)
}

// scan calls f with the current records and does not block writes. It is for long reads.
func (r *Reader) scan(what string, f func(tables) error) error {
	return r.readView(what, r.store.Snapshot, f)
}

func (r *Reader) readView(what string, view func(func(*logstore.View) error) error, f func(tables) error) error {
	err := r.cfg.Readable()
	if err == nil {
		err = view(func(v *logstore.View) error { return f(tables{v}) })
	}
	if err == nil || errors.Is(err, provider.ErrInstanceNotFound) {
		return err
	}
	return fmt.Errorf("%s: %w", what, r.cfg.Error(err))
}

// Instance implements [provider.Client].
func (r *Reader) Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	var state *provider.InstanceState
	err := r.readRow(ctx, id, func(t tables, row *row) (err error) {
		state, err = t.state(row, fetch)
		return err
	})
	return state, err
}

// status returns an instance's status and reads no payloads.
func (r *Reader) status(ctx context.Context, id string) (status history.RuntimeStatus, err error) {
	err = r.readRow(ctx, id, func(_ tables, row *row) error {
		status = row.Status
		return nil
	})
	return status, err
}

// readRow calls f with an instance's row. It returns [provider.ErrInstanceNotFound] if the
// instance has none.
func (r *Reader) readRow(ctx context.Context, id string, f func(tables, *row) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return r.read("read instance "+id, func(t tables) error {
		row, err := t.row(id)
		if err != nil {
			return err
		}
		if row == nil {
			return provider.ErrInstanceNotFound
		}
		return f(t, row)
	})
}

// Instances implements [provider.Client]. It returns the instances by ID. A continuation is the
// first ID of the next page.
func (r *Reader) Instances(ctx context.Context, q provider.Query) (page *provider.Page, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	from, size := q.IDPrefix, q.PageSize
	if size <= 0 {
		size = r.cfg.PageSize
	}
	if q.Continuation != "" {
		places, err := provider.DecodeContinuation(q.Continuation, 1)
		if err != nil {
			return nil, fmt.Errorf("query instances: %w", err)
		}
		from = max(from, places[0])
	}
	err = r.scan("query instances", func(t tables) error {
		page, err = t.page(q, from, size)
		return err
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// History implements [provider.Client].
func (r *Reader) History(ctx context.Context, id string) ([]history.Event, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var past []history.Event
	err := r.scan("read history of instance "+id, func(t tables) error {
		row, err := t.row(id)
		if row == nil || err != nil {
			return err
		}
		past, err = t.events(row.number)
		return err
	})
	return past, err
}

// Totals implements [provider.Portable].
func (r *Reader) Totals(ctx context.Context) (totals provider.Totals, err error) {
	err = r.scan("count task hub", func(t tables) error {
		totals, err = t.totals(ctx)
		return err
	})
	return totals, err
}

// IsEmpty reports whether the partition has no instances, messages or activities.
func (r *Reader) IsEmpty() (empty bool, err error) {
	err = r.read("check whether task hub is empty", func(t tables) (err error) {
		empty, err = t.isEmpty()
		return err
	})
	return empty, err
}

// export exports one consistent state of the partition, one record at a time.
func (r *Reader) export(ctx context.Context, w provider.HubWriter) error {
	return r.scan("export task hub", func(t tables) error {
		if err := t.exportInstances(ctx, w); err != nil {
			return err
		}
		if err := t.exportActivities(ctx, w); err != nil {
			return err
		}
		return t.exportMessages(ctx, w)
	})
}

// ExportInstances exports the instances with their histories.
func (r *Reader) ExportInstances(ctx context.Context, w provider.HubWriter) error {
	return r.scan("export instances", func(t tables) error { return t.exportInstances(ctx, w) })
}

// ExportActivities exports the pending activities.
func (r *Reader) ExportActivities(ctx context.Context, w provider.HubWriter) error {
	return r.scan("export activities", func(t tables) error { return t.exportActivities(ctx, w) })
}

// ExportMessages exports the pending messages for instances.
func (r *Reader) ExportMessages(ctx context.Context, w provider.HubWriter) error {
	return r.scan("export messages", func(t tables) error { return t.exportMessages(ctx, w) })
}

// Answer reports whether the partition has answered a sender's request. If it has, err is the
// answer: nil, or the error of the request. Otherwise err is nil or the error of the read.
func (r *Reader) Answer(sender string, number uint64) (answered bool, err error) {
	var a answer
	err = r.read("read answer", func(t tables) error {
		b, err := t.Get(mailTable, answerKey(sender, number))
		if b == nil || err != nil {
			return err
		}
		c := newDecoder(b)
		c.answer(&a)
		answered = true
		return c.End()
	})
	if err != nil || !answered {
		return false, err
	}
	if err := a.err(); err != nil {
		return true, r.cfg.Error(err)
	}
	return true, nil
}

// MailPosition returns the stored position in the mailbox; nil if the mailbox was never read.
func (r *Reader) MailPosition() (position []byte, err error) {
	err = r.read("read the position in the mailbox", func(t tables) error {
		value, err := t.Get(mailTable, []byte(positionKey))
		position = bytes.Clone(value)
		return err
	})
	return position, err
}

// Outgoing returns the unsent messages for other partitions, by ascending number.
func (r *Reader) Outgoing() (all []Outgoing, err error) {
	err = r.read("read the messages for other partitions", func(t tables) error {
		return t.each(outboxTable, func(key, value []byte) error {
			m, err := outgoingOf(key, value)
			if err != nil {
				return t.Damage(outboxTable, key, err)
			}
			all = append(all, m)
			return nil
		})
	})
	return all, err
}

// Received returns the highest request number that the partition has received from a sender; 0
// if it received none.
func (r *Reader) Received(sender string) (last uint64, err error) {
	err = r.read("read the last request of "+sender, func(t tables) error {
		b, err := t.Get(mailTable, []byte(markPrefix+sender))
		if b == nil || err != nil {
			return err
		}
		var at time.Time
		c := newDecoder(b)
		c.Time(&at)
		c.Uint(&last)
		return c.End()
	})
	return last, err
}

// maxPending bounds each count of [Reader.Pending].
const maxPending = 1000

// Pending returns the numbers of messages, of messages that are not due or leave the partition, and of
// activities, each at most 1,000 per table.
func (r *Reader) Pending() (messages, hidden, activities int, err error) {
	err = r.scan("count pending messages and activities", func(t tables) error {
		var timers, outgoing int
		defer func() { hidden = timers + outgoing }()
		for table, n := range map[logstore.Table]*int{messagesTable: &messages, timersTable: &timers, outboxTable: &outgoing, activitiesTable: &activities} {
			err := t.Scan(table, "", func(string, []byte) (bool, error) {
				*n++
				return *n == maxPending, nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return messages, hidden, activities, err
}
