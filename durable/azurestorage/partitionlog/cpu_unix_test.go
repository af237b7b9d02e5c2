//go:build unix

package partitionlog_test

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/appendblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

func empty(*durable.Context, durable.Void) (durable.Void, error) { return durable.Void{}, nil }

// BenchmarkCPU measures the CPU time of steps, which TestFigures_OnAStandardAccount uses. It
// measures the CPU time of the process, not the elapsed time. It runs the same engine on a local
// file that does not wait for the disk.
func BenchmarkCPU(b *testing.B) {
	registry := durable.NewRegistry(
		durable.Orchestrator("HelloCities5", helloCities5), durable.Orchestrator("Empty", empty), durable.Activity("Greet", greet))
	for _, name := range []string{"Empty", "HelloCities5"} {
		b.Run(name, func(b *testing.B) {
			quiet := slog.New(slog.DiscardHandler)
			h, err := embedded.Open(filepath.Join(b.TempDir(), "hub"), embedded.Config{Relaxed: true, Logger: quiet})
			if err != nil {
				b.Fatal(err)
			}
			ctx, stop := context.WithCancel(b.Context())
			ended := make(chan error)
			go func() { ended <- durable.NewWorker(h, registry, durable.Config{Logger: quiet}).Run(ctx) }()
			c := durable.NewClient(h, registry)
			before := cpuTime(b)
			var all errgroup.Group
			all.SetLimit(64)
			for range b.N {
				all.Go(func() error {
					id, err := c.StartByName(ctx, name, nil)
					if err == nil {
						err = h.AwaitEnd(ctx, string(id))
					}
					return err
				})
			}
			if err := all.Wait(); err != nil {
				b.Fatal(err)
			}
			reportCPU(b, before)
			stop()
			if err := <-ended; err != nil {
				b.Error(err)
			}
			if err := h.Close(); err != nil {
				b.Error(err)
			}
		})
	}
	b.Run("request", func(b *testing.B) {
		c, err := container.NewClientFromConnectionString(azuritetest.Start(b), "c"+strings.ToLower(uuid.NewString()), nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.Create(b.Context(), nil); err != nil {
			b.Fatal(err)
		}
		blob := c.NewAppendBlobClient("log")
		if _, err := blob.Create(b.Context(), nil); err != nil {
			b.Fatal(err)
		}
		block := bytes.Repeat([]byte("x"), 16<<10)
		before := cpuTime(b)
		for range b.N {
			if _, err := blob.AppendBlock(b.Context(), seekable{bytes.NewReader(block)}, &appendblob.AppendBlockOptions{}); err != nil {
				b.Fatal(err)
			}
		}
		reportCPU(b, before)
	})
}

type seekable struct{ *bytes.Reader }

func (seekable) Close() error { return nil }

func reportCPU(b *testing.B, before time.Duration) {
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
}

// cpuTime returns the CPU time of this process.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
