package simulated_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
)

// signalTwo signals an entity and calls another one.
func signalTwo(ctx *durable.Context, n int) (int, error) {
	durable.SignalFrom(ctx, firstSum, (*sum).Add, n)
	return durable.CallEntity(ctx, secondSum, (*sum).Add, n).Await()
}

// everyShape has an orchestrator for each kind of work. name is the prefix of its instance IDs.
var everyShape = []struct {
	name      string
	instances int
	start     func(ctx context.Context, c *durable.Client, id durable.InstanceID) error
}{
	{"chain", 4, starting(three, 0)},
	{"fan-out", 1, starting(fanOut, 20)},
	{"timer", 2, starting(nap, 5)},
	{"event", 2, starting(listen, 0)},
	{"children", 1, starting(parent, 3)},
	{"generations", 1, starting(threeGenerations, 0)},
	{"call", 2, starting(callSum, 1)},
	{"signal", 2, starting(signalTwo, 1)},
	{"lock", 8, starting(moveSum, 1)},
}

// starting returns a function that starts an instance of an orchestrator.
func starting[O any](run func(ctx *durable.Context, in int) (O, error), in int) func(context.Context, *durable.Client, durable.InstanceID) error {
	return func(ctx context.Context, c *durable.Client, id durable.InstanceID) error {
		_, err := durable.Start(ctx, c, run, in, id)
		return err
	}
}

func everyShapeRegistry() *durable.Registry {
	return durable.NewRegistry(
		durable.Activity("sayHello", sayHello), durable.Entity("sum", durable.Op("Add", (*sum).Add)),
		durable.Orchestrator("three", three), durable.Orchestrator("fanOut", fanOut), durable.Orchestrator("nap", nap), durable.Orchestrator("listen", listen),
		durable.Orchestrator("parent", parent), durable.Orchestrator("child", child), durable.Orchestrator("threeGenerations", threeGenerations),
		durable.Orchestrator("callSum", callSum), durable.Orchestrator("signalTwo", signalTwo), durable.Orchestrator("moveSum", moveSum),
	)
}

// runEveryShape starts instances of every kind on one worker, after a call of begins. It returns
// the IDs of the instances that have not completed within limit.
func runEveryShape(t *testing.T, cfg azsim.Config, begins func(), limit time.Duration) (open []string) {
	t.Helper()
	return shapeRun{cfg: cfg, begins: begins, limit: limit}.unfinished(t)
}

// A shapeRun is a run of instances of every kind.
type shapeRun struct {
	cfg       azsim.Config
	begins    func()
	limit     time.Duration
	life      time.Duration // of each worker; 0 means one worker for the whole run
	scheduled int           // instances that start in a day; their rows come before the others
}

// work runs one worker after another until ctx ends.
func (s shapeRun) work(ctx context.Context, t *testing.T, account *azsim.Account, registry *durable.Registry) {
	for n := 0; ctx.Err() == nil; n++ {
		name := "w"
		if n > 0 {
			name = fmt.Sprintf("w%d", n)
		}
		life, stop := context.WithCancel(chance.With(ctx, account.Chance(name)))
		if s.life > 0 {
			time.AfterFunc(s.life, stop)
		}
		_ = durable.NewWorker(openWith(t, name, account, account.Worker(name)), registry, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(life)
		stop()
	}
}

// unfinished returns the IDs of the instances that have not completed within the limit.
func (s shapeRun) unfinished(t *testing.T) (open []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(s.cfg)
		defer account.End()
		registry := everyShapeRegistry()
		client := durable.NewClient(openWith(t, "client", account, account.Worker("client")), registry)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.work(ctx, t, account, registry) })
		time.Sleep(30 * time.Second)
		for i := range s.scheduled {
			if _, err := durable.Start(ctx, client, three, 0, durable.InstanceID(fmt.Sprintf("a-%03d", i)), durable.StartAt(time.Now().Add(24*time.Hour))); err != nil {
				t.Fatal(err)
			}
		}
		s.begins()
		var all []string
		for _, shape := range everyShape {
			for i := range shape.instances {
				id := fmt.Sprintf("%s-%d", shape.name, i)
				all = append(all, id)
				running.Go(func() {
					err := shape.start(ctx, client, durable.InstanceID(id))
					for ; err != nil && ctx.Err() == nil; err = shape.start(ctx, client, durable.InstanceID(id)) {
						if strings.Contains(err.Error(), "exists") {
							break
						}
						time.Sleep(5 * time.Second)
					}
					for shape.name == "event" && ctx.Err() == nil && goOn.Raise(ctx, client, durable.InstanceID(id), "now") != nil {
						time.Sleep(5 * time.Second)
					}
				})
			}
		}
		for began := time.Now(); time.Since(began) < s.limit; time.Sleep(10 * time.Second) {
			open = nil
			for _, id := range all {
				if row, _ := account.Row("SimInstances", id, ""); row.Text("RuntimeStatus") != history.Completed.String() {
					open = append(open, id)
				}
			}
			if len(open) == 0 {
				t.Logf("all completed after %v", time.Since(began))
				break
			}
		}
		stop()
		running.Wait()
	})
	return open
}

// A service that responds slowly, but within the lease interval, blocks no kind of work.
func TestSteadyLatency_BlocksNoKindOfWork(t *testing.T) {
	cases := 0
	for _, services := range []string{azsim.QueueService, azsim.TableService, azsim.QueueService + azsim.TableService} {
		for _, latency := range []time.Duration{12 * time.Second, 20 * time.Second, 28 * time.Second} {
			if cases++; cases%usual().sample != 0 {
				continue
			}
			t.Run(fmt.Sprintf("%v of %s", latency, services), func(t *testing.T) {
				var slow atomic.Bool
				cfg := azsim.Config{Seed: 5, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond, Delay: func(r azsim.Request, _ int) time.Duration {
					if slow.Load() && strings.Contains(services, r.Service) && r.Target != "SimPartitions" {
						return latency
					}
					return 0
				}}
				open := runEveryShape(t, cfg, func() { slow.Store(true) }, 2*time.Hour)
				if len(open) > 0 {
					t.Errorf("not completed: %q", open)
				}
			})
		}
	}
}

// Workers that live for less than the intervals of their background work, and that have 100 scheduled
// instances in front of the others, block no kind of work.
func TestShortLivedWorkers_BlockNoKindOfWork(t *testing.T) {
	cases := 0
	for _, life := range []time.Duration{3 * time.Second, 8 * time.Second, 25 * time.Second, 100 * time.Second} {
		for _, scheduled := range []int{0, 100} {
			if cases++; cases%usual().sample != 0 {
				continue
			}
			t.Run(fmt.Sprintf("%v, with %d scheduled instances", life, scheduled), func(t *testing.T) {
				cfg := azsim.Config{Seed: 5, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond}
				open := shapeRun{cfg: cfg, begins: func() {}, limit: time.Hour, life: life, scheduled: scheduled}.unfinished(t)
				if len(open) > 0 {
					t.Errorf("not completed: %q", open)
				}
			})
		}
	}
}
