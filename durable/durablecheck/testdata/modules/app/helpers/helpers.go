// Package helpers is part of the app's module.
package helpers

import (
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

var (
	mu    sync.Mutex
	cache map[string]string
)

func Set(c map[string]string) { cache = c } // want Set:"variable: changing package variable cache"

func Cached(s string) string { // want Cached:"sync: sync.Mutex.Lock, variable: package variable cache"
	mu.Lock()
	defer mu.Unlock()
	return cache[s]
}

func Step(ctx *durable.Context, n int) (time.Time, error) { // want Step:"clock: time.Now, durable: durable.Context.Sleep"
	ctx.Sleep(1)
	return time.Now(), nil // want `time.Now reads`
}
