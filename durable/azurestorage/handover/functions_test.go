package handover_test

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// functions are Go implementations of the functions in the recordings.
var functions = []*durable.Registration{
	durable.Activity("Hello", Hello), durable.Activity("Boom", Boom),
	durable.Orchestrator("HelloSeq", HelloSeq), durable.Orchestrator("One", One),
	durable.Orchestrator("Fails", Fails), durable.Orchestrator("FailRetry", FailRetry),
	durable.Orchestrator("Parent", Parent), durable.Orchestrator("Child", Child),
	durable.Orchestrator("ParentOfFail", ParentOfFail), durable.Orchestrator("Timer1", Timer1),
	durable.Orchestrator("Loop", Loop), durable.Orchestrator("LoopFast", LoopFast),
	durable.Orchestrator("WaitEv", WaitEv), durable.Orchestrator("Sender", Sender),
	durable.Orchestrator("BigOut", BigOut), durable.Orchestrator("Ent", Ent), counters,
}

const greet = durable.Event[string]("greet")

func Hello(_ context.Context, name string) (string, error) { return "Hello " + name + "!", nil }

func Boom(_ context.Context, name string) (string, error) { return "", errors.New("kaboom " + name) }

func HelloSeq(ctx *durable.Context, _ any) ([]string, error) {
	var greetings []string
	for _, city := range []string{"Tokyo", "Seattle", "London"} {
		g, err := durable.CallActivity(ctx, Hello, city).Await()
		if err != nil {
			return nil, err
		}
		greetings = append(greetings, g)
	}
	return greetings, nil
}

func One(ctx *durable.Context, in string) (string, error) {
	return durable.CallActivity(ctx, Hello, in).Await()
}

func Fails(ctx *durable.Context, in string) (string, error) {
	return durable.CallActivity(ctx, Boom, in).Await()
}

func FailRetry(ctx *durable.Context, in string) (string, error) {
	return durable.CallActivity(ctx, Boom, in, durable.RetryPolicy{MaxAttempts: 2, FirstInterval: time.Second}).Await()
}

func Parent(ctx *durable.Context, in string) (string, error) {
	r, err := durable.CallSubOrchestrator(ctx, Child, in).Await()
	return "parent:" + r, err
}

func Child(_ *durable.Context, in string) (string, error) { return "child:" + in, nil }

func ParentOfFail(ctx *durable.Context, in string) (string, error) {
	return durable.CallSubOrchestrator(ctx, Fails, in, ctx.InstanceID()+"-child").Await()
}

func Timer1(ctx *durable.Context, _ string) (string, error) {
	ctx.Sleep(2 * time.Second)
	return "timer done", nil
}

func Loop(ctx *durable.Context, n int) (string, error) {
	if _, err := durable.CallActivity(ctx, Hello, "n"+string(rune('0'+n))).Await(); err != nil {
		return "", err
	}
	if n < 2 {
		return durable.ContinueAsNew(ctx, Loop, n+1)
	}
	return "looped", nil
}

func LoopFast(ctx *durable.Context, n int) (string, error) {
	if n < 2 {
		return durable.ContinueAsNew(ctx, LoopFast, n+1)
	}
	return "fast", nil
}

func WaitEv(ctx *durable.Context, _ string) (string, error) {
	v, err := greet.Wait(ctx).Await()
	return "ev:greet=" + v, err
}

func Sender(ctx *durable.Context, to string) (string, error) {
	return "sent", greet.RaiseFrom(ctx, durable.InstanceID(to), "yo")
}

func BigOut(_ *durable.Context, n int) (string, error) { return strings.Repeat("z", n), nil }
