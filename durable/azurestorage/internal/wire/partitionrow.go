package wire

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
)

// A PartitionRow is the lease on a control queue
// (DurableTask.AzureStorage/Partitioning/TablePartitionLease.cs). Empty owners and zero times are
// null.
type PartitionRow struct {
	Queue        string // name of the control queue; the row key
	CurrentOwner string // the worker that may read the queue
	NextOwner    string // the worker that requested the queue
	OwnedSince   time.Time
	LastRenewal  time.Time
	ExpiresAt    time.Time // any worker may claim the queue after this time
	IsDraining   bool      // CurrentOwner is releasing the queue
	ETag         string    // set when the row is read
}

// Row returns the row to insert or to replace the existing row with. Null values are omitted.
func (p PartitionRow) Row() Row {
	e := Row{RowKey: p.Queue}
	if p.CurrentOwner != "" {
		e.SetString("CurrentOwner", p.CurrentOwner)
	}
	if p.NextOwner != "" {
		e.SetString("NextOwner", p.NextOwner)
	}
	e.SetOptionalTime("OwnedSince", p.OwnedSince)
	e.SetOptionalTime("LastRenewal", p.LastRenewal)
	e.SetOptionalTime("ExpiresAt", p.ExpiresAt)
	e.setBool("IsDraining", p.IsDraining)
	return e
}

// DecodePartitionRow decodes a row in the table service's format.
func DecodePartitionRow(raw []byte) (PartitionRow, error) {
	var c struct {
		ETag         string `json:"odata.etag"`
		RowKey       string
		CurrentOwner string
		NextOwner    string
		OwnedSince   eventjson.Time
		LastRenewal  eventjson.Time
		ExpiresAt    eventjson.Time
		IsDraining   bool
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return PartitionRow{}, fmt.Errorf("decode partition row: %w", err)
	}
	if c.RowKey == "" {
		return PartitionRow{}, fmt.Errorf("decode partition row: it has no RowKey")
	}
	return PartitionRow{
		Queue:        c.RowKey,
		CurrentOwner: c.CurrentOwner,
		NextOwner:    c.NextOwner,
		OwnedSince:   c.OwnedSince.Time,
		LastRenewal:  c.LastRenewal.Time,
		ExpiresAt:    c.ExpiresAt.Time,
		IsDraining:   c.IsDraining,
		ETag:         c.ETag,
	}, nil
}
