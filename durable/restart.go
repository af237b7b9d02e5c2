package durable

import (
	"context"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Restart starts an instance with the name, the input, the version and the tags
// that another was started with, and returns its ID. Among opts can be its ID,
// which can be that of the other; otherwise it gets a random one. What opts say
// of the version and the tags counts in place of the other's.
//
// If the other instance is unknown it fails with [ErrInstanceNotFound], and if
// the ID is that of an instance that has not ended, with an
// *[InstanceExistsError].
func (c *Client) Restart(ctx context.Context, id InstanceID, opts ...StartOption) (InstanceID, error) {
	s, err := c.instance(ctx, id, provider.Fetch{Input: true})
	if err != nil {
		return "", fmt.Errorf("restart instance %s: %w", id, err)
	}
	as := []StartOption{Version(s.Version)}
	if s.Tags != nil {
		as = append(as, Tags(s.Tags))
	}
	restarted, err := c.start(ctx, s.Name, s.Input, append(as, opts...)...)
	if err != nil {
		return "", fmt.Errorf("restart instance %s: %w", id, err)
	}
	return restarted, nil
}
