package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

var helloGreetings = []string{"Hello Tokyo!", "Hello Seattle!", "Hello London!"}

// newHub runs the app's functions on a hub of their own until the test ends.
func newHub(t *testing.T) (*durable.Client, *azuritetest.Counter) {
	t.Helper()
	text := azuritetest.Start(t)
	connection, err := azurestorage.ParseConnectionString(text)
	if err != nil {
		t.Fatal(err)
	}
	counter := azuritetest.NewCounter(text, nil)
	quiet := slog.New(slog.DiscardHandler)
	hub, err := azurestorage.Open(connection, azurestorage.Config{
		TaskHub:   "Load" + strings.ReplaceAll(uuid.NewString(), "-", "")[:12],
		Transport: counter,
		Logger:    quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	registry := durable.NewRegistry(functions...)
	worker := durable.NewWorker(hub, registry, durable.Config{Logger: quiet})
	ctx, stop := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		if err := worker.Run(ctx); err != nil {
			t.Errorf("worker: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		run.Wait()
	})
	return durable.NewClient(hub, registry), counter
}

// hello runs one hello sequence to its end.
func hello(ctx context.Context, client *durable.Client) error {
	instance, err := durable.Start(ctx, client, HelloSequence, nil)
	if err != nil {
		return err
	}
	got, err := instance.Wait(ctx)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(helloGreetings, got); diff != "" {
		return fmt.Errorf("output (-want +got):\n%s", diff)
	}
	return nil
}

func TestLoad_TwoHundredHelloSequencesAtOnceAllComplete(t *testing.T) {
	client, _ := newHub(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := hello(ctx, client); err != nil { // makes the hub and waits for partitions
		t.Fatal(err)
	}
	began := time.Now()
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if err := hello(ctx, client); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	t.Logf("200 hello sequences took %v", time.Since(began).Round(time.Millisecond))
}

// The count is printed for whoever changes what an episode costs. Left out is
// what the hub does anyhow: polls that find nothing, leases, and the caller's
// own questions about the status.
func TestLoad_StorageOperationsOfAHelloSequence(t *testing.T) {
	client, counter := newHub(t)
	if err := hello(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	counter.Reset()
	const sequences = 20
	for range sequences {
		if err := hello(t.Context(), client); err != nil {
			t.Fatal(err)
		}
	}
	perSequence := func(call azuritetest.Call) bool {
		return call.Service != "blob" && !strings.HasSuffix(call.Target, "Partitions")
	}
	queries := func(call azuritetest.Call) bool {
		return call.Name == "QueryEntities" && strings.HasSuffix(call.Target, "Instances")
	}
	total := counter.Total(func(c azuritetest.Call) bool { return perSequence(c) && !queries(c) })
	t.Logf("%.1f storage operations a hello sequence, and %.1f questions about its status; of %d sequences:\n%s",
		float64(total)/sequences, float64(counter.Total(queries))/sequences, sequences, counter)
	if total == 0 {
		t.Error("nothing was counted")
	}
}
