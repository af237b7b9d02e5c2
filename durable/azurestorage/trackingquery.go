package azurestorage

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var _ provider.Tracker = (*TaskHub)(nil)

// Tracking implements [provider.Tracker]. What was recorded can be read also
// while nothing is recorded any more.
func (h *TaskHub) Tracking(ctx context.Context, id string, q provider.TrackingQuery) (*provider.TrackingPage, error) {
	raw, continuation, err := h.tracking.table.Page(store.Optional(ctx), store.Query{
		Filter: "PartitionKey eq '" + store.Doubled(wire.EscapeKey(id)) + "'", Top: min(max(q.PageSize, 0), maxPageSize), Continuation: q.Continuation,
	})
	if store.IsNotFound(err) {
		return nil, fmt.Errorf("task hub %s keeps no tracking records of its orchestrations: %w", h.cfg.TaskHub, provider.ErrNotSupported)
	}
	if err != nil {
		return nil, err
	}
	page := &provider.TrackingPage{Records: make([]provider.TrackingRecord, len(raw)), Continuation: continuation}
	for i := range raw {
		if page.Records[i], err = decodeTrackingRow(raw[i]); err != nil {
			return nil, err
		}
	}
	return page, nil
}

func decodeTrackingRow(raw []byte) (provider.TrackingRecord, error) {
	var more struct {
		SequenceNumber int
		Shortened      string
	}
	row, err := wire.DecodeColumns(raw)
	if err == nil {
		err = json.Unmarshal(raw, &more)
	}
	if err != nil {
		return provider.TrackingRecord{}, err
	}
	record := provider.TrackingRecord{ExecutionID: row.ExecutionID, SequenceNumber: more.SequenceNumber}
	if more.Shortened != "" {
		record.Shortened = strings.Split(more.Shortened, ",")
	}
	record.Event, err = row.Event()
	return record, err
}
