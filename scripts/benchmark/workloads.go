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

// A workload is something to measure.
type workload struct {
	name    string
	figures []figure // what it returns, in order
	run     func(ctx context.Context, r *rig) ([]float64, error)
	only    []string // the kinds of hubs that it says something of; empty: all
	runs    int      // at most, because it takes long; 0: as many as asked for
}

// The published figures. For embedded hubs: the best of five Go engines on two
// cores with an SQLite file, each at its best setting. For Azure Storage: Durable
// Functions for .NET as measured once on a machine of this kind, on Azurite in one
// process.
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
		run: latency,
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
		name: "fan-out of 1,000 activities",
		figures: []figure{
			{unit: "ms", less: true, published: map[string]float64{"embedded": 390, "relaxed": 204}},
			{name: "begun", unit: "/s", published: map[string]float64{"azure": 101}, documented: 100},
			{name: "results taken", unit: "/s", documented: 150},
		},
		run: fanOut,
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

// largeWorkloads come last: they leave so much in an Azurite that it gets slower.
var largeWorkloads = []workload{
	{
		name:    "10,000 waiting instances",
		figures: []figure{{name: "heap", unit: "kB each", less: true}, {name: "RSS", unit: "MB", less: true, published: map[string]float64{"azure": 150}}},
		run:     waiting,
		runs:    1,
	},
}

// perSecond completes n instances, some in flight, and returns how many a
// second.
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

// inParallel calls f n times, some at a time, and returns the first error.
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

func latency(ctx context.Context, r *rig) ([]float64, error) {
	n := 500
	if r.slow {
		n = 50
	}
	took := make([]float64, n)
	for i := range took {
		began := time.Now()
		if err := r.complete(ctx, Hello); err != nil {
			return nil, err
		}
		took[i] = milliseconds(time.Since(began))
	}
	slices.Sort(took)
	return []float64{took[n/2], took[n*95/100]}, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// timed completes one instance that does n things, and returns how long that
// took and how many a second they are.
func timed(ctx context.Context, r *rig, orchestrator func(*durable.Context, int) (int, error), n int) ([]float64, error) {
	began := time.Now()
	i, err := durable.Start(ctx, r.client, orchestrator, n)
	if err != nil {
		return nil, err
	}
	got, err := i.Wait(ctx)
	took := time.Since(began)
	if err == nil && got != n {
		err = fmt.Errorf("%d of %d were done", got, n)
	}
	return []float64{milliseconds(took), float64(n) / took.Seconds()}, err
}

// fanOut completes an instance that calls activities at a time. It returns how
// long that took, how many a second were called, and how many results a second
// were taken from the first on.
func fanOut(ctx context.Context, r *rig) ([]float64, error) {
	const n = 1000
	responded.take()
	began := time.Now()
	took, err := timed(ctx, r, FanOut, n)
	if err != nil {
		return nil, err
	}
	ended, at := time.Now(), responded.take()
	called := at[len(at)-1].Sub(began)
	return []float64{took[0], n / called.Seconds(), n / ended.Sub(at[0]).Seconds()}, nil
}

// idleRequests returns how many requests a minute a worker makes that has nothing to do,
// once it looks at its queues as seldom as it ever does.
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

// events raises n events at one instance, some in flight, and returns how many a second arrive.
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

// waiting has instances wait for an event, and returns what they take of the
// heap and what the process takes of the machine.
func waiting(ctx context.Context, r *rig) ([]float64, error) {
	const n = 10_000
	const underway = 128 // at most have begun and do not wait yet: Azurite gets slower with every message that it holds
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	waiters.take()
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
	waiters.take()
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
