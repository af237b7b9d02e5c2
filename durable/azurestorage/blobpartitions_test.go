package azurestorage

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func TestConfig_RejectsInvalidBlobLeases(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{PartitionManager: SafeBlobLeases, LeaseInterval: 14 * time.Second, LeaseAcquireInterval: time.Second}, "LeaseInterval is 14s; want 15s to 1m0s"},
		{Config{PartitionManager: LegacyBlobLeases, LeaseInterval: 2 * time.Minute}, "LeaseInterval is 2m0s; want 15s to 1m0s"},
		{Config{PartitionManager: 7}, "PartitionManager is PartitionManager(7)"},
		{Config{AppLease: AppLease{Interval: time.Second}}, "AppLease.Interval is 1s; want 15s to 1m0s"},
		{Config{AppLease: AppLease{RenewInterval: time.Hour}}, "AppLease.RenewInterval is 1h0m0s; want less than Interval, which is 1m0s"},
		{Config{AppLease: AppLease{AcquireInterval: 48 * time.Hour}}, "AppLease.AcquireInterval is 48h0m0s"},
	} {
		if err := c.cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Validate returned %v, want %q", err, c.want)
		}
	}
}

// The slow cases are in package simulated.
func TestBlobPartitions_AreLeasedProcessedAndReleased(t *testing.T) {
	t.Parallel()
	for _, m := range []PartitionManager{SafeBlobLeases, LegacyBlobLeases} {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				cfg := testConfig(t)
				cfg.PartitionManager, cfg.PartitionCount, cfg.WorkerID = m, 2, "one"
				cfg.LeaseInterval, cfg.LeaseAcquireInterval = 15*time.Second, 500*time.Millisecond
				first := openHub(t, cfg)
				cfg.WorkerID = "two"
				second := openHub(t, cfg)
				stopFirst := runHub(t, first)
				stopSecond := runHub(t, second)
				reads := func(h *TaskHub) (n int) {
					for _, p := range h.partitions {
						if p.IsListening() {
							n++
						}
					}
					return n
				}
				patience.Until(t, "each worker owns one partition", func() bool { return reads(first) == 1 && reads(second) == 1 })
				for i := range 6 {
					mustStart(t, first, fmt.Sprintf("i%d", i), fmt.Sprintf("e%d", i), `1`)
				}
				items := itemsOf(patience.Context(t), first, second)
				for range 6 {
					item, ok := <-items
					if !ok {
						t.Fatal("not all instances were dispatched")
					}
					if err := item.Session.Commit(t.Context(), &provider.Checkpoint{Instance: item.Instance}); err != nil {
						t.Error(err)
					}
					if err := item.Session.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
				stopFirst()
				patience.Until(t, "the second worker owns both partitions", func() bool { return reads(second) == 2 })
				stopSecond()
				for _, folder := range []string{"default", "intent", "ownership"} {
					left, err := second.leases.Leases(t.Context(), folder)
					if err != nil {
						t.Fatal(err)
					}
					for _, l := range left {
						if l.Leased || l.Owner != "" || l.Epoch == 0 {
							t.Errorf("after the stop, lease %s/%s is %+v; want it released, with an epoch", folder, l.Partition, l)
						}
					}
				}
			})
		})
	}
}

// itemsOf returns the work items that hubs dispatch until ctx ends.
func itemsOf(ctx context.Context, hubs ...*TaskHub) <-chan *provider.OrchestrationWorkItem {
	items := make(chan *provider.OrchestrationWorkItem)
	var fetching sync.WaitGroup
	for _, h := range hubs {
		fetching.Go(func() {
			for {
				item, err := h.NextOrchestration(ctx)
				if err != nil {
					return
				}
				items <- item
			}
		})
	}
	go func() {
		fetching.Wait()
		close(items)
	}()
	return items
}
