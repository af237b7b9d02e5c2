package ignored

import (
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

var level int

func setLevel(n int) {
	level = n //durablecheck:ignore set once, before the worker starts
}

func onTheLine(ctx *durable.Context, in int) (time.Time, error) {
	fmt.Println("debug") //durablecheck:ignore wanted on every replay, to watch them
	//durablecheck:ignore only logged
	at := time.Now()
	ctx.Logger().Info("replayed", "at", at)

	//durablecheck:ignore of the next line only
	_ = 1
	_ = time.Now() // want `time.Now reads`
	_ = stamp()
	_ = level
	return tick(), nil //durablecheck:ignore the caller does not look at it
}

// ofFunction measures itself.
//
//durablecheck:ignore measures the replay itself
func ofFunction(ctx *durable.Context, in int) (time.Duration, error) {
	start := time.Now()
	return time.Since(start), nil
}

//durablecheck:ignore the caller logs it only
func stamp() time.Time { return time.Now() }

func tick() time.Time { return time.Now() }

// want +2 `//durablecheck:ignore without a reason has no effect; add the reason why the code is safe on replay`
//
//durablecheck:ignore
func withoutReason(ctx *durable.Context, in int) (time.Time, error) {
	return time.Now(), nil //durablecheck:ignore // want `has no effect` `time.Now reads`
}

//durablecheck:ignored is another word
func otherWord(ctx *durable.Context, in int) (time.Time, error) {
	return time.Now(), nil // want `time.Now reads`
}
