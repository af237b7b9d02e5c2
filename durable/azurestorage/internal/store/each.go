package store

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// ForEach calls f for every item, with at most limit concurrent calls. A negative limit means no
// limit. ForEach returns the first error, which also cancels the context of the other calls.
func ForEach[T any](ctx context.Context, limit int, items []T, f func(ctx context.Context, i int, item T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(limit)
	for i, item := range items {
		group.Go(func() error { return f(ctx, i, item) })
	}
	return group.Wait()
}
