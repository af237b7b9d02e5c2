package provider

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A Tracker is a [Client] of a hub that may keep an audit of its orchestrations:
// every event of every execution, also of those whose history was replaced or
// purged.
type Tracker interface {
	// Tracking returns a page of what was recorded of an instance, oldest first.
	// There is none if nothing was recorded, and [ErrNotSupported] if the hub
	// keeps no audit.
	Tracking(ctx context.Context, id string, q TrackingQuery) (*TrackingPage, error)
}

// A TrackingQuery says which page of an audit is wanted.
type TrackingQuery struct {
	PageSize     int    // at most; zero is as many as the provider likes
	Continuation string // of the page before; empty for the first
}

// A TrackingPage is a part of an audit.
type TrackingPage struct {
	Records      []TrackingRecord
	Continuation string // asks for the next page; empty on the last
}

// A TrackingRecord tells of one state transition.
type TrackingRecord struct {
	ExecutionID string
	// SequenceNumber counts an execution's records from 0, without gaps.
	SequenceNumber int
	// Event is what happened: an event of the history, or after each episode a
	// [history.HistoryState] with the status that the execution then had.
	Event history.Event
	// Shortened names the members of Event that were too large to be recorded in
	// full.
	Shortened []string
}
