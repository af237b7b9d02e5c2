package main

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

var functions = durable.NewRegistry(
	durable.Orchestrator("Hello", Hello),
	durable.Orchestrator("Empty", Empty),
	durable.Orchestrator("Sequence", Sequence),
	durable.Orchestrator("FanOut", FanOut),
	durable.Orchestrator("HelloSteps", HelloSteps),
	durable.Orchestrator("StepSequence", StepSequence),
	durable.Orchestrator("StepFanOut", StepFanOut),
	durable.Orchestrator("Events", Events),
	durable.Orchestrator("Wait", Wait),
	durable.Activity("SayHello", SayHello),
	durable.Activity("Respond", Respond),
)

func init() { functions.Add(entityFunctions...) }

// SayHello is the activity of all workloads.
func SayHello(_ context.Context, name string) (string, error) { return "Hello " + name + "!", nil }

// Respond is SayHello and records the time.
func Respond(ctx context.Context, name string) (string, error) {
	responded.record()
	return SayHello(ctx, name)
}

// responded records the times of Respond.
var responded moments

// Hello calls three activities in sequence.
func Hello(ctx *durable.Context, _ durable.Void) ([]string, error) {
	var out []string
	for _, city := range []string{"Tokyo", "Seattle", "London"} {
		greeting, err := durable.CallActivity(ctx, SayHello, city).Await()
		if err != nil {
			return nil, err
		}
		out = append(out, greeting)
	}
	return out, nil
}

// Empty does nothing.
func Empty(*durable.Context, durable.Void) (durable.Void, error) { return durable.Void{}, nil }

// Sequence calls n activities in sequence.
func Sequence(ctx *durable.Context, n int) (int, error) {
	for range n {
		if _, err := durable.CallActivity(ctx, SayHello, "you").Await(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// FanOut calls n activities concurrently.
func FanOut(ctx *durable.Context, n int) (int, error) {
	tasks := make([]*durable.Task[string], n)
	for i := range tasks {
		tasks[i] = durable.CallActivity(ctx, Respond, "you")
	}
	all, err := durable.AwaitAll(ctx, tasks...)
	return len(all), err
}

// greetStep runs SayHello as a step.
func greetStep(ctx *durable.Context, name string) *durable.Task[string] {
	return durable.Step(ctx, "SayHello", func(ctx context.Context) (string, error) { return SayHello(ctx, name) })
}

// HelloSteps runs three steps in sequence.
func HelloSteps(ctx *durable.Context, _ durable.Void) ([]string, error) {
	var out []string
	for _, city := range []string{"Tokyo", "Seattle", "London"} {
		greeting, err := greetStep(ctx, city).Await()
		if err != nil {
			return nil, err
		}
		out = append(out, greeting)
	}
	return out, nil
}

// StepSequence runs n steps in sequence.
func StepSequence(ctx *durable.Context, n int) (int, error) {
	for range n {
		if _, err := greetStep(ctx, "you").Await(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// StepFanOut runs n steps concurrently.
func StepFanOut(ctx *durable.Context, n int) (int, error) {
	tasks := make([]*durable.Task[string], n)
	for i := range tasks {
		tasks[i] = greetStep(ctx, "you")
	}
	all, err := durable.AwaitAll(ctx, tasks...)
	return len(all), err
}

// Ping is the event that Events waits for.
const Ping = durable.Event[int]("Ping")

// Events waits for n events.
func Events(ctx *durable.Context, n int) (sum int, err error) {
	for range n {
		v, err := Ping.Wait(ctx).Await()
		if err != nil {
			return sum, err
		}
		sum += v
	}
	return sum, nil
}

// waiters records the times at which orchestrations started to wait.
var waiters moments

// Wait waits for an event without a timeout. A timer would be a message that stays in a queue, and Azurite
// searches all messages for each request.
func Wait(ctx *durable.Context, _ durable.Void) (int, error) {
	if !ctx.IsReplaying() {
		waiters.record()
	}
	return Ping.Wait(ctx).Await()
}
