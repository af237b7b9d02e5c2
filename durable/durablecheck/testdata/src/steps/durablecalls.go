package steps

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func charge(ctx context.Context, id string) (string, error) { return id, nil }

func durableCalls(ctx *durable.Context, id string) (string, error) {
	return durable.Step(ctx, "one", func(c context.Context) (string, error) {
		ctx.Sleep(time.Second)                                                                       // want `^durable.Context.Sleep runs inside a step, where durable calls are impossible; call it in the orchestrator, before or after the step$`
		durable.CallActivity(ctx, charge, id)                                                        // want `durable.CallActivity runs inside a step`
		task := ctx.Timer(1)                                                                         // want `durable.Context.Timer runs inside a step`
		_, _ = task.Await()                                                                          // want `durable.Task.Await runs inside a step`
		helper(ctx)                                                                                  // want `durable.Context.Sleep, reached via helper, runs inside a step` `ctx is the Context of the orchestrator`
		nested := durable.Step(ctx, "two", func(context.Context) (string, error) { return id, nil }) // want `^durable.Step runs inside another step, where durable calls are impossible; start both steps in the orchestrator$`
		_ = nested
		durable.Poll(ctx, "three", durable.PollPolicy{}, poll) // want `durable.Poll runs inside another step`
		_ = ctx.Now()                                          // want `^ctx is the Context of the orchestrator, which a step must not use; use the context.Context of the step, or read the value before the step$`
		ctx.Logger().Info("x")                                 // want `ctx is the Context of the orchestrator`
		other := ctx                                           // want `ctx is the Context of the orchestrator`
		return string(other.InstanceID()), nil                 // want `other is the Context of the orchestrator`
	}).Await()
}

func helper(ctx *durable.Context) { ctx.Sleep(1) }

func poll(ctx context.Context, n int) (string, bool, error) { return "", true, nil }

type order struct {
	ctx *durable.Context
	id  string
	n   int
}

func (o *order) wait(c context.Context) (string, error) { o.ctx.Sleep(1); return "", nil }

func (o *order) pay(c context.Context) (string, error) { return o.deep(c) }

func (o *order) deep(c context.Context) (string, error) { return o.wait(c) }

func (o *order) read(c context.Context) (string, error) { return o.id, nil }

func named(ctx *durable.Context, id string) (string, error) {
	o := &order{ctx: ctx, id: id}
	durable.Step(ctx, "wait", o.wait) // want `durable.Context.Sleep, reached via order.wait, runs inside a step`
	durable.Step(ctx, "pay", o.pay)   // want `durable.Context.Sleep, reached via order.pay → order.deep → order.wait, runs inside a step`
	durable.Step(ctx, "read", o.read)
	local := func(c context.Context) (string, error) {
		ctx.Sleep(1)                           // want `durable.Context.Sleep runs inside a step`
		return string(o.ctx.InstanceID()), nil // want `ctx is the Context`
	}
	durable.Step(ctx, "local", local)
	wait := func() { ctx.Sleep(1) }
	wait()
	durable.Step(ctx, "closure", func(c context.Context) (string, error) {
		wait()                                                                // want `durable.Context.Sleep runs inside a step`
		_, err := o.pay(c)                                                    // want `durable.Context.Sleep, reached via order.pay → order.deep → order.wait, runs inside a step`
		inner := func(c context.Context) error { o.ctx.Sleep(1); return nil } // want `durable.Context.Sleep runs inside a step`
		return "", errors.Join(err, inner(c))
	})
	return durable.Poll(ctx, "poll", durable.PollPolicy{}, func(c context.Context, n int) (string, bool, error) {
		ctx.Sleep(1) // want `durable.Context.Sleep runs inside a step`
		return "", n > 3, nil
	}).Await()
}

// throughHelper starts its step in a function that is not an orchestrator itself.
func throughHelper(ctx *durable.Context, id string) (string, error) {
	return (&order{ctx: ctx}).start() // want `durable.Context.Sleep, reached via order.start, runs inside a step`
}

func (o *order) start() (string, error) {
	return durable.Step(o.ctx, "start", func(c context.Context) (string, error) {
		o.ctx.Sleep(1)
		return "", nil
	}).Await()
}

// ignoredStep has findings that a comment marks as safe.
func ignoredStep(ctx *durable.Context, id string) (string, error) {
	return durable.Step(ctx, "ignored", func(c context.Context) (string, error) {
		_ = ctx.InstanceID() //durablecheck:ignore the ID never changes
		return "", nil
	}).Await()
}

// allowed does in steps what orchestrators must not do.
func allowed(ctx *durable.Context, id string) (string, error) {
	fetch := func() (*http.Response, error) { return http.Get("https://example.com/" + id) }
	retry := func(c context.Context) (string, error) {
		time.Sleep(time.Second)
		_, err := fetch()
		return time.Now().String(), err
	}
	_, err := durable.Step(ctx, "retry", retry).Await()
	if err != nil {
		return "", err
	}
	instance := ctx.InstanceID()
	return durable.Step(ctx, "all", func(c context.Context) (string, error) {
		done := make(chan string, 1)
		go func() { done <- time.Now().String() }()
		select {
		case s := <-done:
			return s + string(instance), nil
		case <-c.Done():
			return charge(c, id)
		}
	}).Await()
}

func onlyInSteps(ctx *durable.Context, id string) (string, error) {
	now := func() string { return ctx.Now().String() } // want `ctx is the Context of the orchestrator`
	wait := func() { ctx.Sleep(time.Second) }          // want `durable.Context.Sleep runs inside a step`
	return durable.Step(ctx, "now", func(c context.Context) (string, error) {
		wait()
		return now(), nil
	}).Await()
}

func notOnlyInSteps(ctx *durable.Context, id string) (string, error) {
	now := func() string { return time.Now().String() } // want `time.Now reads the machine's clock`
	durable.Step(ctx, "now", func(c context.Context) (string, error) { return now(), nil })
	return now(), nil
}
