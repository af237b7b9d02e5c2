package shapes

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

type alias = durable.Context

type service struct{}

func (s *service) method(ctx *durable.Context, in int) (time.Time, error) {
	return time.Now(), nil // want `time.Now reads`
}

func generic[T any](ctx *durable.Context, in T) (time.Time, error) {
	return time.Now(), nil // want `time.Now reads`
}

func aliased(ctx *alias, in int) (time.Time, error) {
	return time.Now(), nil // want `time.Now reads`
}

func branch(ctx *durable.Context) { time.Now() } // want `time.Now reads`

var variable = func(ctx *durable.Context, in int) (time.Time, error) {
	return time.Now(), nil // want `time.Now reads`
}

var table = map[string]func(*durable.Context, int) (time.Time, error){
	"a": func(ctx *durable.Context, in int) (time.Time, error) {
		return time.Now(), nil // want `time.Now reads`
	},
}

func factory(zone string) func(*durable.Context, int) (time.Time, error) {
	return func(ctx *durable.Context, in int) (time.Time, error) {
		return time.Now(), nil // want `time.Now reads`
	}
}

func nested(ctx *durable.Context, in int) (time.Time, error) {
	run := func(ctx *durable.Context) { time.Now() } // want `time.Now reads`
	run(ctx)
	return genericHelper[int](in), nil // want `time.Now, reached via genericHelper, reads`
}

func genericHelper[T any](v T) time.Time { return time.Now() }

type box[T any] struct{ v T }

func (b box[T]) stamp() time.Time { return time.Now() }

func genericMethod(ctx *durable.Context, in box[int]) (time.Time, error) {
	return in.stamp(), nil // want `time.Now, reached via box.stamp, reads`
}

type embedding struct{ box[string] }

func promoted(ctx *durable.Context, in embedding) (time.Time, error) {
	return in.stamp(), nil // want `time.Now, reached via box.stamp, reads`
}

type clock interface{ now() time.Time }

type real struct{}

func (real) now() time.Time { return time.Now() }

func throughInterface(ctx *durable.Context, c clock) (time.Time, error) {
	return c.now(), nil // what an interface stands for is not known
}

// None of these is an orchestrator.

func activity(ctx context.Context, in int) (time.Time, error) { return time.Now(), nil }

func plain(in int) time.Time { return time.Now() }

func second(in int, ctx *durable.Context) time.Time { return time.Now() }

func byValue(ctx durable.Context) time.Time { return time.Now() }

func starter(c *durable.Client) error {
	_, err := durable.Start(context.Background(), c, nested, int(time.Now().Unix()))
	return err
}

// But what an orchestrator calls counts, whatever its parameters are.
func callsSecond(ctx *durable.Context, in int) (time.Time, error) {
	return second(in, ctx), nil // want `time.Now, reached via second, reads`
}
