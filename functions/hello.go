package main

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// HelloSequence is function chaining: it greets three cities, one after the
// other, and returns the greetings. It needs no input and ignores what it gets.
//
// An orchestrator runs again from the top each time one of its activities has
// completed; calls that are already in its history return at once with the
// result they had. So it must do the same whenever it is run: no clock, no
// randomness, no I/O. Those belong into activities.
func HelloSequence(ctx *durable.Context, _ any) ([]string, error) {
	var greetings []string
	for _, city := range []string{"Tokyo", "Seattle", "London"} {
		greeting, err := durable.CallActivity(ctx, SayHello, city).Await()
		if err != nil {
			return nil, err
		}
		greetings = append(greetings, greeting)
	}
	return greetings, nil
}

// SayHello is an activity: an ordinary function that may do what it likes. It
// is run at least once, and again if the process dies before its result is
// stored.
func SayHello(_ context.Context, name string) (string, error) {
	return "Hello " + name + "!", nil
}
