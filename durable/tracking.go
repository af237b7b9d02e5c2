package durable

import (
	"context"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
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

// Tracking returns a page of the tracking records of an instance: every event of all
// its executions, oldest first, whether their histories are still there or not. A hub
// that keeps no tracking records makes it fail with [ErrNotSupported].
func (c *Client) Tracking(ctx context.Context, id InstanceID, q TrackingQuery) (*TrackingPage, error) {
	tracker, ok := c.hub.(provider.Tracker)
	if !ok {
		return nil, fmt.Errorf("read tracking records of instance %s: %w", id, ErrNotSupported)
	}
	err := checkTexts("instance ID", id)
	if err != nil {
		return nil, fmt.Errorf("read tracking records of instance %q: %w", id, err)
	}
	page, err := tracker.Tracking(ctx, string(id), provider.TrackingQuery(q))
	if err != nil {
		return nil, fmt.Errorf("read tracking records of instance %s: %w", id, err)
	}
	return &TrackingPage{
		Records:      converted(page.Records, func(r provider.TrackingRecord) TrackingRecord { return TrackingRecord(r) }),
		Continuation: page.Continuation,
	}, nil
}
