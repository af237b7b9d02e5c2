package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

const word = durable.Event[string]("Word")

// listen returns the word that it receives.
func listen(ctx *durable.Context, _ durable.Void) (string, error) { return word.Wait(ctx).Await() }

// interrupt calls listen with the ID of a running instance, and again after that instance has
// ended.
func interrupt(ctx *durable.Context, _ durable.Void) (string, error) {
	_, err := durable.CallSubOrchestrator(ctx, listen, durable.Void{}, durable.InstanceID("listener")).Await()
	var exists *provider.InstanceExistsError
	if !errors.As(err, &exists) || exists.InstanceID != "listener" {
		return "", fmt.Errorf("want an InstanceExistsError: %w", err)
	}
	ctx.SetCustomStatus(err.Error())
	if _, err := word.Wait(ctx).Await(); err != nil {
		return "", err
	}
	return durable.CallSubOrchestrator(ctx, listen, durable.Void{}, durable.InstanceID("listener")).Await()
}

func TestChild_WithTheIDOfARunningInstanceFails(t *testing.T) {
	t.Parallel()
	connection, err := azurestorage.ParseConnectionString(azuritetest.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	hub, err := azurestorage.Open(connection, azurestorage.Config{
		TaskHub: fmt.Sprintf("Child%dx%d", os.Getpid(), hubNumber.Add(1)), PartitionCount: 2, MaxQueuePollingInterval: 100 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	r := durable.NewRegistry(durable.Orchestrator("Listen", listen), durable.Orchestrator("Interrupt", interrupt))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- durable.NewWorker(hub, r, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	patient := patience.Context(t)
	c := durable.NewClient(hub, r)
	listener, err := durable.Start(patient, c, listen, durable.Void{}, durable.InstanceID("listener"))
	if err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the instance waits for the event", func() bool {
		past, err := listener.History(patient)
		if err != nil {
			t.Fatal(err)
		}
		return len(past) > 0
	})
	before, err := listener.History(patient)
	if err != nil {
		t.Fatal(err)
	}
	parent, err := durable.Start(patient, c, interrupt, durable.Void{}, durable.InstanceID("parent"))
	if err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the call of the running instance fails", func() bool {
		s, err := parent.Status(patient, durable.Fetch{})
		if err != nil {
			t.Fatal(err)
		}
		return s.CustomStatus != nil
	})
	after, err := listener.History(patient)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(after, before); diff != "" {
		t.Errorf("the running instance has changed (-after +before):\n%s", diff)
	}
	if err := word.Raise(patient, c, listener.ID, "first"); err != nil {
		t.Fatal(err)
	}
	if out, err := listener.Wait(patient); err != nil || out != "first" {
		t.Errorf("the listener returned %q, %v", out, err)
	}
	if err := word.Raise(patient, c, parent.ID, "go on"); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the instance runs again", func() bool {
		s, err := listener.Status(patient, durable.Fetch{})
		if err != nil {
			t.Fatal(err)
		}
		return s.Status == history.Running
	})
	if err := word.Raise(patient, c, listener.ID, "second"); err != nil {
		t.Fatal(err)
	}
	if out, err := parent.Wait(patient); err != nil || out != "second" {
		t.Errorf("the parent returned %q, %v", out, err)
	}
}
