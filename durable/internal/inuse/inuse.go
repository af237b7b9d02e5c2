// Package inuse is how tests see that what was taken is given back: slots, room,
// messages that are held, sessions, those who wait. What has such things tells whoever
// looks, by the context that it runs below. If nobody does, nothing is done.
package inuse

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Counts say how many there are of what is in use, by what it is.
type Counts map[string]int

// A Watch looks at what runs below its context. Its zero value is ready.
type Watch struct {
	mu   sync.Mutex // protects the following
	told []func() Counts
}

type key struct{}

// With returns a context below which w looks.
func With(ctx context.Context, w *Watch) context.Context { return context.WithValue(ctx, key{}, w) }

// Tell has whoever looks below ctx be told by count, from now on.
func Tell(ctx context.Context, count func() Counts) {
	w, ok := ctx.Value(key{}).(*Watch)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, count)
}

// All returns what is in use now, in words and in order. Less than none is too much given
// back, and told, too.
func (w *Watch) All() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, count := range w.told {
		for what, n := range count() {
			if n != 0 {
				all = append(all, fmt.Sprintf("%d %s", n, what))
			}
		}
	}
	slices.Sort(all)
	return all
}
