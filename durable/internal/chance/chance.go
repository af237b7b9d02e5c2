// Package chance is where what is left to chance comes from: how long to wait
// before another attempt, so that those who failed together do not come back
// together. A simulation puts numbers of its own into a context, so that it can
// be repeated.
package chance

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
)

// A Source returns numbers in [0, 1). The purpose names what a number is for,
// so that what one goroutine gets need not depend on what others ask for.
type Source func(purpose string) float64

type (
	key     struct{}
	turnKey struct{}
)

// With returns a context below which numbers come from s.
func With(ctx context.Context, s Source) context.Context {
	return context.WithValue(ctx, key{}, s)
}

// Float64 returns a number in [0, 1) from the context's source, or a random one
// if it has none.
func Float64(ctx context.Context, purpose string) float64 {
	if s, ok := ctx.Value(key{}).(Source); ok {
		return s(purpose)
	}
	return rand.Float64()
}

// WithTurns returns a context below which [TakeTurn] calls turn.
func WithTurns(ctx context.Context, turn func(ctx context.Context, name string, content io.Reader)) context.Context {
	return context.WithValue(ctx, turnKey{}, turn)
}

// TakeTurn returns at once, except in simulations: of several callers at one instant, the names
// and the content decide which comes first, and not the scheduler.
func TakeTurn(ctx context.Context, name fmt.Stringer, content io.Reader) {
	if turn, ok := ctx.Value(turnKey{}).(func(context.Context, string, io.Reader)); ok {
		turn(ctx, name.String(), content)
	}
}
