package main

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// HelloSequence shows function chaining: it greets three cities in sequence and returns the
// greetings. It ignores its input.
//
// The orchestrator runs again from the top each time an activity completes. Calls that are
// in its history return their recorded results immediately. An orchestrator must therefore
// be deterministic: it uses no clock, no random numbers and no I/O. Activities do this
// work.
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

// SayHello is an activity: an ordinary function without restrictions. It runs at least
// once. It runs again if the process crashes before its result is stored.
func SayHello(_ context.Context, name string) (string, error) {
	return "Hello " + name + "!", nil
}
