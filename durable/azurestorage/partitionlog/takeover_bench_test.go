package partitionlog_test

import (
	"context"
	"flag"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"golang.org/x/sync/errgroup"
)

var baseSize = flag.Int("base", 64, "how large the base of the partition is that BenchmarkHandOver hands over, in MB")

// keep is an orchestrator whose input is stored in its history.
func keep(_ *durable.Context, _ string) (durable.Void, error) { return durable.Void{}, nil }

var keepers = durable.NewRegistry(durable.Orchestrator("Keep", keep))

// takeOverConfig is the configuration of a hub with one partition.
func takeOverConfig(transport policy.Transporter) partitionlog.Config {
	return partitionlog.Config{
		TaskHub: "TakeOver", PartitionCount: 1, LeaseInterval: 15 * time.Second, BalanceInterval: 500 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler), Transport: transport,
	}
}

// noBase rejects writes of base files, so that the log grows, and counts the appended bytes.
type noBase struct {
	*azuritetest.Counter
	appended atomic.Int64
}

func (n *noBase) Do(r *http.Request) (*http.Response, error) {
	switch {
	case r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/base-"):
		return azuritetest.ErrorResponse(r, http.StatusServiceUnavailable, "ServerBusy"), nil
	case r.URL.Query().Get("comp") == "appendblock":
		n.appended.Add(r.ContentLength)
	}
	return n.Counter.Do(r)
}

// worked opens the hub and runs a worker until stop is called.
func worked(b *testing.B, transport policy.Transporter) (h *partitionlog.Hub, stop func()) {
	b.Helper()
	h = opened(b, transport)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() { // stop waits for it
		defer close(done)
		_ = durable.NewWorker(h, keepers, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(ctx) // fails if it was killed
	}()
	return h, func() {
		cancel()
		<-done
		_ = h.Close() // a killed process cannot release anything
	}
}

func opened(b *testing.B, transport policy.Transporter) *partitionlog.Hub {
	b.Helper()
	c, err := azurestorage.ParseConnectionString(azuritetest.Start(b))
	if err != nil {
		b.Fatal(err)
	}
	h, err := partitionlog.Open(c, takeOverConfig(transport))
	if err != nil {
		b.Fatal(err)
	}
	return h
}

// baseBytes returns the size of the partition's base files.
func baseBytes(b *testing.B) (all int64) {
	b.Helper()
	c, err := azblob.NewClientFromConnectionString(azuritetest.Start(b), nil)
	if err != nil {
		b.Fatal(err)
	}
	files := c.NewListBlobsFlatPager("takeover-log", &azblob.ListBlobsFlatOptions{Prefix: new("p00/base-")})
	for files.More() {
		page, err := files.NextPage(b.Context())
		if bloberror.HasCode(err, bloberror.ContainerNotFound) {
			return 0
		}
		if err != nil {
			b.Fatal(err)
		}
		for _, f := range page.Segment.BlobItems {
			all += *f.Properties.ContentLength
		}
	}
	return all
}

func remove(b *testing.B) {
	b.Helper()
	h := opened(b, nil)
	if err := h.Delete(b.Context(), true); err != nil {
		b.Fatal(err)
	}
	_ = h.Close()
}

// fill completes instances with inputs of inputSize bytes until enough returns true.
func fill(b *testing.B, h *partitionlog.Hub, inputSize int, enough func(instances int) bool) {
	b.Helper()
	c := durable.NewClient(h, keepers)
	input := strings.Repeat("0123456789abcdef", inputSize/16)
	var all errgroup.Group
	all.SetLimit(16)
	for n := 0; !enough(n); n++ {
		all.Go(func() error {
			i, err := durable.Start(b.Context(), c, keep, input)
			if err == nil {
				_, err = i.Wait(b.Context())
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkTakeOver kills the owner of a partition whose log has 64 MB that the base lacks. It
// measures the time until another process answers. The lease is 15 s; up to 5 s of it have passed
// when the process dies.
func BenchmarkTakeOver(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		alive := new(atomic.Bool)
		alive.Store(true)
		transport := &noBase{Counter: azuritetest.WhileAlive(azuritetest.Start(b), alive)}
		h, stop := worked(b, transport)
		fill(b, h, 16<<10, func(int) bool { return transport.appended.Load() >= 64<<20 })
		alive.Store(false)
		b.StartTimer()
		died := time.Now()
		next, stopNext := worked(b, nil)
		if _, err := durable.Start(b.Context(), durable.NewClient(next, keepers), keep, ""); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(died).Seconds(), "s-without-owner")
		b.StopTimer()
		stop()
		stopNext()
		remove(b)
		b.StartTimer()
	}
}

// BenchmarkHandOver starts a second worker and stops the first one cleanly. It measures the longest
// time that a client waits for an answer meanwhile. -base=5120 makes a base of 5 GB.
func BenchmarkHandOver(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		a, stop := worked(b, nil)
		fill(b, a, 32<<10, func(n int) bool { return n%500 == 0 && baseBytes(b) >= int64(*baseSize)<<20 })
		h := opened(b, nil)
		client := durable.NewClient(h, keepers)
		var longest time.Duration
		var over atomic.Bool
		var asking errgroup.Group
		asking.Go(func() error {
			for !over.Load() {
				began := time.Now()
				if _, err := durable.Start(b.Context(), client, keep, ""); err != nil {
					return err
				}
				longest = max(longest, time.Since(began))
			}
			return nil
		})
		time.Sleep(2 * time.Second)
		b.StartTimer()
		_, stopNext := worked(b, nil)
		time.Sleep(2 * time.Second)
		stop()
		time.Sleep(2 * time.Second)
		b.StopTimer()
		over.Store(true)
		if err := asking.Wait(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(longest.Seconds(), "s-longest-answer")
		_ = h.Close()
		stopNext()
		remove(b)
		b.StartTimer()
	}
}
