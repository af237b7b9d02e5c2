package store

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// Each calls f for each of items, limit at a time. It returns the first error, with which
// the context that f gets ends.
func Each[T any](ctx context.Context, limit int, items []T, f func(ctx context.Context, i int, item T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(limit)
	for i, item := range items {
		group.Go(func() error { return f(ctx, i, item) })
	}
	return group.Wait()
}
