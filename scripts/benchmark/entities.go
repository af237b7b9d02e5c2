package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// entityWorkloads are the workloads with entities.
var entityWorkloads = []workload{
	{
		name:    "signals to one entity",
		figures: []figure{{unit: "/s", documented: 64}},
		run:     func(ctx context.Context, r *rig) ([]float64, error) { return signals(ctx, r, 1, 1000) },
	},
	{
		name:    "signals to 1,000 entities",
		figures: []figure{{unit: "/s"}},
		run:     func(ctx context.Context, r *rig) ([]float64, error) { return signals(ctx, r, 1000, 2) },
	},
	{
		name:    "orchestrations that call one entity, 64 in flight",
		figures: []figure{{unit: "/s"}},
		run:     callsAtOnce,
	},
	{
		name:    "one call of an entity, there and back",
		figures: []figure{{name: "p50", unit: "ms", less: true}, {name: "p95", unit: "ms", less: true}},
		run:     calls,
	},
	{
		name:    "two entities locked and each called",
		figures: []figure{{name: "p50", unit: "ms", less: true}, {name: "p95", unit: "ms", less: true}},
		run:     transfers,
	},
	{
		name:    "100,000 idle entities",
		runs:    1,
		figures: []figure{{name: "heap", unit: "kB each", less: true}},
		run:     idleEntities,
	},
}

// entityFunctions are the functions of entityWorkloads.
var entityFunctions = []*durable.Registration{
	durable.Entity("Meter", durable.Op("Add", (*Meter).Add)),
	durable.Orchestrator("Call", Call),
	durable.Orchestrator("Calls", Calls),
	durable.Orchestrator("Transfer", Transfer),
}

// Meter is an entity that holds a sum.
type Meter int

// Add adds n and records the time.
func (m *Meter) Add(_ *durable.EntityContext, n int) (int, error) {
	*m += Meter(n)
	added.record()
	return int(*m), nil
}

// added records the times of Meter.Add.
var added moments

// moments is a list of times.
type moments struct {
	mu sync.Mutex
	at []time.Time
}

func (m *moments) record() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = append(m.at, time.Now())
}

func (m *moments) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.at)
}

// drain returns the times since the previous call and removes them.
func (m *moments) drain() []time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.at
	m.at = nil
	return at
}

// Call adds 1 to a meter.
func Call(ctx *durable.Context, _ durable.Void) (int, error) {
	return durable.CallEntity(ctx, durable.EntityKey[Meter]("called"), (*Meter).Add, 1).Await()
}

// Calls adds 1 to a meter n times in sequence.
func Calls(ctx *durable.Context, n int) (sum int, err error) {
	for range n {
		if sum, err = durable.CallEntity(ctx, durable.EntityKey[Meter](ctx.InstanceID()), (*Meter).Add, 1).Await(); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// Transfer moves 1 from one meter to another under their locks.
func Transfer(ctx *durable.Context, _ durable.Void) (int, error) {
	const from, to = durable.EntityKey[Meter]("from"), durable.EntityKey[Meter]("to")
	defer durable.LockEntities(ctx, from, to)()
	if _, err := durable.CallEntity(ctx, from, (*Meter).Add, -1).Await(); err != nil {
		return 0, err
	}
	return durable.CallEntity(ctx, to, (*Meter).Add, 1).Await()
}

// signals signals meters from clients, each meter the same number of times. It returns the number of durable
// operations per second.
func signals(ctx context.Context, r *rig, meters, each int) ([]float64, error) {
	if !r.slow {
		each *= 10
	}
	key := func(i int) durable.EntityKey[Meter] {
		return durable.EntityKey[Meter](fmt.Sprintf("meter %d", i))
	}
	added.drain()
	began := time.Now()
	err := inParallel(meters*each, 64, func(i int) error {
		return durable.Signal(ctx, r.client, key(i%meters), (*Meter).Add, 1)
	})
	if err != nil {
		return nil, err
	}
	if err := until(ctx, func() bool { return added.count() >= meters*each }); err != nil {
		return nil, err
	}
	took := time.Since(began)
	for i := range meters { // the last operations are being committed
		err := until(ctx, func() bool {
			sum, err := durable.ReadEntity(ctx, r.client, key(i))
			return err == nil && int(sum) == each
		})
		if err != nil {
			return nil, fmt.Errorf("%s does not reach %d: %w", key(i), each, err)
		}
		if i == 0 {
			took = time.Since(began)
		}
	}
	return []float64{float64(meters*each) / took.Seconds()}, nil
}

// until waits until holds returns true.
func until(ctx context.Context, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for !holds() {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func callsAtOnce(ctx context.Context, r *rig) ([]float64, error) {
	return perSecond(ctx, r, Call, 2000, 64)
}

// calls lets an orchestration call a meter many times in sequence. It returns the time between two
// operations, which contains the response to the orchestration and its next call.
func calls(ctx context.Context, r *rig) ([]float64, error) {
	n := 1000
	if r.slow {
		n = 100
	}
	added.drain()
	if _, err := timed(ctx, r, Calls, n); err != nil {
		return nil, err
	}
	at := added.drain()
	if len(at) != n {
		return nil, fmt.Errorf("%d operations of the meter, want %d", len(at), n)
	}
	took := make([]float64, n-1)
	for i := range took {
		took[i] = milliseconds(at[i+1].Sub(at[i]))
	}
	return percentiles(took), nil
}

// transfers returns the duration of orchestrations that lock two meters.
func transfers(ctx context.Context, r *rig) ([]float64, error) {
	n := 300
	if r.slow {
		n = 30
	}
	took := make([]float64, n)
	for i := range took {
		began := time.Now()
		t, err := durable.Start(ctx, r.client, Transfer, durable.Void{})
		if err != nil {
			return nil, err
		}
		if _, err := t.Wait(ctx); err != nil {
			return nil, err
		}
		took[i] = milliseconds(time.Since(began))
	}
	return percentiles(took), nil
}

// idleEntities signals many meters once. It returns the heap size per meter afterwards.
func idleEntities(ctx context.Context, r *rig) ([]float64, error) {
	n := 100_000
	if r.slow {
		n /= 20
	}
	added.drain()
	before := heap()
	err := inParallel(n, 64, func(i int) error {
		return durable.Signal(ctx, r.client, durable.EntityKey[Meter](fmt.Sprintf("idle %d", i)), (*Meter).Add, 1)
	})
	if err != nil {
		return nil, err
	}
	if err := until(ctx, func() bool { return added.count() >= n }); err != nil {
		return nil, err
	}
	added.drain()
	time.Sleep(time.Second) // the last operations are being committed
	return []float64{max(0, float64(heap())-float64(before)) / 1000 / float64(n)}, nil
}

// percentiles returns the 50th and the 95th percentile.
func percentiles(values []float64) []float64 {
	slices.Sort(values)
	return []float64{values[len(values)/2], values[len(values)*95/100]}
}
