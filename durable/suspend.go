package durable

import (
	"context"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Suspend makes an instance take no notice of anything until it is resumed, as
// soon as it is next looked at. Activities that run go on; their results, and
// events, are kept for later. An instance that has not started yet is suspended
// when it does. An instance that is unknown makes it fail with
// [ErrInstanceNotFound], one that is suspended or has ended with an
// *[InstanceStateError].
func (c *Client) Suspend(ctx context.Context, id InstanceID, reason string) error {
	e := &history.ExecutionSuspended{Header: history.NewHeader(c.now()), Reason: &reason}
	if err := c.send(ctx, id, e, OperationSuspend, history.Pending, history.Running, history.ContinuedAsNew); err != nil {
		return fmt.Errorf("suspend instance %s: %w", id, err)
	}
	return nil
}

// Resume ends the suspension of an instance. An instance that is unknown makes
// it fail with [ErrInstanceNotFound], one that is not suspended with an
// *[InstanceStateError].
func (c *Client) Resume(ctx context.Context, id InstanceID, reason string) error {
	e := &history.ExecutionResumed{Header: history.NewHeader(c.now()), Reason: &reason}
	if err := c.send(ctx, id, e, OperationResume, history.Suspended); err != nil {
		return fmt.Errorf("resume instance %s: %w", id, err)
	}
	return nil
}
