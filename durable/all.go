package durable

import (
	"context"
	"iter"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// All returns an iterator over all instances that match q, beginning with the
// page that q asks for. It reads page by page, as far as it is ranged over. If
// a page cannot be read it yields the error, and ends. It passes over instances that
// are unreadable, which [Client.List] tells of.
func (c *Client) All(ctx context.Context, q provider.Query) iter.Seq2[*provider.InstanceState, error] {
	return func(yield func(*provider.InstanceState, error) bool) {
		for page, err := range c.pages(ctx, q) {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, s := range page.Instances {
				if !yield(s, nil) {
					return
				}
			}
		}
	}
}

// pages is All by page.
func (c *Client) pages(ctx context.Context, q provider.Query) iter.Seq2[*provider.Page, error] {
	return func(yield func(*provider.Page, error) bool) {
		for {
			page, err := c.List(ctx, q)
			if !yield(page, err) || err != nil || page.Continuation == "" {
				return
			}
			q.Continuation = page.Continuation
		}
	}
}
