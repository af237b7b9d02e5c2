package provider

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Tracker is a [Client] of a hub that can keep tracking records of its
// orchestrations: every event of every execution, even if the history was replaced or
// purged.
type Tracker interface {
	// Tracking returns a page of an instance's tracking records, oldest first, without
	// records if there are none. The error is [ErrNotSupported] if the hub keeps no
	// tracking records.
	Tracking(ctx context.Context, id string, q TrackingQuery) (*TrackingPage, error)
}

// TrackingQuery selects a page of tracking records.
type TrackingQuery struct {
	PageSize     int    // at most; 0: the provider's default
	Continuation string // of the page before; empty for the first
}

// TrackingPage is a page of tracking records.
type TrackingPage struct {
	Records      []TrackingRecord
	Continuation string // of the next page; empty on the last
}

// TrackingRecord is the record of one state transition.
type TrackingRecord struct {
	ExecutionID string
	// SequenceNumber counts an execution's records from 0, without gaps.
	SequenceNumber int
	// Event is an event of the history, or after each episode a [history.HistoryState]
	// with the execution's status.
	Event history.Event
	// Shortened names the members of Event that were truncated.
	Shortened []string
}
