package simulated_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// late is the entity that receives a delayed signal in each test of this file.
const late = durable.EntityKey[tallied]("late")

// signalDelay is the delay of the signal: the export waits for it.
const signalDelay = 2 * time.Minute

// signalsLater sends the delayed signal, and then continues as new and waits for an event.
func signalsLater(ctx *durable.Context, generation int) (string, error) {
	if generation == 0 {
		durable.SignalFrom(ctx, late, (*tallied).Add, 1, durable.SignalAfter(signalDelay))
		return durable.ContinueAsNew(ctx, signalsLater, 1)
	}
	return goOn.Wait(ctx).Await()
}

func callsSignalsLater(ctx *durable.Context, _ int) (string, error) {
	return durable.CallSubOrchestrator(ctx, signalsLater, 0).Await()
}

// pollsAgain continues as new and then polls every hour.
func pollsAgain(ctx *durable.Context, generation int) (string, error) {
	if generation == 0 {
		return durable.ContinueAsNew(ctx, pollsAgain, 1)
	}
	return pollsHourly(ctx, 0)
}

func pollsHourly(ctx *durable.Context, _ int) (string, error) {
	return durable.Poll(ctx, "poll", durable.PollPolicy{Interval: time.Hour}, func(context.Context, int) (string, bool, error) {
		return "", false, nil
	}).Await()
}

func stepsForLong(ctx *durable.Context, _ int) (string, error) {
	return durable.Step(ctx, "long", func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}).Await()
}

// leavesTimers ends while 20 timers are pending. One of them becomes due every 30 seconds.
func leavesTimers(ctx *durable.Context, _ int) (string, error) {
	for n := range 20 {
		ctx.Timer(time.Duration(n+1) * 30 * time.Second)
	}
	ctx.Sleep(time.Second)
	return "", nil
}

// openOne returns a hub with one control queue, so that all hidden messages are in one queue.
func openOne(t *testing.T, w *azsim.Worker, account *azsim.Account) *azurestorage.TaskHub {
	t.Helper()
	c, err := azurestorage.ParseConnectionString(account.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	hub, err := azurestorage.Open(c, azurestorage.Config{
		TaskHub: "Sim", PartitionCount: 1, WorkerID: w.Name(), Transport: w, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return hub
}

// runAndExport runs a worker, calls use with a client of its hub, and stops the worker. It returns the
// messages of an export and the time that the export took.
func runAndExport(t *testing.T, use func(ctx context.Context, c *durable.Client) error) (got messages, took time.Duration) {
	t.Helper()
	account := azsim.New(azsim.Config{MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond})
	defer account.End()
	registry := durable.NewRegistry(
		durable.Orchestrator("SignalsLater", signalsLater), durable.Orchestrator("CallsSignalsLater", callsSignalsLater),
		durable.Orchestrator("PollsAgain", pollsAgain), durable.Orchestrator("PollsHourly", pollsHourly),
		durable.Orchestrator("StepsForLong", stepsForLong), durable.Orchestrator("LeavesTimers", leavesTimers), durable.Entity("tally", durable.Op("Add", (*tallied).Add)),
	)
	ctx, stop := context.WithCancel(chance.With(t.Context(), account.Chance("w1")))
	stopped := make(chan error, 1)
	go func() {
		worker := durable.NewWorker(openOne(t, account.Worker("w1"), account), registry, durable.Config{Logger: slog.New(slog.DiscardHandler)})
		stopped <- worker.Run(ctx)
	}()
	time.Sleep(3 * time.Second) // real time: it runs in a bubble
	if err := use(ctx, durable.NewClient(openOne(t, account.Worker("client"), account), registry)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(15 * time.Second) // the instances rest
	stop()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	from := time.Now()
	if err := openOne(t, account.Worker("copy"), account).Export(t.Context(), &got, provider.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	return got, time.Since(from)
}

// Each instance of these tests is in a state that resembles the state of an instance with a hidden
// message of its own.
func TestExport_WaitsForDelayedSignals(t *testing.T) {
	start := func(orchestrator func(*durable.Context, int) (string, error)) func(context.Context, *durable.Client) error {
		return func(ctx context.Context, c *durable.Client) error {
			_, err := durable.Start(ctx, c, orchestrator, 0, durable.InstanceID("i"))
			return err
		}
	}
	signal := func(use func(context.Context, *durable.Client) error) func(context.Context, *durable.Client) error {
		return func(ctx context.Context, c *durable.Client) error {
			if err := use(ctx, c); err != nil {
				return err
			}
			time.Sleep(5 * time.Second) // real time: it runs in a bubble
			return durable.Signal(ctx, c, late, (*tallied).Add, 1, durable.SignalAfter(signalDelay))
		}
	}
	for _, tt := range []struct {
		name string
		use  func(context.Context, *durable.Client) error
	}{
		{"the sender has continued as new", start(signalsLater)},
		{"the sender is a child that has continued as new", start(callsSignalsLater)},
		{"an entity exists", signal(func(ctx context.Context, c *durable.Client) error {
			return durable.Signal(ctx, c, durable.EntityKey[tallied]("early"), (*tallied).Add, 1)
		})},
		{"a suspended instance has an unrecorded step", signal(func(ctx context.Context, c *durable.Client) error {
			if err := start(stepsForLong)(ctx, c); err != nil {
				return err
			}
			time.Sleep(3 * time.Second) // real time: it runs in a bubble
			return c.Suspend(ctx, "i", "")
		})},
		{"a poll sleeps", signal(start(pollsHourly))},
		{"a poll of a later generation sleeps", signal(start(pollsAgain))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, _ := runAndExport(t, tt.use)
				if !slices.Contains(got, "EventRaised for @tally@late") {
					t.Errorf("exported %q, want the delayed signal", got)
				}
			})
		})
	}
}

func TestExport_DoesNotWaitForSleepingPolls(t *testing.T) {
	for name, orchestrator := range map[string]func(*durable.Context, int) (string, error){
		"of a first generation": pollsHourly, "of a later generation": pollsAgain,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, took := runAndExport(t, func(ctx context.Context, c *durable.Client) error {
					_, err := durable.Start(ctx, c, orchestrator, 0, durable.InstanceID("i"))
					return err
				})
				if want := (messages{"GenericEvent for i"}); !slices.Equal(got, want) || took > time.Second {
					t.Errorf("exported %q in %v, want %q at once", got, took, want)
				}
			})
		})
	}
}

// The export does not wait for timers that become due one after the other.
func TestExport_WaitsOnceForTimersOfAnEndedInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, took := runAndExport(t, func(ctx context.Context, c *durable.Client) error {
			_, err := durable.Start(ctx, c, leavesTimers, 0)
			return err
		})
		if took > 2*time.Minute {
			t.Errorf("the export took %v, want at most 2m", took)
		}
	})
}
