package chains

import (
	"math/rand"
	"sort"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func nested() time.Time { return time.Now() }

func helper() time.Time { return nested() }

func around(n int) time.Time {
	if n > 0 {
		return around(n - 1)
	}
	return helper()
}

func both() int64 { return helper().Unix() + rand.Int63() + int64(rand.Intn(3)) }

type store struct{ clock func() time.Time }

func newStore() *store { return &store{clock: time.Now} }

func newReal() *store {
	s := &store{}
	s.clock = func() time.Time { return time.Now() }
	return s
}

func clockOf() func() time.Time { return time.Now }

func (s *store) stamp() time.Time { return nested() }

func apply[T any](v T, f func(T) T) T { return f(v) }

func jitter(n int) int { return n + rand.Intn(10) }

func orchestrator(ctx *durable.Context, in int) (int, error) {
	helper()        // want `^time.Now, reached via helper → nested, reads the machine's clock, which differs on replay; use ctx.Now\(\)$`
	around(3)       // want `time.Now, reached via around → helper → nested, reads`
	both()          // want `time.Now, reached via both → helper → nested, reads` `rand.Int63, reached via both, gives`
	s := newStore() // which only keeps the function
	newReal()
	clockOf()
	s.stamp()        // want `time.Now, reached via store.stamp → nested, reads`
	stamp := s.stamp // want `time.Now, reached via store.stamp → nested, reads`
	_ = stamp
	apply(in, jitter)                                                       // want `rand.Intn, reached via jitter, gives`
	sort.Slice([]int{in}, func(i, j int) bool { return rand.Intn(2) == 0 }) // want `rand.Intn gives`
	inner := func() { helper() }                                            // want `time.Now, reached via helper → nested, reads`
	inner()
	handed := store{clock: func() time.Time { return time.Now() }} // want `time.Now reads`
	_ = handed
	return step(ctx, in)
}

func step(ctx *durable.Context, in int) (int, error) {
	return in + rand.Intn(3), nil // want `rand.Intn gives`
}

func recursive(ctx *durable.Context, in int) (int, error) {
	var visit func(n int) int
	visit = func(n int) int {
		if n == 0 {
			return rand.Int() // want `rand.Int gives`
		}
		return visit(n - 1)
	}
	return visit(in), nil
}

func closureInHelper() int {
	f := func() int { return rand.Int() }
	return f()
}

func callsHelper(ctx *durable.Context, in int) (int, error) {
	return closureInHelper(), nil // want `rand.Int, reached via closureInHelper, gives`
}

func even(n int) bool {
	if n == 0 {
		return true
	}
	return odd(n - 1)
}

func odd(n int) bool { return n != 0 && even(n-1) }

func pure(ctx *durable.Context, in int) (bool, error) { return even(in), nil }
