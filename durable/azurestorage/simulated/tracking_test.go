package simulated_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

// threeGenerations runs an activity in each of three generations.
func threeGenerations(ctx *durable.Context, n int) (int, error) {
	if _, err := durable.CallActivity(ctx, sayHello, fmt.Sprint(n)).Await(); err != nil || n == 2 {
		return n, err
	}
	return durable.ContinueAsNew(ctx, threeGenerations, n+1)
}

// audited is a hub with an audit, a client and workers.
type audited struct {
	*testing.T
	account  *azsim.Account
	registry *durable.Registry
	hub      *azurestorage.TaskHub // of the client
	client   *durable.Client
	stops    []func()
}

// inAudit runs f in a bubble. decide selects the fault of each request.
func inAudit(t *testing.T, seed uint64, decide func(azsim.Request) azsim.Fault, f func(*audited)) {
	synctest.Test(t, func(t *testing.T) {
		a := &audited{T: t, account: azsim.New(azsim.Config{Seed: seed, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond, Decide: decide})}
		defer a.account.End()
		a.registry = durable.NewRegistry(durable.Orchestrator("HelloSequence", helloSequence), durable.Activity("SayHello", sayHello),
			durable.Orchestrator("ThreeGenerations", threeGenerations))
		a.hub = a.open("client")
		a.client = durable.NewClient(a.hub, a.registry)
		defer func() {
			for _, stop := range a.stops {
				stop()
			}
		}()
		f(a)
	})
}

func (a *audited) open(name string) *azurestorage.TaskHub {
	a.Helper()
	c, err := azurestorage.ParseConnectionString(a.account.ConnectionString())
	if err != nil {
		a.Fatal(err)
	}
	hub, err := azurestorage.Open(c, azurestorage.Config{
		TaskHub: "Audit", PartitionCount: 2, WorkerID: name, MaxConcurrentActivities: 8, Tracking: true,
		MaxQueuePollingInterval: 5 * time.Second, Transport: a.account.Worker(name), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		a.Fatal(err)
	}
	return hub
}

// work starts a worker, which may be killed.
func (a *audited) work(name string) {
	hub := a.open(name)
	ctx, stop := context.WithCancel(chance.With(a.Context(), a.account.Chance(name)))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = durable.NewWorker(hub, a.registry, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	a.stops = append(a.stops, func() { stop(); <-ended })
}

// records reads an instance's audit page by page. It checks that each execution's sequence numbers
// have no gaps and no duplicates.
func (a *audited) records(id string) (records []provider.TrackingRecord) {
	a.Helper()
	q := provider.TrackingQuery{PageSize: 5}
	for {
		page, err := a.hub.Tracking(a.Context(), id, q)
		if err != nil {
			a.Fatal(err)
		}
		records = append(records, page.Records...)
		if q.Continuation = page.Continuation; q.Continuation == "" {
			break
		}
	}
	execution, next := "", 0
	for _, r := range records {
		if r.ExecutionID != execution {
			execution, next = r.ExecutionID, 0
		}
		if r.SequenceNumber != next {
			a.Errorf("%s: record %d of execution %s follows record %d", id, r.SequenceNumber, r.ExecutionID, next-1)
		}
		next++
	}
	return records
}

// summary returns a summary of records, one line per execution.
func summary(records []provider.TrackingRecord) string {
	var b strings.Builder
	execution := ""
	for _, r := range records {
		if r.ExecutionID != execution && execution != "" {
			b.WriteString("\n")
		}
		execution = r.ExecutionID
		name := r.Event.Type().String()
		switch ev := r.Event.(type) {
		case *history.HistoryState:
			name = *ev.State
		case *history.ExecutionCompleted:
			name += " " + ev.Status.String()
		case *history.ContinueAsNew:
			name += " " + ev.Status.String()
		}
		b.WriteString(" " + name)
	}
	return b.String()
}

const running = `{"OrchestrationStatus":"Running"}`

var helloSummary = strings.Join([]string{
	" OrchestratorStarted ExecutionStarted TaskScheduled OrchestratorCompleted " + running,
	" OrchestratorStarted TaskCompleted TaskScheduled OrchestratorCompleted " + running,
	" OrchestratorStarted TaskCompleted TaskScheduled OrchestratorCompleted " + running,
	` OrchestratorStarted TaskCompleted ExecutionCompleted Completed OrchestratorCompleted {"OrchestrationStatus":"Completed"}`,
}, "")

// generationSummary returns the summary of the n-th generation. Except in the first one, the previous
// episode's end precedes the first activity, as in the history.
func generationSummary(n int, last bool) string {
	begin := " OrchestratorStarted ExecutionStarted"
	if n > 0 {
		begin += " OrchestratorCompleted " + running
	}
	end := ` ContinueAsNew ContinuedAsNew OrchestratorCompleted {"OrchestrationStatus":"ContinuedAsNew"}`
	if last {
		end = ` ExecutionCompleted Completed OrchestratorCompleted {"OrchestrationStatus":"Completed"}`
	}
	return begin + " TaskScheduled OrchestratorCompleted " + running + " OrchestratorStarted TaskCompleted" + end
}

var generationsSummary = strings.Join([]string{generationSummary(0, false), generationSummary(1, false), generationSummary(2, true)}, "\n")

func (a *audited) startBoth() {
	a.Helper()
	for id, name := range map[string]string{"hello": "HelloSequence", "generations": "ThreeGenerations"} {
		if _, err := a.client.StartByName(a.Context(), name, []byte("0"), durable.InstanceID(id)); err != nil {
			a.Fatal(err)
		}
	}
}

// finished waits until both instances have ended and compares their audits.
func (a *audited) finished() {
	a.Helper()
	for _, id := range []string{"hello", "generations"} {
		for deadline := time.Now().Add(time.Hour); ; time.Sleep(time.Second) {
			state, err := a.hub.Instance(a.Context(), id, provider.Fetch{})
			if err == nil && state.Status == history.Completed {
				break
			}
			if time.Now().After(deadline) {
				a.Fatalf("%s has not completed: %+v, %v", id, state, err)
			}
		}
	}
	time.Sleep(3 * time.Minute) // longer than a dead worker's messages are hidden
	if diff := cmp.Diff(helloSummary, summary(a.records("hello"))); diff != "" {
		a.Errorf("audit of the sequence (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(generationsSummary, summary(a.records("generations"))); diff != "" {
		a.Errorf("audit of the generations (-want +got):\n%s", diff)
	}
	if left := a.account.Messages("audit-tracking"); len(left) > 0 {
		a.Errorf("%d messages are left in the tracking queue", len(left))
	}
}

func TestTracking_RecordsEveryTransitionOfEveryExecution(t *testing.T) {
	inAudit(t, 1, nil, func(a *audited) {
		a.work("w1")
		time.Sleep(time.Minute)
		a.startBoth()
		a.finished()
		var rows []string
		for _, row := range a.account.Rows("InstanceHistory00Audit") {
			rows = append(rows, row.PartitionKey)
		}
		if n := len(slices.Compact(rows)); n != 2 {
			t.Errorf("the table has rows of %d instances, want 2", n)
		}
	})
}

// A worker is killed before or after a request, and another worker takes over. The audit has each
// record once.
func TestTracking_NoRecordIsLostOrDuplicatedWhenAWorkerDies(t *testing.T) {
	var requests atomic.Int32
	count := func(r azsim.Request) azsim.Fault {
		if r.Worker == "w1" {
			requests.Add(1)
		}
		return azsim.None
	}
	inAudit(t, 2, count, func(a *audited) {
		a.work("w1")
		time.Sleep(time.Minute)
		requests.Store(0)
		a.startBoth()
		time.Sleep(5 * time.Second)
		if diff := cmp.Diff(generationsSummary, summary(a.records("generations"))); diff != "" {
			t.Fatalf("after five seconds (-want +got):\n%s", diff)
		}
	})
	if requests.Load() < 40 {
		t.Fatalf("the run takes %d requests of the worker; want at least 40", requests.Load())
	}
	for n := range int(requests.Load()) {
		for i, fault := range []azsim.Fault{azsim.KillAfter, azsim.KillBefore} {
			if !*everyDeath && n%8 != 1+2*i {
				continue
			}
			t.Run(fmt.Sprintf("%v request %d", fault, n), func(t *testing.T) {
				t.Parallel()
				auditAfterDeath(t, n, fault)
			})
		}
	}
}

var everyDeath = flag.Bool("tracking.all", false, "let a worker with an audit die at every request, not only at a sample")

// auditAfterDeath kills the first worker at its n-th request.
func auditAfterDeath(t *testing.T, n int, fault azsim.Fault) {
	var armed, seen atomic.Int32
	decide := func(r azsim.Request) azsim.Fault {
		if armed.Load() == 0 || r.Worker != "w1" || int(seen.Add(1))-1 != n {
			return azsim.None
		}
		return fault
	}
	inAudit(t, 2, decide, func(a *audited) {
		a.work("w1")
		time.Sleep(time.Minute)
		armed.Store(1)
		a.startBoth()
		time.Sleep(10 * time.Second)
		a.work("w2")
		a.finished()
	})
}

// A hub without an audit sends no requests for it.
func TestTracking_CostsNothingWhenItIsDisabled(t *testing.T) {
	inFleet(t, azurestorage.Config{}, func(f *fleet) {
		f.join("w1", nil)
		hub, _ := f.hub("client", nil)
		client := durable.NewClient(hub, durable.NewRegistry())
		if _, err := client.StartByName(f.Context(), "HelloSequence", nil, durable.InstanceID("hello")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		for _, e := range f.account.Log() {
			if strings.Contains(e.Path, "tracking") || strings.Contains(e.Path, "InstanceHistory") {
				t.Errorf("%v", e)
			}
		}
		if n := len(f.account.Rows("FleetHistory")); n == 0 {
			t.Error("no instance has run")
		}
	})
}
