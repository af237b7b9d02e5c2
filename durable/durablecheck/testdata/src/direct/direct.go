package direct

import (
	"context"
	"errors"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func Charge(ctx context.Context, cents int) (string, error) { return "", ctx.Err() }

type Mailer struct{}

func (m *Mailer) Send(ctx context.Context, to string) (durable.Void, error) {
	return durable.Void{}, nil
}

type sender interface {
	Send(ctx context.Context, to string) (durable.Void, error)
}

func publish(ctx context.Context, topic string, more ...string) error { return nil }

// context.TODO stands for any context here, as it is found in code that is checked.
func activities(ctx *durable.Context, s sender) (string, error) {
	Charge(context.Background(), 5)                // want `^Charge is called directly, which the history does not record and each replay repeats; use durable.CallActivity\(ctx, Charge, …\)$`
	(&Mailer{}).Send(context.TODO(), "a")          // want `\(&Mailer\{\}\).Send is called directly`
	s.Send(context.Background(), "a")              // want `s.Send is called directly`
	publish(context.Background(), "a")             // want `publish is called with a context.Context, so it is probably work that the history does not record .* do it in an activity`
	func(context.Context) {}(context.Background()) // want `a function literal with a context.Context is called with`
	f := Charge
	return f(context.Background(), 1) // want `f is called directly`
}

func helper() error { return publish(context.Background(), "a") }

func throughHelper(ctx *durable.Context, in int) (int, error) {
	return in, helper() // want `publish, reached via helper, is called with a context.Context`
}

func outside(ctx *durable.Context, c *durable.Client) (string, error) {
	durable.Start(context.Background(), c, throughHelper, 1) // want `^durable.Start talks to the task hub directly, which the history does not record and each replay repeats; use a function that takes the orchestrator's \*durable.Context, such as durable.CallSubOrchestrator, or do it in an activity$`
	c.Terminate(context.Background(), "id", "")              // want `durable.Client.Terminate talks to the task hub`
	approval.Raise(context.Background(), c, "id", true)      // want `durable.Event.Raise talks`
	return "", nil
}

func deadlines(ctx *durable.Context, outer context.Context) (string, error) {
	c, cancel := context.WithTimeout(context.Background(), time.Second) // want `context.WithTimeout waits on a context.Context, .* use ctx.Timer, AwaitTimeout or an event`
	defer cancel()
	<-c.Done()             // want `^context.Context.Done waits`
	return "", outer.Err() // want `context.Context.Err waits`
}

func results(ctx *durable.Context) (context.Context, error) { // want `a result of type context.Context waits on a context.Context`
	return context.Background(), nil
}

const (
	approval = durable.Event[bool]("Approval")
	ship     = durable.ActivityName[string, int]("Ship")
)

func child(ctx *durable.Context, in int) (string, error) { return "", nil }

func right(ctx *durable.Context, m *Mailer) (string, error) {
	if _, err := durable.CallActivity(ctx, Charge, 1, durable.RetryPolicy{MaxAttempts: 3}).Await(); err != nil {
		return "", err
	}
	durable.CallActivity(ctx, m.Send, "a").Await()
	durable.CallActivity(ctx, (*Mailer)(nil).Send, "a").Await()
	durable.CallActivity(ctx, func(c context.Context, n int) (int, error) { <-c.Done(); return n, nil }, 1)
	ship.Call(ctx, "a")
	ok, err := approval.Wait(ctx).AwaitTimeout(time.Hour)
	if errors.Is(err, context.DeadlineExceeded) || !ok {
		return "", err
	}
	for t := range durable.AsCompleted(ctx, durable.CallSubOrchestrator(ctx, child, 1)) {
		t.Await()
	}
	if _, err := child(ctx, 1); err != nil {
		return "", err
	}
	return durable.ContinueAsNew(ctx, right, m)
}
