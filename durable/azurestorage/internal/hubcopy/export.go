package hubcopy

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An export is one run of [Hub.Export].
type export struct {
	hub       *Hub
	to        provider.HubWriter
	options   provider.ExportOptions
	instances map[string]*exported
	received  map[string]*receivedMessage // by queue and ID
	order     []*receivedMessage
	lookedAt  time.Time // just before the queues were received from last: what is due later was hidden, or is received
}

// exportInstances passes on every instance that has a row or a history.
func (x *export) exportInstances(ctx context.Context) error {
	h := x.hub
	columns := wire.InstanceColumns(provider.Fetch{Input: true, Output: true})
	err := h.Instances.Rows.Table.All(ctx, store.Query{Columns: columns}, func(raw []byte) error {
		row, err := wire.DecodeInstanceRow(raw)
		if err != nil {
			return err
		}
		if err := h.Instances.Rows.Resolve(ctx, row, wire.MaxDecompressed); err != nil {
			return err
		}
		return x.exportInstance(ctx, row.State.Instance.InstanceID, row)
	})
	if err != nil {
		return fmt.Errorf("export instances: %w", err)
	}
	// An instance whose first checkpoint was cut off has a history and no row.
	withHistory := store.Query{Filter: "RowKey eq '" + wire.SentinelRowKey + "'", Columns: []string{"PartitionKey"}}
	err = h.Instances.Histories.Table.All(ctx, withHistory, func(raw []byte) error {
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
	stored, err := x.hub.Instances.Histories.Load(ctx, id, "")
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
