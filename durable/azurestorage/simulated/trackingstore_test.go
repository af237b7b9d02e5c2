package simulated_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
	"github.com/google/go-cmp/cmp"
)

// twoAccounts sends each request to the account that its host name selects.
type twoAccounts struct{ queues, store *azsim.Worker }

// Do implements policy.Transporter.
func (a twoAccounts) Do(req *http.Request) (*http.Response, error) {
	if strings.HasPrefix(req.URL.Hostname(), "store.") {
		return a.store.Do(req)
	}
	return a.queues.Do(req)
}

// openDivided returns a hub with its queues in one account and its tables and blobs in another.
func openDivided(t *testing.T, name string, queues, store *azsim.Account, manager azurestorage.PartitionManager) *azurestorage.TaskHub {
	t.Helper()
	first, err := azurestorage.ParseConnectionString(queues.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	second, err := azurestorage.ParseConnectionString(strings.Replace(store.ConnectionString(), "AccountName=sim;", "AccountName=store;", 1))
	if err != nil {
		t.Fatal(err)
	}
	hub, err := azurestorage.Open(first.WithTrackingStore(second), azurestorage.Config{
		TaskHub: "Divided", TrackingStoreNamePrefix: "Elsewhere", PartitionCount: 2, WorkerID: name, PartitionManager: manager,
		JumpStart: azurestorage.JumpStart{Enabled: true},
		Transport: twoAccounts{queues.Worker(name), store.Worker(name)}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return hub
}

// containers returns the names of the containers that have blobs, in order.
func containers(a *azsim.Account) []string {
	var names []string
	for _, b := range a.Blobs() {
		if len(names) == 0 || names[len(names)-1] != b.Container {
			names = append(names, b.Container)
		}
	}
	return names
}

// The queues are in the hub's account, the tables and blobs in the tracking store. Only the History
// and Instances tables have its prefix (DurableTask.AzureStorage/Storage/AzureStorageClient.cs,
// constructor; AzureStorageOrchestrationServiceSettings.cs, HistoryTableName and others).
func TestTrackingStore_HasTheTablesAndBlobsOfDotNet(t *testing.T) {
	for _, tt := range []struct {
		manager    azurestorage.PartitionManager
		tables     []string
		containers []string
	}{
		{
			azurestorage.TablePartitions,
			[]string{"DividedPartitions", "ElsewhereHistory", "ElsewhereInstances", "JumpStart00Divided"},
			[]string{"divided-applease", "divided-largemessages"},
		},
		{
			azurestorage.SafeBlobLeases,
			[]string{"ElsewhereHistory", "ElsewhereInstances", "JumpStart00Divided"},
			[]string{"divided-applease", "divided-largemessages", "divided-leases"},
		},
	} {
		t.Run(tt.manager.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				queues, store := azsim.New(azsim.Config{Seed: 1}), azsim.New(azsim.Config{Seed: 2})
				defer store.Wait()
				defer queues.Wait()
				runDivided(t, queues, store, tt.manager)
				got := [][]string{queues.Queues(), queues.Tables(), containers(queues), store.Queues(), store.Tables(), containers(store)}
				want := [][]string{{"divided-control-00", "divided-control-01", "divided-workitems"}, nil, nil, nil, tt.tables, tt.containers}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("queues, tables and containers of both accounts, -want +got:\n%s", diff)
				}
				if err := openDivided(t, "deleter", queues, store, tt.manager).Delete(t.Context(), false); err != nil {
					t.Fatal(err)
				}
				if left := fmt.Sprint(queues.Queues(), store.Tables(), containers(store)); left != "[] [] []" {
					t.Errorf("left after the hub was deleted: %s", left)
				}
			})
		})
	}
}

// runDivided runs a hello sequence with a large tag on a divided hub.
func runDivided(t *testing.T, queues, store *azsim.Account, manager azurestorage.PartitionManager) {
	registry := durable.NewRegistry(durable.Orchestrator("HelloSequence", helloSequence), durable.Activity("SayHello", sayHello))
	ctx, stop := context.WithCancel(chance.With(t.Context(), queues.Chance("w1")))
	stopped := make(chan error, 1)
	go func() {
		worker := durable.NewWorker(openDivided(t, "w1", queues, store, manager), registry, durable.Config{Logger: slog.New(slog.DiscardHandler)})
		stopped <- worker.Run(ctx)
	}()
	time.Sleep(time.Minute)
	client := durable.NewClient(openDivided(t, "client", queues, store, manager), registry)
	large := durable.Tags{"large": strings.Repeat("x", 70_000)}
	instance, err := durable.Start(ctx, client, helloSequence, durable.Void{}, durable.InstanceID("hello"), large)
	if err != nil {
		t.Fatal(err)
	}
	if greetings, err := instance.Wait(ctx); err != nil || len(greetings) != 3 {
		t.Errorf("the sequence returned %q, %v", greetings, err)
	}
	stop()
	if err := <-stopped; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v", err)
	}
}
