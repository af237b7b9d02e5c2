package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// workload is a measurement.
type workload struct {
	name    string
	figures []figure // the returned figures, in order
	run     func(ctx context.Context, r *rig) ([]float64, error)
	only    []string // applicable hubs; empty means all
	runs    int      // maximum number of runs, for slow workloads; 0 means the number of -runs
}

// The published figures. For embedded hubs they belong to the best of five Go engines on two cores with an
// SQLite file, each with its best setting. For Azure Storage they belong to Durable Functions for .NET on a
// machine of this kind, with Azurite in one process.
var workloads = []workload{
	{
		name:    "hello sequences, 64 in flight",
		figures: []figure{{unit: "/s", published: map[string]float64{"embedded": 577, "relaxed": 1086, "azure": 22}}},
		run:     func(ctx context.Context, r *rig) ([]float64, error) { return perSecond(ctx, r, Hello, 2000, 64) },
	},
	{
		name: "one hello sequence",
		figures: []figure{
			{name: "p50", unit: "ms", less: true, published: map[string]float64{"embedded": 1.2, "relaxed": 0.69, "azure": 95}},
			{name: "p95", unit: "ms", less: true, published: map[string]float64{"azure": 140}},
		},
		run: func(ctx context.Context, r *rig) ([]float64, error) { return latency(ctx, r, Hello) },
	},
	{
		name:    "hello sequences of steps, 64 in flight",
		figures: []figure{{unit: "/s"}},
		run:     func(ctx context.Context, r *rig) ([]float64, error) { return perSecond(ctx, r, HelloSteps, 2000, 64) },
	},
	{
		name:    "one hello sequence of steps",
		figures: []figure{{name: "p50", unit: "ms", less: true}, {name: "p95", unit: "ms", less: true}},
		run:     func(ctx context.Context, r *rig) ([]float64, error) { return latency(ctx, r, HelloSteps) },
	},
	{
		name: "500 activities in a row",
		figures: []figure{
			{unit: "ms", less: true, published: map[string]float64{"embedded": 128, "relaxed": 64}},
			{name: "rate", unit: "/s", published: map[string]float64{"azure": 120}, documented: 5}, // with extended sessions; 65 without
		},
		run: func(ctx context.Context, r *rig) ([]float64, error) { return timed(ctx, r, Sequence, 500) },
	},
	{
		name:    "500 steps in a row",
		figures: []figure{{unit: "ms", less: true}, {name: "rate", unit: "/s"}},
		run:     func(ctx context.Context, r *rig) ([]float64, error) { return timed(ctx, r, StepSequence, 500) },
	},
	{
		name: "fan-out of 1,000 activities",
		figures: []figure{
			{unit: "ms", less: true, published: map[string]float64{"embedded": 390, "relaxed": 204}},
			{name: "begun", unit: "/s", published: map[string]float64{"azure": 101}, documented: 100},
			{name: "results taken", unit: "/s", documented: 150},
		},
		run: fanOut,
	},
	{
		name:    "fan-out of 1,000 steps",
		figures: []figure{{unit: "ms", less: true}, {name: "rate", unit: "/s"}},
		run:     func(ctx context.Context, r *rig) ([]float64, error) { return timed(ctx, r, StepFanOut, 1000) },
	},
	{
		name:    "empty orchestrations, 64 in flight",
		figures: []figure{{unit: "/s", published: map[string]float64{"embedded": 1370, "relaxed": 2200, "azure": 68}}},
		run:     func(ctx context.Context, r *rig) ([]float64, error) { return perSecond(ctx, r, Empty, 5000, 64) },
	},
	{
		name:    "500 events to one instance",
		figures: []figure{{unit: "/s", published: map[string]float64{"embedded": 900, "relaxed": 6300, "azure": 300}, documented: 50}},
		run:     func(ctx context.Context, r *rig) ([]float64, error) { return events(ctx, r, 500, 16) },
	},
	{
		name:    "5,000 events to one instance, 64 in flight",
		figures: []figure{{unit: "/s", documented: 50}},
		run:     func(ctx context.Context, r *rig) ([]float64, error) { return events(ctx, r, 5000, 64) },
	},
	{
		name:    "requests of a worker that idles",
		figures: []figure{{unit: "a minute", less: true}},
		run:     idleRequests,
		only:    []string{azureHub},
		runs:    1,
	},
}

// largeWorkloads run last, because they leave so much data that Azurite becomes slower.
var largeWorkloads = []workload{
	{
		name:    "10,000 waiting instances",
		figures: []figure{{name: "heap", unit: "kB each", less: true}, {name: "RSS", unit: "MB", less: true, published: map[string]float64{"azure": 150}}},
		run:     waiting,
		runs:    1,
	},
}

// perSecond completes n instances, inFlight at a time, and returns the number of instances per second.
func perSecond[O any](ctx context.Context, r *rig, orchestrator func(*durable.Context, durable.Void) (O, error), n, inFlight int) ([]float64, error) {
	if r.slow {
		n /= 10
	}
	began := time.Now()
	err := inParallel(n, inFlight, func(int) error {
		i, err := durable.Start(ctx, r.client, orchestrator, durable.Void{})
		if err != nil {
			return err
		}
		_, err = i.Wait(ctx)
		return err
	})
	return []float64{float64(n) / time.Since(began).Seconds()}, err
}

// inParallel calls f n times with a number of workers, and returns the first error.
func inParallel(n, workers int, f func(i int) error) error {
	var group sync.WaitGroup
	var once sync.Once
	var first error
	next := make(chan int)
	for range workers {
		group.Go(func() {
			for i := range next {
				if err := f(i); err != nil {
					once.Do(func() { first = err })
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
	return first
}

// latency completes instances one after another. It returns the 50th and 95th percentiles of their durations.
func latency(ctx context.Context, r *rig, orchestrator func(*durable.Context, durable.Void) ([]string, error)) ([]float64, error) {
	n := 500
	if r.slow {
		n = 50
	}
	took := make([]float64, n)
	for i := range took {
		began := time.Now()
		if err := r.complete(ctx, orchestrator); err != nil {
			return nil, err
		}
		took[i] = milliseconds(time.Since(began))
	}
	slices.Sort(took)
	return []float64{took[n/2], took[n*95/100]}, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// timed completes one instance that performs n operations. It returns the duration in milliseconds and the
// operations per second.
func timed(ctx context.Context, r *rig, orchestrator func(*durable.Context, int) (int, error), n int) ([]float64, error) {
	began := time.Now()
	i, err := durable.Start(ctx, r.client, orchestrator, n)
	if err != nil {
		return nil, err
	}
	got, err := i.Wait(ctx)
	took := time.Since(began)
	if err == nil && got != n {
		err = fmt.Errorf("%d of %d operations completed", got, n)
	}
	return []float64{milliseconds(took), float64(n) / took.Seconds()}, err
}

// fanOut completes an instance that calls activities concurrently. It returns the duration, the activities
// per second, and the results per second since the first result.
func fanOut(ctx context.Context, r *rig) ([]float64, error) {
	const n = 1000
	responded.drain()
	began := time.Now()
	took, err := timed(ctx, r, FanOut, n)
	if err != nil {
		return nil, err
	}
	ended, at := time.Now(), responded.drain()
	called := at[len(at)-1].Sub(began)
	return []float64{took[0], n / called.Seconds(), n / ended.Sub(at[0]).Seconds()}, nil
}

// idleRequests returns the number of requests per minute of an idle worker, after it has reached its longest
// polling interval.
func idleRequests(ctx context.Context, r *rig) ([]float64, error) {
	const settle, look = 45 * time.Second, time.Minute
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	before := r.requests.count()
	err := pause(ctx, look)
	return []float64{float64(r.requests.count()-before) / look.Minutes()}, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// events raises n events for one instance, inFlight at a time, and returns the events per second.
func events(ctx context.Context, r *rig, n, inFlight int) ([]float64, error) {
	if r.slow && n > 500 {
		n /= 10
	}
	began := time.Now()
	i, err := durable.Start(ctx, r.client, Events, n)
	if err != nil {
		return nil, err
	}
	err = inParallel(n, inFlight, func(int) error { return Ping.Raise(ctx, r.client, i.ID, 1) })
	if err != nil {
		return nil, err
	}
	got, err := i.Wait(ctx)
	if err == nil && got != n {
		err = fmt.Errorf("%d of %d events arrived", got, n)
	}
	return []float64{float64(n) / time.Since(began).Seconds()}, err
}

// waiting starts instances that wait for an event. It returns the heap size per instance and the resident
// memory of the process.
func waiting(ctx context.Context, r *rig) ([]float64, error) {
	const n = 10_000
	const underway = 128 // maximum number of started instances that do not wait yet; Azurite becomes slower with each message that it holds
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	waiters.drain()
	before := heap()
	err := inParallel(n, 64, func(i int) error {
		if err := until(ctx, func() bool { return waiters.count() > i-underway }); err != nil {
			return fmt.Errorf("%d of %d instances wait: %w", waiters.count(), i, err)
		}
		_, err := durable.Start(ctx, r.client, Wait, durable.Void{}, durable.InstanceID(fmt.Sprintf("waiting-%05d", i)))
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := until(ctx, func() bool { return waiters.count() >= n }); err != nil {
		return nil, fmt.Errorf("%d of %d instances wait: %w", waiters.count(), n, err)
	}
	waiters.drain()
	after := heap()
	debug.FreeOSMemory()
	rss, err := residentMB()
	return []float64{max(0, float64(after)-float64(before)) / 1000 / n, rss}, err
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
