package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/scattered"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
)

// plant contains functions that fail until it is repaired.
type plant struct {
	repaired atomic.Bool
	attempts atomic.Int32
	steady   atomic.Int32 // runs of the activities that always succeed
}

func (p *plant) fragile(_ context.Context, part string) (string, error) {
	time.Sleep(time.Second) // real time: the worker runs in a bubble; the other activities complete first
	p.attempts.Add(1)
	if !p.repaired.Load() {
		return "", errors.New(part + " is broken")
	}
	return part, nil
}

func (p *plant) sturdy(_ context.Context, part string) (string, error) {
	p.steady.Add(1)
	return part, nil
}

func (p *plant) slow(ctx context.Context, part string) (string, error) {
	time.Sleep(time.Minute) // real time: the worker runs in a bubble
	return p.sturdy(ctx, part)
}

const signal = durable.Event[string]("Signal")

func (p *plant) waits(ctx *durable.Context, _ string) (string, error) {
	return signal.Wait(ctx).Await()
}

// family starts a chain of children. The last one waits for an event.
func (p *plant) family(ctx *durable.Context, generations int) (string, error) {
	if generations == 0 {
		return signal.Wait(ctx).Await()
	}
	return durable.CallSubOrchestrator(ctx, p.family, generations-1, ctx.InstanceID()+"+").Await()
}

func (p *plant) assembles(ctx *durable.Context, part string) (string, error) {
	frame, err := durable.CallActivity(ctx, p.sturdy, "frame").Await()
	if err != nil {
		return "", err
	}
	engine, err := durable.CallActivity(ctx, p.fragile, part).Await()
	return frame + " with " + engine, err
}

func (p *plant) retries(ctx *durable.Context, part string) (string, error) {
	return durable.CallActivity(ctx, p.fragile, part, durable.RetryPolicy{MaxAttempts: 3, FirstInterval: time.Minute}).Await()
}

func (p *plant) catches(ctx *durable.Context, part string) (string, error) {
	if _, err := durable.CallActivity(ctx, p.fragile, part).Await(); err != nil {
		if _, err := durable.CallActivity(ctx, p.sturdy, "alarm").Await(); err != nil {
			return "", err
		}
	}
	return durable.CallActivity(ctx, p.fragile, part).Await()
}

func (p *plant) fansOut(ctx *durable.Context, part string) ([]string, error) {
	tasks := []*durable.Task[string]{
		durable.CallActivity(ctx, p.sturdy, "a"), durable.CallActivity(ctx, p.fragile, part), durable.CallActivity(ctx, p.sturdy, "c"),
	}
	for _, task := range tasks {
		if _, err := task.Await(); err != nil {
			return nil, err // ignores the other tasks
		}
	}
	return durable.AwaitAll(ctx, tasks...)
}

func (p *plant) outruns(ctx *durable.Context, part string) ([]string, error) {
	fast, slow := durable.CallActivity(ctx, p.fragile, part), durable.CallActivity(ctx, p.slow, "slow")
	if _, err := fast.Await(); err != nil {
		return nil, err
	}
	return durable.AwaitAll(ctx, fast, slow)
}

func (p *plant) delegates(ctx *durable.Context, part string) (string, error) {
	one := durable.CallSubOrchestrator(ctx, p.assembles, part, ctx.InstanceID()+"-1")
	two := durable.CallSubOrchestrator(ctx, p.retries, part)
	first, err := one.Await()
	if err != nil {
		return "", err
	}
	second, err := two.Await()
	return first + ", " + second, err
}

func (p *plant) registry() *durable.Registry {
	return durable.NewRegistry(
		durable.Activity("Fragile", p.fragile), durable.Activity("Sturdy", p.sturdy), durable.Activity("Slow", p.slow),
		durable.Orchestrator("Waits", p.waits), durable.Orchestrator("Family", p.family), durable.Orchestrator("Assembles", p.assembles),
		durable.Orchestrator("Retries", p.retries), durable.Orchestrator("Catches", p.catches), durable.Orchestrator("FansOut", p.fansOut),
		durable.Orchestrator("Delegates", p.delegates), durable.Orchestrator("Outruns", p.outruns),
	)
}

// withWorker runs f in a bubble with a hub, a worker and a client, without and with extended
// sessions.
func withWorker(t *testing.T, f func(t *testing.T, p *plant, c *durable.Client)) {
	t.Helper()
	for _, sessions := range []bool{false, true} {
		t.Run(fmt.Sprint("sessions ", sessions), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, p := memhub.New(), new(plant)
				defer run(t, h, p.registry(), durable.Config{ExtendedSessionIdle: sessionIdle(sessions)})()
				f(t, p, durable.NewClient(scattered.Hub{Store: h}, p.registry()))
			})
		})
	}
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func statusNow(t testing.TB, c *durable.Client, id durable.InstanceID) history.RuntimeStatus {
	t.Helper()
	synctest.Wait()
	s, err := c.Status(t.Context(), id, durable.Fetch{})
	if err != nil {
		t.Fatal(err)
	}
	return s.Status
}
