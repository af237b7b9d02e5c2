package provider

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Tracker is a [Client] of a hub that can keep tracking records of its orchestrations. They
// contain every event of every execution, including histories that were replaced or purged.
type Tracker interface {
	// Tracking returns one page of an instance's tracking records, oldest first. The page is
	// empty if the instance has no records. The error is [ErrNotSupported] if the hub keeps no
	// tracking records.
	Tracking(ctx context.Context, id string, q TrackingQuery) (*TrackingPage, error)
}

// TrackingQuery selects a page of tracking records.
type TrackingQuery struct {
	PageSize     int    // maximum; 0 means the provider's default
	Continuation string // TrackingPage.Continuation of the previous page; empty for the first page
}

// TrackingPage is a page of tracking records.
type TrackingPage struct {
	Records      []TrackingRecord
	Continuation string // of the next page; empty on the last page
}

// TrackingRecord is the record of one event, or of the status after an episode.
type TrackingRecord struct {
	ExecutionID string
	// SequenceNumber numbers the records of an execution from 0, without gaps.
	SequenceNumber int
	// Event is an event of the history or, after each episode, a [history.HistoryState] with
	// the execution's status.
	Event history.Event
	// Shortened names the fields of Event that were truncated.
	Shortened []string
}
