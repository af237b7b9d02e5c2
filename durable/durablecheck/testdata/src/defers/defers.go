package defers

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func release(ctx context.Context, id string) (durable.Void, error) { return durable.Void{}, nil }

func direct(ctx *durable.Context, id string) (string, error) {
	defer durable.CallActivity(ctx, release, id).Await() // want `^durable.Task.Await runs in a defer, which also runs when the instance is unloaded from memory, where durable calls are impossible; compensate in plain code after the error$`
	defer ctx.Sleep(1)                                   // want `durable.Context.Sleep runs in a defer`
	defer func() {
		if recover() != nil {
			durable.CallActivity(ctx, release, id).Await() // want `durable.CallActivity runs in a defer`
		}
	}()
	return id, nil
}

func compensate(ctx *durable.Context, id string) error {
	_, err := durable.CallActivity(ctx, release, id).Await()
	return err
}

func through(ctx *durable.Context, id string) (string, error) {
	defer compensate(ctx, id) // want `durable.CallActivity, reached via compensate, runs in a defer`
	undo := func() { compensate(ctx, id) }
	defer undo() // want `durable.CallActivity, reached via compensate, runs in a defer`
	wrap := func(f func()) { f() }
	defer wrap(func() { compensate(ctx, id) }) // want `durable.CallActivity, reached via compensate, runs in a defer`
	return id, nil
}

func unknown(ctx *durable.Context, step func(*durable.Context) error) (string, error) {
	defer step(ctx) // want `step runs in a defer`
	return "", nil
}

type saga struct {
	ctx  *durable.Context
	undo []func()
}

func (s *saga) run() {
	defer func() { s.ctx.SetCustomStatus("done") }()
}

func inHelper(ctx *durable.Context, id string) (string, error) {
	(&saga{ctx: ctx}).run() // want `durable.Context.SetCustomStatus, reached via saga.run, runs in a defer`
	return id, nil
}

func right(ctx *durable.Context, id string) (out string, err error) {
	defer func() { ctx.Logger().Info("left", "at", ctx.Now()) }()
	defer record(durable.CallActivity(ctx, release, id).Done())
	s := &saga{ctx: ctx}
	s.undo = append(s.undo, func() { compensate(ctx, id) })
	if _, err := durable.CallActivity(ctx, release, id).Await(); err != nil {
		for _, u := range s.undo {
			u()
		}
		return "", compensate(ctx, id)
	}
	return id, nil
}

func record(bool) {}
