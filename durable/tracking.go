package durable

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A TrackingQuery selects a page of tracking records.
type TrackingQuery struct {
	PageSize     int    // at most; 0: the provider's default
	Continuation string // of the page before; empty for the first
}

// A TrackingPage is a page of tracking records.
type TrackingPage struct {
	Records      []TrackingRecord
	Continuation string // of the next page; empty on the last
}

// A TrackingRecord is the record of one state transition.
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
