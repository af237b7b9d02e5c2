package azurestorage

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/leases"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var _ provider.Portable = (*TaskHub)(nil)

// Export implements [provider.Portable].
//
// Queues do not show what is hidden in them. Of that, timers and scheduled
// starts are made anew from the histories and the rows. What else the histories
// say must be there is waited for, for as long as a worker that died can have
// hidden it.
//
// The messages are received, which hides them for a few minutes, and made
// visible again at the end.
func (h *TaskHub) Export(ctx context.Context, w provider.HubWriter, o provider.ExportOptions) error {
	if err := h.checkExists(ctx); err != nil {
		return err
	}
	if err := h.checkIdle(ctx); err != nil {
		return err
	}
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
	return h.checkIdle(ctx) // a worker that came meanwhile has changed what was read
}

// An export is one run of [TaskHub.Export].
type export struct {
	hub       *TaskHub
	to        provider.HubWriter
	options   provider.ExportOptions
	instances map[string]*exported
	received  map[string]*receivedMessage // by queue and ID
	order     []*receivedMessage
	lookedAt  time.Time // just before the queues were received from last: what is due later was hidden, or is received
}

// checkExists fails if there is no such hub, rather than making one.
func (h *TaskHub) checkExists(ctx context.Context) error {
	n, err := h.countPartitions(ctx)
	switch {
	case store.IsNotFound(err):
		return fmt.Errorf("there is no task hub %s in the storage account", h.cfg.TaskHub)
	case err != nil:
		return fmt.Errorf("look for task hub %s: %w", h.cfg.TaskHub, err)
	case n != len(h.controlQueues):
		return &PartitionCountError{TaskHub: h.cfg.TaskHub, Configured: len(h.controlQueues), Existing: n}
	}
	return nil
}

// countPartitions returns how many partitions the hub has, by what its partition manager
// keeps.
func (h *TaskHub) countPartitions(ctx context.Context) (int, error) {
	if h.cfg.PartitionManager != TablePartitions {
		return h.leases.CountPartitions(ctx)
	}
	rows, _, err := leases.ReadRows(ctx, h.partitionsTable)
	return len(rows), err
}

// checkIdle fails with [provider.ErrHubBusy] if a worker has a partition of the
// hub, whichever partition manager it uses.
func (h *TaskHub) checkIdle(ctx context.Context) error {
	rows, _, err := leases.ReadRows(ctx, h.partitionsTable)
	if err != nil && !store.IsNotFound(err) {
		return err
	}
	for _, row := range rows {
		if row.CurrentOwner != "" && row.ExpiresAt.After(time.Now()) {
			return fmt.Errorf("%s: worker %s has partition %s until %s: %w", h.cfg.TaskHub, row.CurrentOwner, row.Queue,
				row.ExpiresAt.UTC().Format(time.TimeOnly), provider.ErrHubBusy)
		}
	}
	blobs := store.NewContainer(h.services.Blobs, h.services.BlobEndpoint, h.names.Leases())
	options := &container.ListBlobsFlatOptions{}
	for {
		var page container.ListBlobsFlatResponse
		err := store.Retry(ctx, "list blobs of "+blobs.Name, func(ctx context.Context) (err error) {
			page, err = blobs.Client.NewListBlobsFlatPager(options).NextPage(ctx)
			return err
		})
		if store.IsNotFound(err) {
			return nil // it is there only with the other partition managers
		}
		if err != nil {
			return err
		}
		for _, item := range page.Segment.BlobItems {
			if item.Properties != nil && store.Value(item.Properties.LeaseStatus) == lease.StatusTypeLocked {
				return fmt.Errorf("%s: a worker has the lease %s: %w", h.cfg.TaskHub, store.Value(item.Name), provider.ErrHubBusy)
			}
		}
		if store.Value(page.NextMarker) == "" {
			return nil
		}
		options.Marker = page.NextMarker
	}
}

// exportInstances passes on every instance that has a row or a history.
func (x *export) exportInstances(ctx context.Context) error {
	h := x.hub
	columns := wire.InstanceColumns(provider.Fetch{Input: true, Output: true})
	err := h.instances.Rows.Table.All(ctx, store.Query{Columns: columns}, func(raw []byte) error {
		row, err := wire.DecodeInstanceRow(raw)
		if err != nil {
			return err
		}
		if err := h.instances.Rows.Resolve(ctx, row, wire.MaxDecompressed); err != nil {
			return err
		}
		return x.exportInstance(ctx, row.State.Instance.InstanceID, row)
	})
	if err != nil {
		return fmt.Errorf("export instances: %w", err)
	}
	// An instance whose first checkpoint was cut off has a history and no row.
	withHistory := store.Query{Filter: "RowKey eq '" + wire.SentinelRowKey + "'", Columns: []string{"PartitionKey"}}
	err = h.instances.Histories.Table.All(ctx, withHistory, func(raw []byte) error {
		var row struct{ PartitionKey string }
		if err := json.Unmarshal(raw, &row); err != nil {
			return fmt.Errorf("decode history row: %w", err)
		}
		id := wire.UnescapeKey(row.PartitionKey)
		if x.instances[id] != nil {
			return nil
		}
		return x.exportInstance(ctx, id, nil)
	})
	if err != nil {
		return fmt.Errorf("export histories: %w", err)
	}
	return nil
}

func (x *export) exportInstance(ctx context.Context, id string, row *wire.InstanceRow) error {
	stored, err := x.hub.instances.Histories.Load(ctx, id, "")
	if err != nil {
		return fmt.Errorf("instance %q: %w", id, err)
	}
	state, past := mended(id, row, stored)
	if state == nil {
		return nil
	}
	x.instances[id] = newExported(row, stored, state, past)
	return x.to.Instance(ctx, state, past)
}

// mended returns an instance as it would be if no worker had been cut off: the
// history is written before the row. It returns nil if nothing is left of it but
// an empty history.
func mended(id string, row *wire.InstanceRow, stored instances.History) (*provider.InstanceState, []history.Event) {
	past := stored.Events
	if row == nil && len(past) == 0 {
		return nil, nil
	}
	l := &instances.Instance{History: stored, Row: row}
	state := &provider.InstanceState{Status: history.Running, Instance: history.OrchestrationInstance{InstanceID: id}}
	if row != nil {
		state = &row.State
		renewed := state.Instance.ExecutionID != stored.ExecutionID
		if len(past) == 0 || l.AwaitsStart() || renewed && state.Status.IsTerminal() {
			return state, nil // what is about to start takes the place of what is over
		}
		// A rewound instance waits to be taken up: its row says that it has ended, and was
		// changed since the last event.
		rewound := !state.CompletedAt.IsZero() && state.Status == history.Pending && state.LastUpdatedAt.After(past[len(past)-1].Head().Timestamp)
		if !renewed && (state.Status.IsTerminal() || stored.Known.Ended == nil && (rewound || !l.RowIsBehind())) {
			return state, past
		}
	}
	state.Instance.ExecutionID = stored.ExecutionID
	first := state.FirstCreatedAt // not known of one without a row
	for _, ev := range past {
		state.Apply(ev)
	}
	state.FirstCreatedAt = first
	return state, past
}
