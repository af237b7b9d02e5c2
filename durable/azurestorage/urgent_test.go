package azurestorage

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/leases"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Renewals of messages and leases do not wait behind other requests, because they would be late.
func TestPace_DoesNotDelayRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(azsim.Config{MaxLatency: time.Millisecond})
		defer account.End()
		c, err := ParseConnectionString(account.ConnectionString())
		if err != nil {
			t.Fatal(err)
		}
		h, err := Open(c, Config{TaskHub: "Sim", PartitionCount: 1, Transport: account.Worker("w")})
		if err != nil {
			t.Fatal(err)
		}
		event := provider.TaskMessage{
			Target: history.OrchestrationInstance{InstanceID: "i"}, Event: &history.EventRaised{Header: header(history.NoEventID), Name: "E"},
		}
		if err := h.Send(t.Context(), event); err != nil {
			t.Fatal(err)
		}
		queue := h.partitions[0].Queue()
		got, err := queue.Receive(t.Context(), 1, h.held.ControlTimeout)
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		held := h.held.Hold(queue, got, h.held.ControlTimeout, func() {})
		for _, p := range []*store.Pace{h.services.QueuePace, h.services.TablePace} {
			for range p.MaxInFlight { // requests without a response
				if err := p.AwaitTurn(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*h.held.ControlTimeout)
		defer cancel()

		go h.held.Renew(ctx, func(int) {})
		time.Sleep(2 * h.held.ControlTimeout)
		if inflight.AnyLost(held) {
			t.Error("the message is visible: its renewal has waited")
		}
		if _, err := leases.ReadRows(ctx, h.leases.Table); err != nil {
			t.Errorf("cannot read the partition rows: %v", err)
		}
		if _, err := queue.Length(ctx); err == nil {
			t.Error("a request that is not urgent did not wait")
		}
	})
}
