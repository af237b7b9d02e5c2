// Package inuse lets tests check that resources are released: slots, held messages, sessions,
// waiting calls. A component registers its counts with the [Watch] of its context. Production
// code has no Watch.
package inuse

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Counts maps the name of a resource to the number in use.
type Counts map[string]int

// Watch collects the counts of components. The zero value is ready to use.
type Watch struct {
	mu     sync.Mutex // protects the fields below
	counts []func() Counts
}

type key struct{}

// With returns a context in which [Register] registers counts with w.
func With(ctx context.Context, w *Watch) context.Context { return context.WithValue(ctx, key{}, w) }

// Register registers count with the Watch of ctx, if there is one.
func Register(ctx context.Context, count func() Counts) {
	w, ok := ctx.Value(key{}).(*Watch)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts = append(w.counts, count)
}

// All returns the nonzero counts as sorted texts such as "2 slots". A negative count means that
// a resource was released too often.
func (w *Watch) All() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, count := range w.counts {
		for what, n := range count() {
			if n != 0 {
				all = append(all, fmt.Sprintf("%d %s", n, what))
			}
		}
	}
	slices.Sort(all)
	return all
}
