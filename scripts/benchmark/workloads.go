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
}

// The published figures. For embedded hubs: the best of five Go engines on two
// cores with an SQLite file, each at its best setting. For Azure Storage: Durable
// Functions for .NET on Azurite in one process, and what its documentation says
// to expect of the real service.
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
		name:    "500 activities in a row",
		figures: []figure{{unit: "ms", less: true, published: map[string]float64{"embedded": 128, "relaxed": 64}}, {name: "rate", unit: "/s", published: map[string]float64{"azure": 65}}},
		run:     func(ctx context.Context, r *rig) ([]float64, error) { return timed(ctx, r, Sequence, 500) },
	},
	{
		name:    "fan-out of 1,000 activities",
		figures: []figure{{unit: "ms", less: true, published: map[string]float64{"embedded": 390, "relaxed": 204}}, {name: "rate", unit: "/s", published: map[string]float64{"azure": 101}}},
		run:     func(ctx context.Context, r *rig) ([]float64, error) { return timed(ctx, r, FanOut, 1000) },
	},
	{
		name:    "5,000 empty orchestrations",
		figures: []figure{{unit: "/s", published: map[string]float64{"embedded": 1370, "relaxed": 2200, "azure": 68}}},
		run:     func(ctx context.Context, r *rig) ([]float64, error) { return perSecond(ctx, r, Empty, 5000, 64) },
	},
	{
		name:    "500 events to one instance",
		figures: []figure{{unit: "/s", published: map[string]float64{"embedded": 900, "relaxed": 6300, "azure": 300}}},
		run:     events,
	},
	{
		name:    "10,000 waiting instances",
		figures: []figure{{name: "heap", unit: "kB each", less: true}, {name: "RSS", unit: "MB", less: true, published: map[string]float64{"azure": 150}}},
		run:     waiting,
	},
}

// complete starts an instance and waits for it to end.
func (r *rig) complete(ctx context.Context, orchestrator func(*durable.Context, durable.Void) ([]string, error), opts ...durable.StartOption) error {
	i, err := durable.Start(ctx, r.client, orchestrator, durable.Void{}, opts...)
	if err != nil {
		return err
	}
	_, err = i.Wait(ctx)
	return err
}

// perSecond completes n instances, some in flight, and returns how many a
// second.
func perSecond[O any](ctx context.Context, r *rig, orchestrator func(*durable.Context, durable.Void) (O, error), n, inFlight int) ([]float64, error) {
	if slow(ctx, r) {
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

// slow reports whether a sequence takes so long that fewer will do.
func slow(ctx context.Context, r *rig) bool {
	began := time.Now()
	return r.complete(ctx, Hello) != nil || time.Since(began) > 10*time.Millisecond
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
	if slow(ctx, r) {
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

func events(ctx context.Context, r *rig) ([]float64, error) {
	const n = 500
	began := time.Now()
	i, err := durable.Start(ctx, r.client, Events, n)
	if err != nil {
		return nil, err
	}
	err = inParallel(n, 16, func(int) error { return Ping.Raise(ctx, r.client, i.ID, 1) })
	if err != nil {
		return nil, err
	}
	got, err := i.Wait(ctx)
	if err == nil && got != n {
		err = fmt.Errorf("%d of %d events arrived", got, n)
	}
	return []float64{n / time.Since(began).Seconds()}, err
}

// waiting has instances wait for an event, and returns what they take of the
// heap and what the process takes of the machine.
func waiting(ctx context.Context, r *rig) ([]float64, error) {
	const n = 10_000
	before := heap()
	err := inParallel(n, 64, func(i int) error {
		_, err := durable.Start(ctx, r.client, Wait, durable.Void{}, durable.InstanceID(fmt.Sprintf("waiting-%05d", i)))
		return err
	})
	if err != nil {
		return nil, err
	}
	last := durable.InstanceOf[int](r.client, "waiting-09999")
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		h, err := last.History(ctx)
		if err != nil {
			return nil, err
		}
		if len(h) > 0 || time.Now().After(deadline) {
			break
		}
	}
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
