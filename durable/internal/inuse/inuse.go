// Package inuse lets tests check that resources are given back: slots, room, held
// messages, sessions, waiting calls. A component registers its counts with the [Watch] of
// its context. Without one it does nothing.
package inuse

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Counts say how many there are of what is in use, by what it is.
type Counts map[string]int

// A Watch counts what is in use below its context. Its zero value is ready.
type Watch struct {
	mu     sync.Mutex // protects the following
	counts []func() Counts
}

type key struct{}

// With returns a context with w.
func With(ctx context.Context, w *Watch) context.Context { return context.WithValue(ctx, key{}, w) }

// Tell adds count to the Watch of ctx, if there is one.
func Tell(ctx context.Context, count func() Counts) {
	w, ok := ctx.Value(key{}).(*Watch)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts = append(w.counts, count)
}

// All returns what is in use now, in words and in order, and what was given back too
// often, as a negative number.
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
