package main

import (
	"context"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// growthWorkloads measure the cost per unit of some work at 1, 10 and 100 times the amount. The cost should
// be constant.
var growthWorkloads = []workload{
	grows("an activity of a fan-out", [3]int{160, 1600, 16_000}, eachOf(FanOut)),
	grows("an activity in a row", [3]int{100, 1000, 10_000}, eachOf(Sequence)),
	grows("a purged instance", [3]int{100, 1000, 10_000}, purged),
	grows("a hello beside instances that have ended", [3]int{1000, 10_000, 100_000}, withOthers(ends(Empty), Hello)),
	grows("a hello beside instances that wait", [3]int{100, 1000, 10_000}, withOthers(begins(Wait), Hello)),
	grows("a call of an entity that others have called", [3]int{100, 1000, 10_000}, withOthers(ends(Call), Call)),
}

// orchestrator is an orchestrator without input.
type orchestrator[O any] func(*durable.Context, durable.Void) (O, error)

func begins[O any](o orchestrator[O]) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error {
		_, err := durable.Start(ctx, r.client, o, durable.Void{})
		return err
	}
}

func ends[O any](o orchestrator[O]) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error {
		i, err := durable.Start(ctx, r.client, o, durable.Void{})
		if err == nil {
			_, err = i.Wait(ctx)
		}
		return err
	}
}

// cost measures the time per unit for n units. more is the number of units added since the previous
// measurement on the same hub.
type cost func(ctx context.Context, r *rig, n, more int) (time.Duration, error)

func grows(name string, sizes [3]int, each cost) workload {
	w := workload{name: name, only: []string{"embedded", "relaxed"}, run: func(ctx context.Context, r *rig) (all []float64, err error) {
		before := 0
		for _, n := range sizes {
			took, err := each(ctx, r, n, n-before)
			if err != nil {
				return nil, err
			}
			all, before = append(all, float64(took)/float64(time.Microsecond)), n
		}
		return all, nil
	}}
	for _, n := range sizes {
		w.figures = append(w.figures, figure{name: fmt.Sprintf("of %d", n), unit: "µs", less: true})
	}
	return w
}

// eachOf measures the time of each of n operations of one instance.
func eachOf(orchestrator func(*durable.Context, int) (int, error)) cost {
	return func(ctx context.Context, r *rig, n, _ int) (time.Duration, error) {
		began := time.Now()
		_, err := timed(ctx, r, orchestrator, n)
		return time.Since(began) / time.Duration(n), err
	}
}

// withOthers measures the time of an instance while the hub contains other instances. prepare creates one of
// them.
func withOthers[O any](prepare func(context.Context, *rig) error, o orchestrator[O]) cost {
	return func(ctx context.Context, r *rig, _, more int) (time.Duration, error) {
		if err := inParallel(more, 64, func(int) error { return prepare(ctx, r) }); err != nil {
			return 0, err
		}
		const n = 2000
		rate, err := perSecond(ctx, r, o, n, 16)
		return time.Duration(float64(time.Second) / rate[0]), err
	}
}

// purged measures the time to purge each of n ended instances.
func purged(ctx context.Context, r *rig, n, _ int) (time.Duration, error) {
	if err := inParallel(n, 64, func(int) error { return ends(Empty)(ctx, r) }); err != nil {
		return 0, err
	}
	began := time.Now()
	result, err := r.client.PurgeMany(ctx, durable.PurgeFilter{})
	if err == nil && result.Instances < n {
		err = fmt.Errorf("%d instances were purged, want %d", result.Instances, n)
	}
	return time.Since(began) / time.Duration(n), err
}
