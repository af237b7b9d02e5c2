package simulated_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
)

func sayHello(_ context.Context, city string) (string, error) { return "Hello " + city + "!", nil }

func helloSequence(ctx *durable.Context, _ durable.Void) ([]string, error) {
	var greetings []string
	for _, city := range []string{"Tokyo", "Seattle", "London"} {
		greeting, err := durable.CallActivity(ctx, sayHello, city).Await()
		if err != nil {
			return nil, err
		}
		greetings = append(greetings, greeting)
	}
	return greetings, nil
}

// open returns a hub whose requests are sent by worker w.
func open(t *testing.T, w *azsim.Worker, account *azsim.Account) *azurestorage.TaskHub {
	t.Helper()
	return openWith(t, w.Name(), account, w)
}

// openWith returns a hub on the account with the given transport.
func openWith(t *testing.T, worker string, account *azsim.Account, transport policy.Transporter) *azurestorage.TaskHub {
	t.Helper()
	c, err := azurestorage.ParseConnectionString(account.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	hub, err := azurestorage.Open(c, azurestorage.Config{
		TaskHub: "Sim", PartitionCount: 2, WorkerID: worker, MaxConcurrentActivities: 8,
		Transport: transport, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return hub
}

// runHello runs a hello sequence in a bubble and returns the trace of the account's requests.
func runHello(t *testing.T, seed uint64) (trace string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(azsim.Config{Seed: seed, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond})
		registry := durable.NewRegistry(durable.Orchestrator("HelloSequence", helloSequence), durable.Activity("SayHello", sayHello))
		defer account.End()
		ctx, stop := context.WithCancel(chance.With(t.Context(), account.Chance("w1")))
		stopped := make(chan error, 1)
		go func() {
			worker := durable.NewWorker(open(t, account.Worker("w1"), account), registry, durable.Config{Logger: slog.New(slog.DiscardHandler)})
			stopped <- worker.Run(ctx)
		}()
		client := durable.NewClient(open(t, account.Worker("client"), account), registry)
		time.Sleep(time.Second)
		instance, err := durable.Start(ctx, client, helloSequence, durable.Void{}, durable.InstanceID("hello"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := instance.Wait(ctx)
		if want := "[Hello Tokyo! Hello Seattle! Hello London!]"; err != nil || fmt.Sprint(got) != want {
			t.Errorf("the sequence returned %v, %v; want %s", got, err, want)
		}
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		for _, queue := range account.Queues() {
			for _, m := range account.Messages(queue) {
				t.Errorf("left in %s: %s", queue, m.Text)
			}
		}
		trace = account.Trace()
	})
	return trace
}

func TestHello_RunsOnTheSimulatedAccount(t *testing.T) {
	if trace := runHello(t, 1); t.Failed() {
		t.Log("\n" + trace)
	}
}
