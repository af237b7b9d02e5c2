package durable

import (
	"context"
	"iter"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// All returns an iterator over all instances that match q, beginning with the
// page that q asks for. It reads page by page, as far as it is ranged over. If
// a page cannot be read it yields the error, and ends.
func (c *Client) All(ctx context.Context, q provider.Query) iter.Seq2[*provider.InstanceState, error] {
	return func(yield func(*provider.InstanceState, error) bool) {
		for {
			page, err := c.List(ctx, q)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, s := range page.Instances {
				if !yield(s, nil) {
					return
				}
			}
			if page.Continuation == "" {
				return
			}
			q.Continuation = page.Continuation
		}
	}
}
