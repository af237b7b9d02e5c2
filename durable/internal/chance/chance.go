// Package chance provides random numbers for retry delays, so that processes that fail at the
// same time do not retry at the same time. A simulation puts its own source into a context to
// be repeatable.
package chance

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
)

// Source returns a number in [0, 1). purpose names what the number is for. A source can return
// a separate sequence for each purpose, which does not depend on the order of goroutines.
type Source func(purpose string) float64

type (
	key     struct{}
	turnKey struct{}
)

// With returns a context in which [Float64] uses s.
func With(ctx context.Context, s Source) context.Context {
	return context.WithValue(ctx, key{}, s)
}

// Float64 returns a number in [0, 1) from the context's source. Without a source, the number is
// random.
func Float64(ctx context.Context, purpose string) float64 {
	if s, ok := ctx.Value(key{}).(Source); ok {
		return s(purpose)
	}
	return rand.Float64()
}

// WithTurns returns a context in which [AwaitTurn] calls turn.
func WithTurns(ctx context.Context, turn func(ctx context.Context, name string, content io.Reader)) context.Context {
	return context.WithValue(ctx, turnKey{}, turn)
}

// AwaitTurn orders callers in simulations. Several callers at the same time proceed in an order
// that depends on name and content, not on the scheduler. Without [WithTurns] it returns
// immediately.
func AwaitTurn(ctx context.Context, name fmt.Stringer, content io.Reader) {
	if turn, ok := ctx.Value(turnKey{}).(func(context.Context, string, io.Reader)); ok {
		turn(ctx, name.String(), content)
	}
}
