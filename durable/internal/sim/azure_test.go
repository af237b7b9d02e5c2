package sim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/sim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// azure is a hub in a storage account in memory.
type azure struct {
	account    *azsim.Account
	partitions int
	logger     *slog.Logger
	client     *azurestorage.TaskHub
}

// newAzure returns the platform for a plan. Decide says what goes wrong with
// requests; nil means what the plan says.
func newAzure(p *sim.Plan, decide func(azsim.Request) azsim.Fault, logger *slog.Logger) (*azure, error) {
	if decide == nil {
		decide = faultsOf(p)
	}
	a := &azure{partitions: p.Partitions, logger: logger}
	a.account = azsim.New(azsim.Config{
		Seed: p.Seed, MinLatency: time.Millisecond, MaxLatency: 20 * time.Millisecond, Loose: p.Loose, Decide: decide,
	})
	var err error
	a.client, err = a.open(a.account.Worker("client"))
	return a, err
}

// faultsOf lets requests of workers go wrong as often as the plan says.
func faultsOf(p *sim.Plan) func(azsim.Request) azsim.Fault {
	begin := time.Now()
	return func(r azsim.Request) azsim.Fault {
		if r.Worker == "client" || time.Since(begin) > p.Quiet {
			return azsim.None
		}
		random := rand.New(rand.NewPCG(r.Roll, 0xFA117))
		if random.Float64() >= p.Faults {
			return azsim.None
		}
		kinds := []azsim.Fault{azsim.Throttle, azsim.FailBefore, azsim.FailAfter, azsim.RefuseAfter, azsim.Slow}
		if random.IntN(20) == 0 {
			kinds = []azsim.Fault{azsim.KillBefore, azsim.KillAfter}
		}
		return kinds[random.IntN(len(kinds))]
	}
}

func (a *azure) open(w *azsim.Worker) (*azurestorage.TaskHub, error) {
	c, err := azurestorage.ParseConnectionString(a.account.ConnectionString())
	if err != nil {
		return nil, err
	}
	return azurestorage.Open(c, azurestorage.Config{
		TaskHub: "Sim", PartitionCount: a.partitions, WorkerID: w.Name(), MaxConcurrentActivities: 6,
		MaxQueuePollingInterval: 15 * time.Second, Transport: w, Logger: a.logger,
	})
}

func (a *azure) Client() provider.Client { return a.client }

func (a *azure) Context(ctx context.Context, name string) context.Context {
	return chance.With(ctx, a.account.Chance(name))
}

// azureProcess is a worker on the account.
type azureProcess struct {
	*azurestorage.TaskHub
	*azsim.Worker
}

func (a *azure) Worker(name string, skew time.Duration) (sim.Process, error) {
	w := a.account.Worker(name)
	w.Skew(skew)
	hub, err := a.open(w)
	return azureProcess{hub, w}, err
}

func (a *azure) Status(id string) (history.RuntimeStatus, error) {
	row, ok := a.account.Row("SimInstances", id, "")
	if !ok {
		return 0, fmt.Errorf("instance %s has no row", id)
	}
	status, ok := history.ParseRuntimeStatus(row.Text("RuntimeStatus"))
	if !ok {
		return 0, fmt.Errorf("instance %s is %q", id, row.Text("RuntimeStatus"))
	}
	return status, nil
}

func (a *azure) Pending() (all []string) {
	if n := a.account.Late(); n > 0 {
		all = append(all, fmt.Sprintf("%d requests", n))
	}
	for _, queue := range a.account.Queues() {
		for _, m := range a.account.Messages(queue) {
			all = append(all, fmt.Sprintf("%s, received %d times, visible in %v: %s", queue, m.DequeueCount, time.Until(m.VisibleAt), m.Text))
		}
	}
	return all
}

func (a *azure) Settle() { a.account.Wait() }

func (a *azure) Stored() (all []string) {
	for _, table := range []string{"SimHistory", "SimInstances"} {
		for _, row := range a.account.Rows(table) {
			all = append(all, fmt.Sprintf("row of %s: %+v", table, row))
		}
	}
	for _, b := range a.account.Blobs() {
		if strings.HasSuffix(b.Container, "-largemessages") {
			all = append(all, "blob "+b.Container+"/"+b.Name)
		}
	}
	return all
}

// historyRow is what is looked at of a row that was written to the history.
type historyRow struct {
	PartitionKey, RowKey, ExecutionID, EventType string
	EventID                                      int `json:"EventId"`
}

// Inspect looks at all that was ever committed: no row of an execution was
// written twice, and no activity ran that no commit scheduled.
func (a *azure) Inspect(runs []sim.ActivityRun) (faults []string) {
	written := map[historyRow]bool{}
	scheduled := map[string]bool{}
	for _, e := range a.account.Log() {
		if e.Operation != "EntityGroupTransaction" || e.Target != "SimHistory" || e.Status != 202 || e.Code != "" {
			continue
		}
		for line := range bytes.Lines(e.Body) {
			var row historyRow
			if !bytes.HasPrefix(line, []byte("{")) || json.Unmarshal(line, &row) != nil || row.RowKey == "sentinel" || row.EventType == "" {
				continue
			}
			key := historyRow{PartitionKey: row.PartitionKey, RowKey: row.RowKey, ExecutionID: row.ExecutionID}
			if written[key] {
				faults = append(faults, fmt.Sprintf("at %v %s wrote row %s of %s again: two workers had it", e.At, e.Worker, row.RowKey, row.PartitionKey))
			}
			written[key] = true
			if row.EventType == "TaskScheduled" {
				scheduled[fmt.Sprint(row.PartitionKey, " ", row.EventID)] = true
			}
		}
	}
	for _, run := range runs {
		if !scheduled[fmt.Sprint(run.InstanceID, " ", run.TaskID)] {
			faults = append(faults, fmt.Sprintf("activity %d of %s ran (%s), which no commit scheduled", run.TaskID, run.InstanceID, run.Key))
		}
	}
	return faults
}
