package matrix_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// app is a release of the app whose instances the matrix uses. Release 1 starts the instances, release 2 is a
// wrong deployment, and release 3 corrects it.
type app struct {
	release int
	ended   <-chan struct{} // closed at the end of the test
}

const (
	first = 1 + iota
	wrong
	corrected
)

const (
	proceed = durable.Event[string]("Proceed") // each orchestrator awaits it last
	next    = durable.Event[string]("Next")
)

// far is the delay of timers that are due after the verb, and after the copy of a hub.
const far = 20 * time.Minute

// counter is an entity.
type counter struct{ N int }

func (c *counter) Add(_ *durable.EntityContext, n int) (int, error) {
	c.N += n
	return c.N, nil
}

// open is an operation that takes until the corrected release.
func (a *app) open(c *counter, ctx *durable.EntityContext, _ durable.Void) (int, error) {
	if a.release < corrected {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return c.Add(ctx, 1)
}

// last awaits Proceed and returns the output of an orchestrator: its input, what it did, and the payload.
func last(ctx *durable.Context, in string, did any) (string, error) {
	payload, err := proceed.Wait(ctx).Await()
	return fmt.Sprintf("%s: %v, %s", in, did, payload), err
}

// Event only awaits the event.
func (a *app) Event(ctx *durable.Context, in string) (string, error) { return last(ctx, in, "event") }

// Timer sleeps for the duration in its input.
func (a *app) Timer(ctx *durable.Context, in string) (string, error) {
	d, err := time.ParseDuration(in)
	if err != nil {
		return "", err
	}
	due := ctx.Now().Add(d)
	ctx.Sleep(d)
	if ctx.Now().Before(due) {
		return "early", nil
	}
	return last(ctx, in, "timer")
}

// Activity calls an activity that takes until the corrected release.
func (a *app) Activity(ctx *durable.Context, in string) (string, error) {
	out, err := durable.CallActivity(ctx, a.Work, in).Await()
	if err != nil {
		return "", err
	}
	return last(ctx, in, out)
}

func (a *app) Work(ctx context.Context, _ string) (string, error) {
	if a.release < corrected {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return "worked", nil
}

// Step runs a step that takes until the corrected release.
func (a *app) Step(ctx *durable.Context, in string) (string, error) {
	out, err := durable.Step(ctx, "step", func(ctx context.Context) (string, error) { return a.Work(ctx, in) }).Await()
	if err != nil {
		return "", err
	}
	return last(ctx, in, out)
}

// Retry calls an activity whose second attempt succeeds.
func (a *app) Retry(ctx *durable.Context, in string) (string, error) {
	out, err := durable.CallActivity(ctx, a.FailOnce, in, durable.RetryPolicy{MaxAttempts: 2, FirstInterval: far}).Await()
	if err != nil {
		return "", err
	}
	return last(ctx, in, out)
}

func (a *app) FailOnce(ctx context.Context, _ string) (string, error) {
	if info, _ := durable.ActivityInfoFrom(ctx); info.TaskID == 0 {
		return "", errors.New("first attempt")
	}
	return "second attempt", nil
}

// Child calls a child that awaits the event too.
func (a *app) Child(ctx *durable.Context, in string) (string, error) {
	out, err := durable.CallSubOrchestrator(ctx, a.Event, "of child", ctx.InstanceID()+".child").Await()
	if err != nil {
		return "", err
	}
	return last(ctx, in, out)
}

// Lock locks the entity whose key is its input.
func (a *app) Lock(ctx *durable.Context, in string) (string, error) {
	defer durable.LockEntities(ctx, durable.EntityKey[counter](in))()
	return last(ctx, in, "locked")
}

// Entity calls an operation that takes until the corrected release.
func (a *app) Entity(ctx *durable.Context, in string) (string, error) {
	n, err := durable.EntityOperation[durable.Void, int]("open").Call(ctx, durable.EntityKey[counter](ctx.InstanceID()), durable.Void{}).Await()
	if err != nil {
		return "", err
	}
	return last(ctx, in, n)
}

// Continue sends a delayed signal, starts a timer and continues as new.
func (a *app) Continue(ctx *durable.Context, in string) (string, error) {
	if in == "again" {
		return last(ctx, in, "continued")
	}
	durable.SignalFrom(ctx, durable.EntityKey[counter](ctx.InstanceID()), (*counter).Add, 1, durable.SignalAfter(far))
	ctx.Timer(far)
	if _, err := next.Wait(ctx).Await(); err != nil {
		return "", err
	}
	return durable.ContinueAsNew(ctx, a.Continue, "again")
}

// Complete completes without a result.
func (a *app) Complete(*durable.Context, string) (*string, error) { return nil, nil }

// Late completes without a result after an event.
func (a *app) Late(ctx *durable.Context, _ string) (*string, error) {
	_, err := next.Wait(ctx).Await()
	return nil, err
}

// Fail starts a child that completes without a result, and calls an activity that fails in release 1.
func (a *app) Fail(ctx *durable.Context, in string) (string, error) {
	child := durable.CallSubOrchestrator(ctx, a.Late, in, ctx.InstanceID()+".null")
	out, err := durable.CallActivity(ctx, a.FailAtFirst, in).Await()
	if err != nil {
		return "", err
	}
	if _, err := child.Await(); err != nil {
		return "", err
	}
	return last(ctx, in, out)
}

func (a *app) FailAtFirst(context.Context, string) (string, error) {
	if a.release == first {
		return "", errors.New("release 1")
	}
	return "repeated", nil
}

// FailChild calls a child that fails in release 1.
func (a *app) FailChild(ctx *durable.Context, in string) (string, error) {
	out, err := durable.CallSubOrchestrator(ctx, a.Fail, "of child", ctx.InstanceID()+".child").Await()
	if err != nil {
		return "", err
	}
	return last(ctx, in, out)
}

// Change awaits two events. Release 2 has other code.
func (a *app) Change(ctx *durable.Context, in string) (string, error) {
	if a.release == wrong {
		ctx.Sleep(far)
	}
	did, err := durable.CallActivity(ctx, a.Echo, in).Await()
	if err != nil {
		return "", err
	}
	if _, err := next.Wait(ctx).Await(); err != nil {
		return "", err
	}
	return last(ctx, in, did)
}

func (a *app) Echo(_ context.Context, in string) (string, error) { return in, nil }

func (a *app) New(_ context.Context, in string) (string, error) { return in, nil }

// Next awaits two events.
func (a *app) Next(ctx *durable.Context, in string) (string, error) {
	did, err := next.Wait(ctx).Await()
	if err != nil {
		return "", err
	}
	return last(ctx, in, did)
}

// Block awaits two events. In release 2 it blocks after the first.
func (a *app) Block(ctx *durable.Context, in string) (string, error) {
	did, err := next.Wait(ctx).Await()
	if err != nil {
		return "", err
	}
	if a.release == wrong {
		<-a.ended
	}
	return last(ctx, in, did)
}

// Lost calls an activity that only the corrected release has.
func (a *app) Lost(ctx *durable.Context, in string) (string, error) {
	did, err := durable.ActivityName[string, string]("New").Call(ctx, in).Await()
	if err != nil {
		return "", err
	}
	return last(ctx, in, did)
}

func (a *app) registry() *durable.Registry {
	r := durable.NewRegistry(
		durable.Orchestrator("Event", a.Event), durable.Orchestrator("Timer", a.Timer), durable.Orchestrator("Activity", a.Activity),
		durable.Orchestrator("Step", a.Step), durable.Orchestrator("Retry", a.Retry), durable.Orchestrator("Child", a.Child),
		durable.Orchestrator("Lock", a.Lock), durable.Orchestrator("Entity", a.Entity), durable.Orchestrator("Continue", a.Continue),
		durable.Orchestrator("Complete", a.Complete), durable.Orchestrator("Late", a.Late),
		durable.Orchestrator("Fail", a.Fail), durable.Orchestrator("FailChild", a.FailChild),
		durable.Orchestrator("Change", a.Change), durable.Orchestrator("Block", a.Block), durable.Orchestrator("Lost", a.Lost),
		durable.Activity("Work", a.Work), durable.Activity("FailOnce", a.FailOnce), durable.Activity("FailAtFirst", a.FailAtFirst),
		durable.Activity("Echo", a.Echo),
		durable.Entity("Counter", durable.Op("add", (*counter).Add), durable.Op("open", a.open)),
	)
	if a.release != wrong {
		r.Add(durable.Orchestrator("Next", a.Next))
	}
	if a.release == corrected {
		r.Add(durable.Activity("New", a.New))
	}
	return r
}

func (a *app) config() durable.Config {
	cfg := durable.Config{
		Version: "1.0", HoldNonDeterministic: true, UnknownFunctionTimeout: -1, Logger: slog.New(slog.DiscardHandler),
	}
	if a.release == corrected {
		cfg.Version = "2.0"
	}
	return cfg
}
