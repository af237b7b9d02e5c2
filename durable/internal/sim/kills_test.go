package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/sim"
)

// hub is a task hub whose workers are killed.
type hub struct {
	t        *testing.T
	ctx      context.Context
	client   *durable.Client
	platform sim.Platform
}

// withKills calls f in a bubble with a hub on which workers run the functions: one worker on the embedded
// hub, three on Azure. Each worker is killed after a random time, on average every, and replaced. It returns
// the number of kills.
func withKills(t *testing.T, provider string, every time.Duration, functions []*durable.Registration, f func(*hub)) (killed int) {
	t.Helper()
	dir := t.TempDir()
	plan := &sim.Plan{Seed: 11, Workers: 3, Partitions: 4}
	inBubble(t, plan.Seed, func(t *testing.T) {
		var platform sim.Platform
		if provider == "embedded" {
			plan.Workers = 1
			l, err := newLocal(plan, dir, quiet)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := l.leave(); err != nil {
					t.Error(err)
				}
			}()
			platform = l
		} else {
			a, err := newAzure(plan, func(azsim.Request) azsim.Fault { return azsim.None }, quiet)
			if err != nil {
				t.Fatal(err)
			}
			platform = a
		}
		registry := durable.NewRegistry(functions...)
		work, stop := context.WithCancel(t.Context())
		var workers sync.WaitGroup
		kills := make([]int, plan.Workers)
		for i := range plan.Workers {
			workers.Go(func() { kills[i] = runAndKill(t, work, platform, i, registry, every) })
		}
		defer func() {
			stop()
			workers.Wait()
			platform.Settle()
			for _, n := range kills {
				killed += n
			}
		}()
		f(&hub{t, platform.Context(t.Context(), "client"), durable.NewClient(platform.Client(), registry), platform})
	})
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
	t.Logf("%d workers were killed", killed)
	return killed
}

// runAndKill runs a worker and replaces it whenever it is killed, until work ends. It returns the number of
// kills.
func runAndKill(t *testing.T, work context.Context, platform sim.Platform, worker int, registry *durable.Registry, every time.Duration) (killed int) {
	r := rand.New(rand.NewPCG(uint64(worker), 0xD1E))
	cfg := durable.Config{
		MaxConcurrentOrchestrators: 60, MaxConcurrentEntities: 60, ShutdownTimeout: 2 * time.Second, EpisodeWarnAfter: time.Hour, Logger: quiet,
	}
	for n := 0; work.Err() == nil; n++ {
		name := fmt.Sprintf("w%d.%d", worker, n)
		p, err := platform.Worker(name, 0)
		if err != nil {
			t.Error(err)
			return killed
		}
		run, stop := context.WithCancel(platform.Context(work, name))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = durable.NewWorker(p, registry, cfg).Run(run) // a killed worker may return any error
		}()
		select {
		case <-time.After(every/2 + time.Duration(r.Int64N(int64(every)))):
			p.Kill()
			killed++
		case <-work.Done():
		}
		stop()
		<-ended
		time.Sleep(every / 10)
	}
	return killed
}

// runAll starts n instances of an orchestrator and waits until they have completed, no message is pending and
// no entity is locked. It returns the outputs.
func runAll[I, O any](h *hub, orchestrator func(*durable.Context, I) (O, error), n int, input func(int) I) (outputs []O) {
	h.t.Helper()
	time.Sleep(3 * time.Second) // the worker has its partitions now
	for i := range n {
		if _, err := durable.Start(h.ctx, h.client, orchestrator, input(i), durable.InstanceID(fmt.Sprint("i", i))); err != nil {
			h.t.Fatal(err)
		}
	}
	deadline := time.Now().Add(24 * time.Hour)
	for i := range n {
		for {
			s, err := h.client.Status(h.ctx, durable.InstanceID(fmt.Sprint("i", i)), durable.Fetch{Output: true})
			if err != nil {
				h.t.Fatal(err)
			}
			if s.Status == history.Completed {
				break
			}
			if s.Status.IsTerminal() || time.Now().After(deadline) {
				_, err := durable.InstanceOf[O](h.client, durable.InstanceID(fmt.Sprint("i", i))).Wait(h.ctx)
				h.t.Fatalf("instance %d is %v: %v", i, s.Status, err)
			}
			time.Sleep(5 * time.Second)
		}
		output, err := durable.InstanceOf[O](h.client, durable.InstanceID(fmt.Sprint("i", i))).Wait(h.ctx)
		if err != nil {
			h.t.Fatal(err)
		}
		outputs = append(outputs, output)
	}
	for len(h.platform.Pending()) > 0 {
		if time.Now().After(deadline) {
			h.t.Fatalf("still pending: %q", h.platform.Pending())
		}
		time.Sleep(time.Second)
	}
	for e, err := range h.client.AllEntities(h.ctx, durable.EntityQuery{IncludeEmpty: true}) {
		if err != nil {
			h.t.Fatal(err)
		}
		if e.LockedBy != "" || e.QueueSize > 0 {
			h.t.Errorf("%v is locked by %q with %d in its queue", e.ID, e.LockedBy, e.QueueSize)
		}
	}
	return outputs
}

// readEntity returns the state of an entity, the zero value if it does not exist.
func readEntity[S any](h *hub, key string) S {
	h.t.Helper()
	s, err := durable.ReadEntity(h.ctx, h.client, durable.EntityKey[S](key))
	if err != nil && !errors.Is(err, durable.ErrEntityNotFound) {
		h.t.Fatal(err)
	}
	return s
}
