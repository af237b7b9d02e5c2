package durable

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Tracking returns a page of the audit of an instance: what became of all its
// executions, oldest first, whether their histories are still there or not. A hub
// that keeps no audit makes it fail with [ErrNotSupported].
func (c *Client) Tracking(ctx context.Context, id InstanceID, q provider.TrackingQuery) (*provider.TrackingPage, error) {
	tracker, ok := c.hub.(provider.Tracker)
	if !ok {
		return nil, during(ErrNotSupported, "read audit of instance %s", id)
	}
	err := checkTexts("instance ID", id)
	if err != nil {
		return nil, during(err, "read audit of instance %q", id)
	}
	page, err := tracker.Tracking(ctx, string(id), q)
	if err != nil {
		return nil, during(err, "read audit of instance %s", id)
	}
	return page, nil
}
