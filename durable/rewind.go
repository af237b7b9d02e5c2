package durable

import (
	"context"
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Rewind takes back the failure of an instance: the activities that failed run
// again, children that failed are rewound in turn, and what succeeded is not
// done again. What the orchestrator has answered in some other way, such as a
// failure that it caught, stays as it was. reason is recorded in the history of
// the instances that go on.
//
// An instance that is unknown makes it fail with [ErrInstanceNotFound], one that
// has not failed with an *[InstanceStateError], and a hub that cannot rewind
// with [ErrNotSupported].
func (c *Client) Rewind(ctx context.Context, id InstanceID, reason string) error {
	if err := c.rewind(ctx, id, reason); err != nil {
		return fmt.Errorf("rewind instance %s: %w", id, err)
	}
	return nil
}

func (c *Client) rewind(ctx context.Context, id InstanceID, reason string) error {
	s, err := c.instance(ctx, id, provider.Fetch{})
	if err != nil {
		return err
	}
	if s.Status != history.Failed {
		return &InstanceStateError{InstanceID: id, Operation: OperationRewind, Status: s.Status}
	}
	if err := checkTexts("reason", reason); err != nil {
		return err
	}
	rewinder, ok := c.hub.(provider.Rewinder)
	if !ok {
		return ErrNotSupported
	}
	err = rewinder.Rewind(ctx, string(id), reason)
	if errors.Is(err, provider.ErrInstanceChanged) || errors.Is(err, ErrInstanceNotFound) { // somebody was faster
		if s, lookErr := c.instance(ctx, id, provider.Fetch{}); lookErr == nil && s.Status != history.Failed {
			return &InstanceStateError{InstanceID: id, Operation: OperationRewind, Status: s.Status}
		}
	}
	return err
}
