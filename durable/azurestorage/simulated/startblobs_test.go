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
				blobs := func() (n int) {
					for _, b := range account.Blobs() {
						if strings.Contains(b.Name, "ExecutionStarted") {
							n++
						}
					}
					return n
				}
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
