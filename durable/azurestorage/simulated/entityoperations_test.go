package simulated_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
)

// sum is an entity that adds numbers.
type sum int

func (s *sum) Add(_ *durable.EntityContext, n int) (int, error) {
	*s += sum(n)
	return int(*s), nil
}

const firstSum, secondSum = durable.EntityKey[sum]("1"), durable.EntityKey[sum]("2")

func callSum(ctx *durable.Context, n int) (int, error) {
	return durable.CallEntity(ctx, firstSum, (*sum).Add, n).Await()
}

func signalSum(ctx *durable.Context, n int) (int, error) {
	durable.SignalFrom(ctx, firstSum, (*sum).Add, n)
	return 0, nil
}

// moveSum calls two sums while it holds their locks.
func moveSum(ctx *durable.Context, n int) (int, error) {
	defer durable.LockEntities(ctx, firstSum, secondSum)()
	if _, err := durable.CallEntity(ctx, firstSum, (*sum).Add, -n).Await(); err != nil {
		return 0, err
	}
	return durable.CallEntity(ctx, secondSum, (*sum).Add, n).Await()
}

// entityCosts are the measured workloads on entities that have been used before. The figures for
// .NET are 3 operations per message, 3 per batch and per episode, and 3 for the row of a started
// orchestration. The operations of a batch or an episode are a history read, a history append and a
// merge into Instances.
var entityCosts = []struct {
	name    string
	signals int
	run     func(ctx *durable.Context, n int) (int, error)
	varies  bool
	dotnet  string
}{
	{name: "signal", signals: 1, dotnet: "6"},
	{name: "100 signals at once", signals: 100, varies: true, dotnet: "300 + 3k, in k batches"},
	{name: "an orchestration signals", run: signalSum, dotnet: "15"},
	{name: "an orchestration calls", run: callSum, dotnet: "21"},
	{name: "an orchestration locks two and calls each", run: moveSum, dotnet: "63"},
}

// measureEntity runs a workload in one process. It returns the number of operations of each kind,
// like measure.
func measureEntity(t *testing.T, which int) (counts []int) {
	t.Helper()
	cost := entityCosts[which]
	counts = make([]int, len(kinds))
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(azsim.Config{Seed: 1, MinLatency: 2 * time.Millisecond, MaxLatency: 2*time.Millisecond + 1})
		defer account.End()
		hub := open(t, account.Worker("w1"), account)
		registry := durable.NewRegistry(durable.Entity("sum", durable.Op("Add", (*sum).Add)), durable.Orchestrator("callSum", callSum),
			durable.Orchestrator("signalSum", signalSum), durable.Orchestrator("moveSum", moveSum))
		client := durable.NewClient(hub, registry)
		work, stop := context.WithCancel(chance.With(t.Context(), account.Chance("w1")))
		ended := make(chan error)
		go func() {
			ended <- durable.NewWorker(hub, registry, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(work)
		}()
		signal := func(key durable.EntityKey[sum], n int) {
			if err := durable.Signal(t.Context(), client, key, (*sum).Add, n); err != nil {
				t.Error(err)
			}
		}
		signal(firstSum, 0)
		signal(secondSum, 0)
		time.Sleep(2 * time.Minute) // the scans for interrupted starts are over
		before := len(account.Log())
		for range cost.signals {
			go signal(firstSum, 1)
		}
		if cost.run != nil {
			if _, err := durable.Start(t.Context(), client, cost.run, 1, durable.InstanceID("i")); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(2 * time.Minute)
		countOperations(account.Log()[before:], counts)
		if cost.run != nil {
			if s, err := client.Status(t.Context(), "i", durable.Fetch{}); err != nil || s.Status.String() != "Completed" {
				t.Errorf("%s: state %+v, %v; want Completed", cost.name, s, err)
			}
		} else if n, err := durable.ReadEntity(t.Context(), client, firstSum); err != nil || int(n) != cost.signals {
			t.Errorf("%s: the sum is %d, %v; want %d", cost.name, n, err, cost.signals)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return counts
}

// countOperations adds the operations in log to counts.
func countOperations(log []azsim.Entry, counts []int) {
	for _, e := range log {
		empty := e.Operation == "GetMessages" && !bytes.Contains(e.Answer, []byte("<QueueMessage>"))
		for i, kind := range kinds {
			if e.Operation == kind.operation && !empty && (kind.target == "" || kind.target == e.Target) {
				counts[i]++
			}
		}
	}
}

// entityTable returns a table with a row per workload. Figures that vary are taken from the
// previous table if they are close to it.
func entityTable(t *testing.T, before string) string {
	was := strings.Split(before, "\n")
	head, rule := "| |", "|---|"
	for _, kind := range kinds {
		head, rule = head+" "+kind.name+" |", rule+"--:|"
	}
	lines := []string{head + " **total** | .NET |", rule + "--:|--:|"}
	for i, cost := range entityCosts {
		line, total := "| "+cost.name+" |", 0
		for k, n := range measureEntity(t, i) {
			if cost.varies && 2+i < len(was) {
				n = steady(n, cell(was[2+i], k))
			}
			line, total = line+fmt.Sprintf(" %d |", n), total+n
		}
		lines = append(lines, line+fmt.Sprintf(" **%d** | %s |", total, cost.dotnet))
	}
	return strings.Join(lines, "\n") + "\n"
}

// The table of entity operations in DESIGN.md equals the measurement.
func TestOperations_OfEntitiesEqualTheTable(t *testing.T) {
	holdTable(t, "entity operations", entityTable)
}
