package sim_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/sim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

// tally is an entity that counts. PassOn also signals another tally.
type tally int

func (n *tally) Add(_ *durable.EntityContext, by int) (int, error) {
	*n += tally(by)
	return int(*n), nil
}

func (n *tally) PassOn(ctx *durable.EntityContext, by int) (durable.Void, error) {
	*n += tally(by)
	durable.SignalFrom(ctx, durable.EntityKey[tally]("passed on"), (*tally).Add, by)
	return durable.Void{}, nil
}

// move transfers an amount between two locked tallies. Before and after, it signals a third tally, which
// passes the signal on.
func move(ctx *durable.Context, by int) (int, error) {
	const from, to, told = durable.EntityKey[tally]("from"), durable.EntityKey[tally]("to"), durable.EntityKey[tally]("told")
	durable.SignalFrom(ctx, told, (*tally).PassOn, 1)
	unlock := durable.LockEntities(ctx, from, to)
	defer unlock()
	if _, err := durable.CallEntity(ctx, from, (*tally).Add, -by).Await(); err != nil {
		return 0, err
	}
	durable.SignalFrom(ctx, told, (*tally).PassOn, 1)
	return durable.CallEntity(ctx, to, (*tally).Add, by).Await()
}

var entityFunctions = []*durable.Registration{
	durable.Orchestrator("Move", move), durable.Entity("tally", durable.Op("Add", (*tally).Add), durable.Op("PassOn", (*tally).PassOn)),
}

// A worker that dies before or after any of its requests neither loses nor repeats an operation of an entity,
// and leaves no locks behind.
func TestCrash_EntityOperationsTakeEffectOnceIfAWorkerDiesAtAnyRequest(t *testing.T) {
	testshare.SkipInShortRaceRuns(t)
	for _, c := range []struct {
		down  time.Duration
		every int
	}{{5 * time.Second, usual().crashEvery}, {3 * time.Hour, 5 * usual().crashEvery}} {
		t.Run(fmt.Sprint("down for ", c.down), func(t *testing.T) {
			_, requests := runEntityCrash(t, azsim.None, 0, c.down)
			if requests < 30 {
				t.Fatalf("the worker made only %d requests, want at least 30", requests)
			}
			points := pointsOf(t, requests, c.every)
			for _, fault := range []azsim.Fault{azsim.KillBefore, azsim.KillAfter} {
				for _, n := range points {
					if problem, _ := runEntityCrash(t, fault, n, c.down); problem != "" {
						t.Fatalf("%v request %d of %d: %s\nrepeat: %s", fault, n, requests, problem, repeatCommand(t, fmt.Sprintf("-sim.request=%d", n)))
					}
				}
			}
			t.Logf("died before and after %d of %d requests", len(points), requests)
		})
	}
}

// signalsMeanwhile is the number of signals that a client sends while no worker runs.
const signalsMeanwhile = 70

// runEntityCrash runs the orchestration and injects a fault into the n-th request of the first worker. The
// next worker starts after down, and a client sends signals meanwhile. It returns a description of the first
// problem.
func runEntityCrash(t *testing.T, fault azsim.Fault, n int, down time.Duration) (problem string, requests int) {
	t.Helper()
	inBubble(t, 7, func(t *testing.T) {
		decide := func(r azsim.Request) azsim.Fault {
			if r.Worker == "w0" && r.Number == n {
				return fault
			}
			return azsim.None
		}
		a, err := newAzure(crashPlan(oneProgram()), decide, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		registry := durable.NewRegistry(entityFunctions...)
		client := durable.NewClient(a.Client(), registry)
		var signalled atomic.Bool
		work, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for i := 0; work.Err() == nil; i++ {
				runUntilDead(t, work, a, fmt.Sprint("w", i), registry)
				if i == 0 && work.Err() == nil {
					signalTold(t, a, client)
					signalled.Store(true)
					time.Sleep(down)
				}
			}
		}()
		problem = moveAndLook(t, a, client, fault == azsim.None, &signalled)
		stop()
		<-ended
		a.account.Wait()
		for _, e := range a.account.Log() {
			if e.Worker == "w0" {
				requests = max(requests, e.Number)
			}
		}
	})
	return problem, requests
}

func runUntilDead(t *testing.T, work context.Context, a *azure, name string, registry *durable.Registry) {
	p, err := a.Worker(name, 0)
	if err != nil {
		t.Error(err)
		return
	}
	run, stop := context.WithCancel(a.Context(work, name))
	defer stop()
	go func() {
		select {
		case <-p.Dead():
			stop()
		case <-run.Done():
		}
	}()
	cfg := durable.Config{ShutdownTimeout: 2 * time.Second, EpisodeWarnAfter: time.Hour, Logger: slog.New(slog.DiscardHandler)}
	_ = durable.NewWorker(p, registry, cfg).Run(run) // a dead worker may return any error
}

func signalTold(t *testing.T, a *azure, client *durable.Client) {
	for range signalsMeanwhile {
		if err := durable.Signal(a.Context(t.Context(), "client"), client, durable.EntityKey[tally]("told"), (*tally).PassOn, 1); err != nil {
			t.Error(err)
		}
	}
}

// moveAndLook starts the orchestration and waits until it has completed and no message is pending. It returns
// the first problem.
func moveAndLook(t *testing.T, a *azure, client *durable.Client, noSignals bool, signalled *atomic.Bool) string {
	ctx := a.Context(t.Context(), "client")
	time.Sleep(3 * time.Second)
	if _, err := durable.Start(ctx, client, move, 5, durable.InstanceID("mover")); err != nil {
		return err.Error()
	}
	began := time.Now()
	for deadline := began.Add(8 * time.Hour); ; time.Sleep(time.Second + time.Since(began)/20) {
		s, err := client.Status(ctx, "mover", durable.Fetch{Output: true})
		if err != nil {
			return err.Error()
		}
		if s.Status == history.Completed && len(a.Pending()) == 0 && (noSignals || signalled.Load()) {
			break
		}
		if time.Now().After(deadline) || s.Status == history.Failed {
			return fmt.Sprintf("the orchestration is %v; pending messages: %s", s.Status, strings.Join(a.Pending(), "\n"))
		}
	}
	told := fmt.Sprint(2 + signalsMeanwhile)
	if noSignals {
		told = "2"
	}
	for key, want := range map[durable.EntityKey[tally]]string{"from": "-5", "to": "5", "told": told, "passed on": told} {
		s, err := client.Entity(ctx, key)
		if errors.Is(err, durable.ErrEntityNotFound) {
			return fmt.Sprintf("tally %s does not exist", key)
		} else if err != nil {
			return err.Error()
		}
		if string(s.State) != want || s.LockedBy != "" || s.QueueSize != 0 {
			return fmt.Sprintf("tally %s is %s, want %s; it is locked by %q with %d in its queue", key, s.State, want, s.LockedBy, s.QueueSize)
		}
	}
	return ""
}

var _ sim.Platform = (*azure)(nil)
