package embedded_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/durable/provider/providertest"
)

func TestHub_KeepsThePromisesOfAProvider(t *testing.T) {
	t.Parallel()
	providertest.Exercise(t, func(t *testing.T) providertest.Hub { return exercised(t, embedded.Config{}) })
}

func TestHub_KeepsThePromisesOfAProviderWhenRelaxed(t *testing.T) {
	t.Parallel()
	providertest.ExerciseSample(t, 100, providertest.WithoutWrapper, func(t *testing.T) providertest.Hub { return exercised(t, embedded.Config{Relaxed: true}) })
}

func exercised(t *testing.T, cfg embedded.Config) providertest.Hub {
	t.Parallel()
	cfg.AbandonDelay = 150 * time.Millisecond
	cfg.DrainTimeout = 300 * time.Millisecond
	cfg.Logger = slog.New(slog.DiscardHandler)
	path := filepath.Join(t.TempDir(), "hub.db")
	hub := open(t, path, cfg)
	return providertest.Hub{
		Provider: hub,
		Reopen: func(t *testing.T) provider.Provider {
			if err := hub.Close(); err != nil {
				t.Fatalf("Close: %v", err)
			}
			hub = open(t, path, cfg)
			return hub
		},
		// A copy of the files shows what a process that dies leaves behind. The hub is small, so
		// nothing is written to the database meanwhile.
		Kill: func(t *testing.T) provider.Provider {
			path = filepath.Join(t.TempDir(), "hub.db")
			for _, suffix := range []string{".journal-0", ".journal-1", ""} {
				copyFile(t, hub.Path()+suffix, path+suffix)
			}
			hub = open(t, path, cfg)
			return hub
		},
		OpenEmpty: func(t *testing.T) provider.Provider {
			return open(t, filepath.Join(t.TempDir(), "hub.db"), cfg)
		},
		Damage: func(t *testing.T, id string) {
			if err := hub.Damage(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		},
		Quiet:        60 * time.Millisecond,
		DrainTimeout: cfg.DrainTimeout,
		IsRealTime:   true,
		AbandonDelay: cfg.AbandonDelay,
		Order:        providertest.OrderAlways,
	}
}

// open opens a hub and closes it at the end of the test.
func open(tb testing.TB, path string, cfg embedded.Config) *embedded.Hub {
	tb.Helper()
	hub, err := embedded.Open(path, cfg)
	if err != nil {
		tb.Fatalf("Open: %v", err)
	}
	tb.Cleanup(func() {
		if err := hub.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return hub
}

// run runs a hub until the end of the test, or until stop is called.
func run(tb testing.TB, hub *embedded.Hub) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // stop waits for it
		defer close(done)
		if err := hub.Run(ctx); err != nil && !errors.Is(err, embedded.ErrClosed) {
			tb.Errorf("Run: %v", err)
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	tb.Cleanup(stop)
	return stop
}

func copyFile(tb testing.TB, from, to string) {
	tb.Helper()
	src, err := os.Open(from)
	if err != nil {
		tb.Fatal(err)
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := io.Copy(dst, src); err != nil {
		tb.Fatal(err)
	}
	if err := dst.Close(); err != nil {
		tb.Fatal(err)
	}
}
