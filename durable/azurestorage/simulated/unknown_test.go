package simulated_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
)

// The delay before a redelivery grows to ten minutes. An unknown function that fails after ten
// minutes does not wait for the end of the last delay.
func TestUnknownFunction_FailsSoonAfterItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(azsim.Config{Seed: 5, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond})
		defer account.End()
		f := &fleet{
			T: t, account: account, began: time.Now(), running: map[string]*member{},
			config: azurestorage.Config{TaskHub: "Unknown", PartitionCount: 1, MaxQueuePollingInterval: 20 * time.Second},
		}
		defer func() { f.leave("one") }()
		hub, _ := f.hub("client", nil)
		client := durable.NewClient(hub, durable.NewRegistry())
		f.join("one", nil)
		began := time.Now()
		id, err := client.StartByName(t.Context(), "Unknown", nil)
		if err != nil {
			t.Fatal(err)
		}
		for {
			state, err := client.Status(t.Context(), id, durable.Fetch{})
			if err != nil {
				t.Fatal(err)
			}
			if state.Status == history.Failed {
				break
			}
			if time.Sleep(time.Second); time.Since(began) > 11*time.Minute {
				t.Fatalf("status %v after %v, want Failed", state.Status, time.Since(began))
			}
		}
		if took := time.Since(began); took < durable.DefaultUnknownFunctionTimeout {
			t.Errorf("it failed after %v, want the timeout", took)
		}
	})
}

// The instance that a start replaces is purged between the start's read of its row and its write.
func TestStart_ReplacesAnInstanceThatIsPurgedMeanwhile(t *testing.T) {
	var purge func()
	decide := func(r azsim.Request) azsim.Fault {
		if f := purge; f != nil && r.Worker == "client" && r.Operation == "UpdateEntity" {
			purge = nil
			f()
		}
		return azsim.None
	}
	withStarts(t, decide, func(f *fleet, starting, other *durable.Client) {
		start := func() (durable.InstanceID, error) {
			return starting.StartByName(f.Context(), "HelloSequence", nil, durable.InstanceID("a"))
		}
		if _, err := start(); err != nil {
			f.Fatal(err)
		}
		f.awaitDone(other, "a")
		purged := false
		purge = func() {
			_, err := other.Purge(context.WithoutCancel(f.Context()), "a")
			if purged = err == nil; !purged && !errors.Is(err, durable.ErrInstanceNotFound) {
				f.Errorf("purge: %v", err)
			}
		}
		if _, err := start(); err != nil || !purged {
			f.Fatalf("start: %v; purged: %v", err, purged)
		}
		f.awaitDone(other, "a")
	})
}
