package simulated_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
)

// echo returns its input.
func echo(_ *durable.Context, text string) (string, error) { return text, nil }

// startBlobs returns the number of blobs with start messages.
func startBlobs(account *azsim.Account) (n int) {
	for _, b := range account.Blobs() {
		if strings.Contains(b.Name, "ExecutionStarted") {
			n++
		}
	}
	return n
}

// A rejected start leaves no blob. The blob is deleted immediately if the message is certainly in
// no queue, and otherwise later.
func TestRejectedStart_LeavesNoBlob(t *testing.T) {
	for name, tt := range map[string]struct {
		operation  string
		fault      azsim.Fault // injected into operation
		exists     bool        // the instance exists, so the start is rejected
		stays      bool        // the blob is not deleted immediately
		startsNext bool        // the same client starts another instance later; otherwise a worker runs
	}{
		"the queue is busy":              {operation: "PutMessage", fault: azsim.Throttle},
		"the blob may be written":        {operation: "PutBlob", fault: azsim.FailAfter},
		"requests to the queue are lost": {operation: "PutMessage", fault: azsim.FailBefore, stays: true, startsNext: true},
		"the message is in the queue":    {operation: "PutMessage", fault: azsim.FailAfter, stays: true},
		"the instance exists":            {exists: true},
		"the message cannot be deleted":  {operation: "DeleteMessage", fault: azsim.FailBefore, exists: true, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var faulty atomic.Bool
				account := azsim.New(azsim.Config{Seed: 5, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond, Decide: func(r azsim.Request) azsim.Fault {
					if faulty.Load() && r.Operation == tt.operation {
						return tt.fault
					}
					return azsim.None
				}})
				defer account.End()
				registry := durable.NewRegistry(durable.Orchestrator("echo", echo))
				client := durable.NewClient(openWith(t, "client", account, account.Worker("client")), registry)
				start := func(id durable.InstanceID, input string) error {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					_, err := durable.Start(ctx, client, echo, input, id)
					return err
				}
				blobs := func() int { return startBlobs(account) }
				if err := start("first", ""); err != nil { // creates the task hub
					t.Fatal(err)
				}
				if tt.exists {
					if err := start("i", ""); err != nil {
						t.Fatal(err)
					}
				}
				faulty.Store(true)
				if err := start("i", strings.Repeat("large ", 20_000)); err == nil {
					t.Fatal("the start succeeded, want an error")
				}
				faulty.Store(false)
				time.Sleep(time.Minute)
				if n := blobs(); n > 0 != tt.stays {
					t.Errorf("%d blobs after a minute, want some: %v", n, tt.stays)
				}
				ctx, stop := context.WithCancel(chance.With(t.Context(), account.Chance("w")))
				var running sync.WaitGroup
				if !tt.startsNext {
					hub := openWith(t, "w", account, account.Worker("w"))
					running.Go(func() {
						_ = durable.NewWorker(hub, registry, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
					})
				}
				time.Sleep(2 * time.Hour)
				if tt.startsNext {
					if err := start("next", ""); err != nil {
						t.Fatal(err)
					}
				}
				if n := blobs(); n > 0 {
					t.Errorf("%d blobs are left, want 0", n)
				}
				stop()
				running.Wait()
				if !tt.startsNext {
					for _, left := range leftovers(account) {
						t.Error(left)
					}
				}
			})
		})
	}
}

// A client deletes the blobs of earlier starts a few at a time, after a start. The deletion does not
// delay the start if the blob service is overloaded.
func TestStart_IsNotDelayedByBlobsOfEarlierStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refused atomic.Value // the operation that is refused
		refused.Store("")
		account := azsim.New(azsim.Config{Seed: 5, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond, Decide: func(r azsim.Request) azsim.Fault {
			switch {
			case r.Operation != refused.Load():
				return azsim.None
			case r.Operation == "PutMessage":
				return azsim.FailBefore
			}
			return azsim.Throttle
		}})
		defer account.End()
		client := durable.NewClient(openWith(t, "client", account, account.Worker("client")), durable.NewRegistry(durable.Orchestrator("echo", echo)))
		start := func(input string) (took time.Duration, err error) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			began := time.Now()
			_, err = durable.Start(ctx, client, echo, input)
			return time.Since(began), err
		}
		if _, err := start(""); err != nil { // creates the task hub
			t.Fatal(err)
		}
		const n = 20
		refused.Store("PutMessage")
		for range n {
			if _, err := start(strings.Repeat("large ", 20_000)); err == nil {
				t.Fatal("the start succeeded, want an error")
			}
		}
		if left := startBlobs(account); left != n {
			t.Fatalf("%d blobs, want %d", left, n)
		}
		time.Sleep(61 * time.Minute)
		refused.Store("DeleteBlob")
		if took, err := start(""); err != nil || took > 3*time.Second {
			t.Errorf("the start took %v: %v", took, err)
		}
		refused.Store("")
		time.Sleep(61 * time.Minute)
		starts := 0
		for ; startBlobs(account) > 0 && starts < n; starts++ {
			if took, err := start(""); err != nil || took > time.Second {
				t.Errorf("the start took %v: %v", took, err)
			}
		}
		if left := startBlobs(account); left > 0 || starts == 1 {
			t.Errorf("%d blobs are left after %d starts, want none after several starts", left, starts)
		}
	})
}
