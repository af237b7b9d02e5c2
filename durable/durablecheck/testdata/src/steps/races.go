package steps

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func use(c context.Context, v ...any) (int, error) { return len(v), nil }

func races(ctx *durable.Context, in total) (int, error) {
	limit, other := 1, 1
	limit = 2
	first := durable.Step(ctx, "first", func(c context.Context) (int, error) { return use(c, limit, in) })
	limit = 3        // want `^limit is changed while a step that uses it may run, which is a data race; change it after the Await of the step, or give the step a copy$`
	in.sum++         // want `in.sum is changed while a step that uses it may run`
	in.add(1)        // want `in is changed while`
	limit, n := 4, 5 // want `limit is changed while`
	other = n
	if n > 3 {
		limit = 5 // want `limit is changed while`
	}
	first.AwaitTimeout(time.Second)
	limit = 6 // want `limit is changed while`
	durable.AwaitAny(ctx, first)
	limit = 7 // want `limit is changed while`
	first.Await()
	limit = 8
	durable.Step(ctx, "at once", func(c context.Context) (int, error) { return use(c, limit, other) }).Await()
	limit = 9
	var late = durable.Step(ctx, "late", func(c context.Context) (int, error) { return use(c, limit) })
	limit = 10 // want `limit is changed while`
	durable.AwaitAll(ctx, late)
	limit = 11
	durable.AwaitAll(ctx, durable.Step(ctx, "all", func(c context.Context) (int, error) { return use(c, limit) }))
	limit = 12
	durable.Step(ctx, "never awaited", func(c context.Context) (int, error) { return use(c, other) })
	other = 13 // want `other is changed while`
	return other, nil
}

func racesInLoops(ctx *durable.Context, items []string) (int, error) {
	total, awaited, seen := 0, 0, 0
	var tasks []*durable.Task[int]
	for i, item := range items {
		total += i // want `total is changed while a step that uses it may run`
		own := i
		own++
		tasks = append(tasks, durable.Step(ctx, "item", func(c context.Context) (int, error) { return use(c, item, total, own, seen) }))
	}
	for _, task := range tasks {
		seen++ // want `seen is changed while`
		n, _ := task.Await()
		seen-- // want `seen is changed while`
		awaited += n
	}
	seen, total = 1, 2
	for i := 0; i < 3; i++ {
		awaited++
		task := durable.Step(ctx, "one by one", func(c context.Context) (int, error) { return use(c, awaited, i) })
		n, err := task.Await()
		if err != nil {
			return 0, err
		}
		awaited += n
	}
	for task := range durable.AsCompleted(ctx, tasks...) {
		task.Await()
		total++
	}
	return awaited, nil
}

func racesOfVariables(ctx *durable.Context, name string) (int, error) {
	step := func(c context.Context) (int, error) { return use(c, name) }
	task := durable.Step(ctx, "variable", step)
	name = "b" // want `name is changed while`
	if name == "b" {
		return task.Await()
	}
	name = "c" // not found: the first Await is on another path
	poll := durable.Poll(ctx, "poll", durable.PollPolicy{}, func(c context.Context, n int) (int, bool, error) { return len(name), true, nil })
	name = "d" // want `name is changed while`
	return poll.Await()
}
