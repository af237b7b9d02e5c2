package durable

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// TrackingQuery selects a page of tracking records.
type TrackingQuery struct {
	PageSize     int    // maximum number of records; 0 means the provider's default
	Continuation string // TrackingPage.Continuation of the previous page; empty for the first
}

// TrackingPage is one page of tracking records.
type TrackingPage struct {
	Records      []TrackingRecord
	Continuation string // of the next page; empty on the last
}

// TrackingRecord is the record of one event, or of the status after an episode.
type TrackingRecord struct {
	ExecutionID string
	// SequenceNumber is the number of the record within its execution, from 0 without
	// gaps.
	SequenceNumber int
	// Event is an event of the history. After each episode it is a
	// [history.HistoryState] with the status of the execution.
	Event history.Event
	// Shortened lists the fields of Event that were truncated.
	Shortened []string
}
