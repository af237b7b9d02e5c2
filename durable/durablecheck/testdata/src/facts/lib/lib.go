// Package lib is imported by orchestrators.
package lib

import (
	"context"
	"math/rand"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

var Level int // want Level:"mutable"

var Limit = 5

var Now = time.Now // want Now:"clock: time.Now"

var mu sync.Mutex

func SetLevel(n int) { Level = n } // want SetLevel:"variable: changing package variable Level"

func Stamp() time.Time { return stamp() } // want Stamp:"clock: time.Now via lib.stamp"

func stamp() time.Time { return time.Now() }

type Dice struct{}

func (*Dice) Roll() int { return rand.Intn(6) } // want Roll:"random: rand.Intn"

func Guarded() int { // want Guarded:"sync: sync.Mutex.Lock"
	mu.Lock()
	defer mu.Unlock()
	return Limit
}

func Keys[K comparable, V any](m map[K]V) (ks []K) { // want Keys:"unordered"
	for k := range m {
		ks = append(ks, k)
	}
	return ks
}

func Activity(ctx context.Context, n int) (int, error) { time.Now(); return n, nil }

func Step(ctx *durable.Context, n int) (int, error) { // want Step:"clock: time.Now, durable: durable.CallActivity"
	time.Now() // want `time.Now reads`
	return durable.CallActivity(ctx, Activity, n).Await()
}

func Wrapped(f func() error) func() error { // want Wrapped:"durable: durable.Context.SetCustomStatus"
	var ctx *durable.Context
	ctx.SetCustomStatus("")
	return f
}

//durablecheck:ignore only for logs
func Allowed() time.Time { return time.Now() }

type Tally struct{ n int }

func (t *Tally) Add(n int) { t.n += n } // want Add:"mutates"

func (t *Tally) Sum() int { return t.n }

func Pure(n int) int { return n + Limit }
