package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// entityWorkloads are those of entities.
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

// entityFunctions are what entityWorkloads run.
var entityFunctions = []*durable.Function{
	durable.Entity("Meter", durable.Op("Add", (*Meter).Add)),
	durable.Orchestrator("Call", Call),
	durable.Orchestrator("Calls", Calls),
	durable.Orchestrator("Transfer", Transfer),
}

// A Meter is an entity that adds up.
type Meter int

// Add adds n, and notes when.
func (m *Meter) Add(_ *durable.EntityContext, n int) (int, error) {
	*m += Meter(n)
	added.note()
	return int(*m), nil
}

// added is when meters were added to.
var added moments

// moments are the times at which something was done.
type moments struct {
	mu sync.Mutex
	at []time.Time
}

func (m *moments) note() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = append(m.at, time.Now())
}

func (m *moments) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.at)
}

// take returns the times since the last take.
func (m *moments) take() []time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.at
	m.at = nil
	return at
}

// Call adds to one meter.
func Call(ctx *durable.Context, _ durable.Void) (int, error) {
	return durable.CallEntity(ctx, durable.EntityKey[Meter]("called"), (*Meter).Add, 1).Await()
}

// Calls adds to a meter n times, one after another.
func Calls(ctx *durable.Context, n int) (sum int, err error) {
	for range n {
		if sum, err = durable.CallEntity(ctx, durable.EntityKey[Meter](ctx.InstanceID()), (*Meter).Add, 1).Await(); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// Transfer moves something from one meter to another under their locks.
func Transfer(ctx *durable.Context, _ durable.Void) (int, error) {
	const from, to = durable.EntityKey[Meter]("from"), durable.EntityKey[Meter]("to")
	defer durable.LockEntities(ctx, from, to)()
	if _, err := durable.CallEntity(ctx, from, (*Meter).Add, -1).Await(); err != nil {
		return 0, err
	}
	return durable.CallEntity(ctx, to, (*Meter).Add, 1).Await()
}

// signals has clients signal some meters, each as often as the others, and
// returns how many operations a second became durable.
func signals(ctx context.Context, r *rig, meters, each int) ([]float64, error) {
	if !r.slow {
		each *= 10
	}
	key := func(i int) durable.EntityKey[Meter] {
		return durable.EntityKey[Meter](fmt.Sprintf("meter %d", i))
	}
	added.take()
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
			return nil, fmt.Errorf("%s does not get to %d: %w", key(i), each, err)
		}
		if i == 0 {
			took = time.Since(began)
		}
	}
	return []float64{float64(meters*each) / took.Seconds()}, nil
}

// until waits until something holds that is about to.
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

// calls has an orchestration call a meter many times in a row, and returns how
// long it is from one operation to the next: the answer goes to the orchestration
// and its next call to the meter.
func calls(ctx context.Context, r *rig) ([]float64, error) {
	n := 1000
	if r.slow {
		n = 100
	}
	added.take()
	if _, err := timed(ctx, r, Calls, n); err != nil {
		return nil, err
	}
	at := added.take()
	if len(at) != n {
		return nil, fmt.Errorf("the meter was added to %d times, want %d", len(at), n)
	}
	took := make([]float64, n-1)
	for i := range took {
		took[i] = milliseconds(at[i+1].Sub(at[i]))
	}
	return percentiles(took), nil
}

// transfers returns how long orchestrations take that lock two meters.
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

// idleEntities has many meters do something, and returns what each of them takes of the
// heap afterwards.
func idleEntities(ctx context.Context, r *rig) ([]float64, error) {
	n := 100_000
	if r.slow {
		n /= 20
	}
	added.take()
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
	added.take()
	time.Sleep(time.Second) // the last are being committed
	return []float64{max(0, float64(heap())-float64(before)) / 1000 / float64(n)}, nil
}

// percentiles returns the 50th and the 95th.
func percentiles(values []float64) []float64 {
	slices.Sort(values)
	return []float64{values[len(values)/2], values[len(values)*95/100]}
}
