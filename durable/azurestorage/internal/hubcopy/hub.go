// Package hubcopy reads all that is in a task hub, and writes it into another: instances with
// their histories, and the messages under way.
package hubcopy

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A Hub is what a copy needs of a task hub.
type Hub struct {
	Name      string
	Instances *instances.Store
	WorkItems *store.Queue
	Queues    []*store.Queue // all, the control queues first
	// QueueOf returns the control queue of an instance.
	QueueOf func(instanceID string) *store.Queue
	// Aside returns the queue for the messages of q that are set aside.
	Aside func(q *store.Queue) *store.Queue
	// HiddenFor is how long a worker that died can have hidden a message.
	HiddenFor time.Duration
	// Read reads a message's text, and its blob if it has one.
	Read func(ctx context.Context, text string) (*wire.Envelope, error)
	// Send puts a message into a queue. Several copies do no harm.
	Send func(ctx context.Context, q *store.Queue, env *wire.Envelope) error
	// CheckIdle fails if a worker has a partition of the hub.
	CheckIdle func(ctx context.Context) error
	Log       *slog.Logger
}

// Export implements [provider.Portable] for a hub that no worker has.
func (h *Hub) Export(ctx context.Context, w provider.HubWriter, o provider.ExportOptions) error {
	x := &export{hub: h, to: w, options: o, instances: map[string]*exported{}, received: map[string]*receivedMessage{}}
	if err := x.exportInstances(ctx); err != nil {
		return err
	}
	defer x.handBack(ctx)
	if err := x.receiveAll(ctx); err != nil {
		return err
	}
	if err := x.tellOfAside(ctx); err != nil {
		return err
	}
	if err := x.exportMessages(ctx); err != nil {
		return err
	}
	return h.CheckIdle(ctx) // a worker that came meanwhile has changed what was read
}

// Import implements [provider.Portable] for a hub that no worker has. Histories and rows
// are written before any message, so that what is cut off has nothing that runs.
func (h *Hub) Import(ctx context.Context, fill func(provider.HubWriter) error) error {
	if err := h.checkEmpty(ctx); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(importsAtOnce)
	im := &hubImport{hub: h, group: group, ctx: groupCtx, episodes: map[string]int{}}
	filled := fill(im)
	if err := group.Wait(); err != nil {
		return err
	}
	return filled
}

// checkEmpty fails with [provider.ErrHubNotEmpty] if the hub has an instance or
// a message.
func (h *Hub) checkEmpty(ctx context.Context) error {
	for _, t := range []*store.Table{h.Instances.Rows.Table, h.Instances.Histories.Table} {
		for q := (store.Query{Top: 1}); ; {
			rows, continuation, err := t.Page(ctx, q)
			if err != nil {
				return err
			}
			if len(rows) > 0 {
				return fmt.Errorf("table %s has rows: %w", t.Name, provider.ErrHubNotEmpty)
			}
			if q.Continuation = continuation; continuation == "" {
				break
			}
		}
	}
	for _, q := range h.Queues {
		n, err := q.Length(ctx)
		if err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("queue %s has %d messages: %w", q.Name, n, provider.ErrHubNotEmpty)
		}
	}
	return nil
}

// Totals implements [provider.Portable].
func (h *Hub) Totals(ctx context.Context) (totals provider.Totals, err error) {
	count := func(t *store.Table, filter string, n *int) error {
		q := store.Query{Filter: filter, Columns: []string{"PartitionKey"}}
		return t.All(ctx, q, func([]byte) error {
			*n++
			return nil
		})
	}
	if err := count(h.Instances.Rows.Table, "", &totals.Instances); err != nil {
		return totals, err
	}
	if err := count(h.Instances.Histories.Table, "RowKey ne '"+wire.SentinelRowKey+"'", &totals.Events); err != nil {
		return totals, err
	}
	for _, q := range h.Queues {
		n, err := q.Length(ctx)
		if err != nil {
			return totals, err
		}
		if q == h.WorkItems {
			totals.Activities = n
		} else {
			totals.Messages += n
		}
	}
	return totals, nil
}

// write writes the history and the row of an instance.
func (h *Hub) write(ctx context.Context, state *provider.InstanceState, past []history.Event) error {
	if len(past) > 0 {
		rows, err := h.Instances.Histories.Encode(ctx, state.Instance.InstanceID, state.Instance.ExecutionID, 0, past)
		if err != nil {
			return err
		}
		if _, _, err := h.Instances.Histories.Append(ctx, state.Instance, rows, "", nil); err != nil {
			return err
		}
	}
	e := encodeImportedInstance(state, h.Name)
	if err := h.Instances.Rows.Offload(ctx, &e); err != nil {
		return err
	}
	return store.Retry(ctx, "write row of instance "+state.Instance.InstanceID, func(ctx context.Context) error {
		_, err := h.Instances.Rows.Table.Merge(ctx, e, "")
		return err
	})
}
