//go:build unix

package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
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

// This test uses one process, because an app behind HTTP refuses starts while the storage is slow.
func TestLoad_TwoHundredHelloSequencesAtOnceAllComplete(t *testing.T) {
	processtest.SkipInShortRuns(t)
	connection, err := azurestorage.ParseConnectionString(azuritetest.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	hub, err := azurestorage.Open(connection, azurestorage.Config{TaskHub: newHub(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	registry := durable.NewRegistry(durable.Orchestrator("HelloSequence", helloSequence), durable.Activity("SayHello", sayHello))
	workerCtx, stop := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		if err := durable.NewWorker(hub, registry, durable.Config{Logger: quiet}).Run(workerCtx); err != nil {
			t.Errorf("worker: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		run.Wait()
	})
	client := durable.NewClient(hub, registry)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	hello := func() error {
		instance, err := durable.Start(ctx, client, helloSequence, durable.Void{})
		if err != nil {
			return err
		}
		got, err := instance.Wait(ctx)
		if want := []string{"Hello Tokyo!", "Hello Seattle!", "Hello London!"}; err == nil && !slices.Equal(got, want) {
			return fmt.Errorf("got %q, want %q", got, want)
		}
		return err
	}
	if err := hello(); err != nil { // creates the hub and waits for the partitions
		t.Fatal(err)
	}
	began := time.Now()
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if err := hello(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	t.Logf("200 hello sequences took %v", time.Since(began).Round(time.Millisecond))
}
