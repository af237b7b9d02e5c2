package embedded

import (
	"context"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var _ provider.Portable = (*Hub)(nil)

// busy returns an error if Run runs.
func (h *Hub) busy() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running {
		return fmt.Errorf("%s: %w", h.path, provider.ErrHubBusy)
	}
	return nil
}

// Export implements [provider.Portable]. It sees one state of the hub, and
// reads records one at a time.
func (h *Hub) Export(ctx context.Context, w provider.HubWriter, _ provider.ExportOptions) error {
	if err := h.busy(); err != nil {
		return err
	}
	return h.read("export task hub", func(t tables) error {
		if err := t.exportInstances(ctx, w); err != nil {
			return err
		}
		if err := t.exportActivities(ctx, w); err != nil {
			return err
		}
		return t.exportMessages(ctx, w)
	})
}

func (t tables) exportInstances(ctx context.Context, w provider.HubWriter) error {
	return t.Scan(instancesTable, "", func(id string, value []byte) (bool, error) {
		if err := ctx.Err(); err != nil {
			return true, err
		}
		r, err := decodeRow(value)
		if err != nil {
			return true, t.Damage(instancesTable, []byte(id), err)
		}
		state, err := t.state(id, r, provider.Fetch{Input: true, Output: true})
		if err != nil {
			return true, err
		}
		past, err := t.events(r.number)
		if err != nil {
			return true, err
		}
		return false, w.Instance(ctx, state, past)
	})
}

func (t tables) exportActivities(ctx context.Context, w provider.HubWriter) error {
	return t.each(activitiesTable, func(_, value []byte) error {
		_, message, err := decodeActivityHead(value)
		if err != nil {
			return err
		}
		task, err := decodeMessage(message)
		if err != nil {
			return err
		}
		return w.Activity(ctx, task)
	})
}

// exportMessages passes the messages that could be handed out, and then those
// that have a time.
func (t tables) exportMessages(ctx context.Context, w provider.HubWriter) error {
	for _, table := range []logstore.Table{messagesTable, timersTable} {
		err := t.each(table, func(_, value []byte) error {
			m, err := decodeMessage(value)
			if err != nil {
				return err
			}
			return w.Message(ctx, m)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// each calls f with each record of a table, in the order of their keys.
func (t tables) each(table logstore.Table, f func(key, value []byte) error) error {
	return t.Scan(table, "", func(key string, value []byte) (bool, error) {
		err := f([]byte(key), value)
		return err != nil, err
	})
}

// Totals implements [provider.Portable].
func (h *Hub) Totals(ctx context.Context) (totals provider.Totals, err error) {
	err = h.read("count task hub", func(t tables) error {
		totals = provider.Totals{}
		err := t.Scan(instancesTable, "", func(id string, value []byte) (bool, error) {
			r, err := decodeRow(value)
			if err != nil {
				return true, t.Damage(instancesTable, []byte(id), err)
			}
			past, err := t.events(r.number)
			totals.Instances, totals.Events = totals.Instances+1, totals.Events+len(past)
			return ctx.Err() != nil, err
		})
		if err != nil {
			return err
		}
		for table, count := range map[logstore.Table]*int{
			activitiesTable: &totals.Activities, messagesTable: &totals.Messages, timersTable: &totals.Messages,
		} {
			err := t.each(table, func(_, _ []byte) error {
				*count++
				return nil
			})
			if err != nil {
				return err
			}
		}
		return ctx.Err()
	})
	return totals, err
}
