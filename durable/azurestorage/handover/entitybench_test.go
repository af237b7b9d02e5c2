package handover_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
)

// benchHub runs a worker on a new hub until the benchmark ends.
func benchHub(b *testing.B, name string) *durable.Client {
	b.Helper()
	connection, err := azurestorage.ParseConnectionString(azuritetest.Start(b))
	if err != nil {
		b.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	hub := fmt.Sprintf("B%sx%dx%d", name, os.Getpid(), time.Now().UnixNano()%1e9)
	storage, err := azurestorage.Open(connection, azurestorage.Config{TaskHub: hub, MaxQueuePollingInterval: 100 * time.Millisecond, Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	registry := durable.NewRegistry(functions...)
	ctx, stop := context.WithCancel(context.WithoutCancel(b.Context()))
	done := make(chan error, 1)
	go func() { done <- durable.NewWorker(storage, registry, durable.Config{Logger: quiet}).Run(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	return durable.NewClient(storage, registry)
}

// BenchmarkEntitySignals sends signals to one or to many entities in Azurite, 32 at the same time,
// and waits until all took effect.
func BenchmarkEntitySignals(b *testing.B) {
	const signals = 500
	for _, entities := range []int{1, 100} {
		b.Run(fmt.Sprintf("entities=%d", entities), func(b *testing.B) {
			client := benchHub(b, fmt.Sprintf("S%d", entities))
			key := func(n int) durable.EntityKey[Counter] { return durable.EntityKey[Counter](fmt.Sprint("k", n%entities)) }
			for i := 1; b.Loop(); i++ {
				sendAll(b, signals, func(n int) error { return durable.Signal(b.Context(), client, key(n), (*Counter).Add, 1) })
				for n := range entities {
					for {
						c, err := durable.ReadEntity(b.Context(), client, key(n))
						if err == nil && int(c) == i*signals/entities {
							break
						}
						if err != nil && !errors.Is(err, durable.ErrEntityNotFound) {
							b.Fatal(err)
						}
						time.Sleep(5 * time.Millisecond)
					}
				}
			}
			b.ReportMetric(float64(b.N)*signals/b.Elapsed().Seconds(), "operations/s")
		})
	}
}

// sendAll calls send for the numbers from 0 to n-1, 32 at the same time.
func sendAll(b *testing.B, n int, send func(int) error) {
	b.Helper()
	numbers := make(chan int)
	var senders sync.WaitGroup
	for range 32 {
		senders.Go(func() {
			for i := range numbers {
				if err := send(i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	senders.Wait()
}
