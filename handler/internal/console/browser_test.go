package console_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/handler"
	"github.com/durablefunctions-go/durablefunctions/handler/browsertest"
	"github.com/labstack/echo/v4"
)

const (
	theKey     = "the key of this test"
	theReadKey = "the read key of this test"
)

// An app is a running app, by default on an embedded hub.
type app struct {
	url    string // of the console
	client *durable.Client
}

// startApp starts an app until the test ends.
func startApp(t *testing.T, functions []*durable.Registration, changes ...func(*handler.Config)) app {
	t.Helper()
	address, listening := newAddress()
	cfg := handler.Config{
		Address: "127.0.0.1:0", RoutePrefix: "api", Logger: slog.New(address), StorageType: handler.Embedded,
		Embedded: handler.EmbeddedConfig{Path: filepath.Join(t.TempDir(), "hub.db"), Relaxed: true},
	}
	cfg.Storage.TaskHub = "TestHub"
	for _, change := range changes {
		if change != nil {
			change(&cfg)
		}
	}
	var a app
	s := handler.New(handler.App{Registrations: functions, Routes: func(_ *echo.Group, c *durable.Client) { a.client = c }}, cfg)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	a.url = <-listening
	patience.Until(t, "the app opens the hub", func() bool {
		answer, err := http.Get(a.url + "/health/ready")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	a.url += "/api/durabletask/console"
	return a
}

// await waits until an instance has a status.
func (a app) await(t *testing.T, id durable.InstanceID, status string) {
	t.Helper()
	patience.Until(t, fmt.Sprintf("instance %s is %s", id, status), func() bool {
		state, err := a.client.Status(t.Context(), id, durable.Fetch{})
		if err != nil {
			t.Fatal(err)
		}
		return state.Status.String() == status
	})
}

// awaitEvent waits until an instance waits for an event. A page shows the reasons at the time when it
// was opened.
func (a app) awaitEvent(t *testing.T, id durable.InstanceID, name string) {
	t.Helper()
	patience.Until(t, fmt.Sprintf("instance %s waits for event %s", id, name), func() bool {
		wait, err := a.client.Why(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(wait.Reasons, func(r durable.Reason) bool { return r.Kind == durable.ReasonEvent && r.Name == name })
	})
}

// An addressLog is a log handler that sends the address on which the server listens.
type addressLog struct {
	slog.Handler
	to chan string
}

func newAddress() (addressLog, chan string) {
	to := make(chan string, 1)
	return addressLog{slog.DiscardHandler, to}, to
}

func (l addressLog) Enabled(context.Context, slog.Level) bool { return true }

func (l addressLog) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if r.Message == "listening" && a.Key == "address" {
			l.to <- a.Value.String()
		}
		return true
	})
	return nil
}

func (l addressLog) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l addressLog) WithGroup(string) slog.Handler      { return l }

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	browsertest.Stop()
	os.Exit(code)
}
