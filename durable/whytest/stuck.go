// Package whytest checks, on any hub, that clients report why instances wait. It is not an internal
// package, because the reported lines exclude internal packages.
package whytest

import (
	"context"
	"errors"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

const event = durable.Event[string]("Signal")

// A safe is an entity whose operation never returns and which an instance locks.
type safe struct{ Opened int }

func (s *safe) Open(ctx *durable.EntityContext, _ durable.Void) (int, error) {
	<-ctx.Done()
	s.Opened++
	return s.Opened, nil
}

// Stuck has orchestrators that each wait for one thing. A trailing comment marks the line that waits.
type Stuck struct{}

// Child waits for an event.
func (s *Stuck) Child(ctx *durable.Context, _ durable.Void) (string, error) {
	return event.Wait(ctx).Await() // child
}

// ForActivity waits for an activity.
func (s *Stuck) ForActivity(ctx *durable.Context, _ durable.Void) (string, error) {
	return durable.CallActivity(ctx, s.Work, "w").Await() // activity
}

// Work runs until its worker stops.
func (s *Stuck) Work(ctx context.Context, _ string) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

// ForRetry waits for the delay before the second attempt of an activity.
func (s *Stuck) ForRetry(ctx *durable.Context, _ durable.Void) (string, error) {
	return durable.CallActivity(ctx, s.Fail, "", durable.RetryPolicy{MaxAttempts: 3, FirstInterval: time.Hour}).Await() // retry
}

// ForLastAttempt waits for the second attempt of an activity.
func (s *Stuck) ForLastAttempt(ctx *durable.Context, _ durable.Void) (string, error) {
	return durable.CallActivity(ctx, s.FailOnce, "", durable.RetryPolicy{MaxAttempts: 2, FirstInterval: 1}).Await() // attempt
}

// FailOnce fails in its first call, and afterwards runs until its worker stops.
func (s *Stuck) FailOnce(ctx context.Context, _ string) (string, error) {
	if info, _ := durable.ActivityInfoFrom(ctx); info.TaskID == 0 {
		return "", errors.New("not yet")
	}
	<-ctx.Done()
	return "", ctx.Err()
}

// Fail fails.
func (s *Stuck) Fail(context.Context, string) (string, error) { return "", errors.New("not yet") }

// ForChild waits for a child.
func (s *Stuck) ForChild(ctx *durable.Context, _ durable.Void) (string, error) {
	return durable.CallSubOrchestrator(ctx, s.Child, durable.Void{}, durable.InstanceID("the-child")).Await() // sub-orchestration
}

// ForTimer waits for a timer.
func (s *Stuck) ForTimer(ctx *durable.Context, _ durable.Void) (string, error) {
	ctx.Sleep(48 * time.Hour) // timer
	return "", nil
}

// ForLongTimer waits for a timer that is split into several shorter ones.
func (s *Stuck) ForLongTimer(ctx *durable.Context, _ durable.Void) (string, error) {
	ctx.Sleep(30 * 24 * time.Hour) // long timer
	return "", nil
}

// ForPause waits for a short timer.
func (s *Stuck) ForPause(ctx *durable.Context, _ durable.Void) (string, error) {
	ctx.Sleep(90 * time.Second) // pause
	return "", nil
}

// ForTwoEvents waits for an event, while a concurrent branch waits for another event.
func (s *Stuck) ForTwoEvents(ctx *durable.Context, _ durable.Void) (string, error) {
	durable.Go(ctx, func() (string, error) { return durable.Event[string]("Other").Wait(ctx).Await() })
	return event.Wait(ctx).Await() // first event
}

// ForEvent waits for an event.
func (s *Stuck) ForEvent(ctx *durable.Context, _ durable.Void) (string, error) {
	return event.Wait(ctx).Await() // event
}

// ForSome waits for two activities and does not wait for its timer.
func (s *Stuck) ForSome(ctx *durable.Context, _ durable.Void) (string, error) {
	_, _ = durable.CallActivity(ctx, s.Fail, "").Await() // is complete
	ctx.Timer(time.Hour)
	one, two := durable.CallActivity(ctx, s.Work, "one"), durable.CallActivity(ctx, s.Work, "two")
	_, err := durable.AwaitAll(ctx, one, two) // some
	return "", err
}

// ForEntity waits for an operation of an entity.
func (s *Stuck) ForEntity(ctx *durable.Context, _ durable.Void) (int, error) {
	return durable.CallEntity(ctx, durable.EntityKey[safe]("s"), (*safe).Open, durable.Void{}).Await() // entity
}

// ForStep waits for a step.
func (s *Stuck) ForStep(ctx *durable.Context, _ durable.Void) (string, error) {
	return durable.Step(ctx, "Run", func(ctx context.Context) (string, error) { return s.Work(ctx, "") }).Await() // step
}

// ForStepAttempt waits for the second attempt of a step.
func (s *Stuck) ForStepAttempt(ctx *durable.Context, _ durable.Void) (string, error) {
	again := func(ctx context.Context) (string, error) {
		if info, _ := durable.ActivityInfoFrom(ctx); info.Attempt == 1 {
			return "", errors.New("not yet")
		}
		return s.Work(ctx, "")
	}
	return durable.Step(ctx, "RunAgain", again, durable.RetryPolicy{MaxAttempts: 2, FirstInterval: 1}).Await() // step attempt
}

// ForPoll waits for the second call of a poll.
func (s *Stuck) ForPoll(ctx *durable.Context, _ durable.Void) (string, error) {
	return durable.Poll(ctx, "Look", durable.PollPolicy{Interval: 2 * time.Hour}, func(context.Context, int) (string, bool, error) { return "", false, nil }).Await() // poll
}

// Holds locks an entity and waits for an event.
func (s *Stuck) Holds(ctx *durable.Context, _ durable.Void) (string, error) {
	defer durable.LockEntities(ctx, durable.EntityKey[safe]("l"))() // lock
	return event.Wait(ctx).Await()                                  // holds
}

// Registry returns a registry with all functions.
func (s *Stuck) Registry() *durable.Registry {
	return durable.NewRegistry(
		durable.Orchestrator("Child", s.Child), durable.Orchestrator("ForActivity", s.ForActivity), durable.Activity("Work", s.Work),
		durable.Orchestrator("ForRetry", s.ForRetry), durable.Activity("Fail", s.Fail),
		durable.Orchestrator("ForLastAttempt", s.ForLastAttempt), durable.Activity("FailOnce", s.FailOnce), durable.Orchestrator("ForChild", s.ForChild),
		durable.Orchestrator("ForTimer", s.ForTimer), durable.Orchestrator("ForEvent", s.ForEvent), durable.Orchestrator("ForSome", s.ForSome),
		durable.Orchestrator("ForLongTimer", s.ForLongTimer), durable.Orchestrator("ForPause", s.ForPause), durable.Orchestrator("ForTwoEvents", s.ForTwoEvents),
		durable.Orchestrator("ForStep", s.ForStep),
		durable.Orchestrator("ForStepAttempt", s.ForStepAttempt), durable.Orchestrator("ForPoll", s.ForPoll), durable.Orchestrator("ForEntity", s.ForEntity), durable.Orchestrator("Holds", s.Holds),
		durable.Entity("Safe", durable.Op("open", (*safe).Open)),
	)
}

// Changed returns a registry in which the code of ForActivity has changed.
func (s *Stuck) Changed() *durable.Registry {
	return durable.NewRegistry(durable.Orchestrator("ForActivity", s.ForChild), durable.Orchestrator("Child", s.Child))
}
