package azurestorage

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func TestMain(m *testing.M) { azuritetest.Main(m) }

// hubNumber makes the hub names of parallel tests on Azurite unique.
var hubNumber atomic.Int32

func newHubName() string { return fmt.Sprintf("T%dx%d", os.Getpid(), hubNumber.Add(1)) }

// testConfig returns a configuration of a new hub with short intervals. The lease is short only in
// a bubble: on Azurite, a worker on a busy machine would lose it.
func testConfig(t testing.TB) Config {
	cfg := Config{
		TaskHub:                 newHubName(),
		PartitionCount:          1,
		MaxQueuePollingInterval: 100 * time.Millisecond,
		LeaseAcquireInterval:    200 * time.Millisecond,
		DrainTimeout:            2 * time.Second,
		MaxConcurrentActivities: 8,
		Logger:                  slog.New(newLogCapture(t)),
	}
	if _, ok := accounts.Load(t); ok {
		cfg.LeaseInterval = 3 * time.Second
		cfg.LeaseAcquireInterval = time.Second
		cfg.MaxQueuePollingInterval = time.Second
	}
	return cfg
}

// accounts holds the simulated accounts of the tests that run in a bubble.
var accounts sync.Map // *azsim.Account by testing.TB

// inBubble runs a test in virtual time on a simulated account. Use it for each test that runs a
// hub: leases, visibility timeouts and delays then last exactly as long as configured. The tests of
// package conformance run hubs on Azurite.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(azsim.Config{MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond})
		t.Cleanup(account.End)
		accounts.Store(t, account)
		f(t)
	})
}

// account returns the connection string of Azurite, or of the simulated account of the test's
// bubble. transport is nil for Azurite.
func account(t testing.TB) (connection string, transport policy.Transporter) {
	t.Helper()
	if a, ok := accounts.Load(t); ok {
		a := a.(*azsim.Account)
		return a.ConnectionString(), a.Worker(newHubName())
	}
	return azuritetest.Start(t), nil
}

// newCounter returns a transport that counts the requests to the test's account.
func newCounter(t testing.TB) *azuritetest.Counter { return azuritetest.NewCounter(account(t)) }

// openHub opens a hub on the test's account.
func openHub(t testing.TB, cfg Config) *TaskHub {
	t.Helper()
	connection, transport := account(t)
	if cfg.Transport == nil {
		cfg.Transport = transport
	}
	c, err := ParseConnectionString(connection)
	if err != nil {
		t.Fatal(err)
	}
	h, err := Open(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// runHub runs h until the test ends or stop is called. stop waits for the end of Run.
func runHub(t testing.TB, h *TaskHub) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(patience.Limit()):
			t.Error("Run did not return")
		}
	})
	t.Cleanup(stop)
	return stop
}

func startMessage(id, executionID, input string) provider.TaskMessage {
	instance := history.OrchestrationInstance{InstanceID: id, ExecutionID: executionID}
	return provider.TaskMessage{
		Target: instance,
		Event: &history.ExecutionStarted{
			Header: history.NewHeader(time.Now()), Instance: instance, Name: "HelloSeq", Input: &input,
		},
	}
}

func mustStart(t testing.TB, h *TaskHub, id, executionID, input string) {
	t.Helper()
	if err := h.StartInstance(patience.Context(t), startMessage(id, executionID, input), nil); err != nil {
		t.Fatal(err)
	}
}

func mustNext(t testing.TB, h *TaskHub) *provider.OrchestrationWorkItem {
	t.Helper()
	item, err := h.NextOrchestration(patience.Context(t))
	if err != nil {
		t.Fatalf("NextOrchestration: %v", err)
	}
	return item
}

func mustActivity(t testing.TB, h *TaskHub) *provider.ActivityWorkItem {
	t.Helper()
	item, err := h.NextActivity(patience.Context(t))
	if err != nil {
		t.Fatalf("NextActivity: %v", err)
	}
	return item
}

// logCapture records log lines and prints them if the test fails.
type logCapture struct {
	slog.Handler
	mu    *sync.Mutex
	lines *[]string
}

func newLogCapture(t testing.TB) *logCapture {
	c := &logCapture{mu: new(sync.Mutex), lines: new([]string)}
	c.Handler = slog.NewTextHandler(c, &slog.HandlerOptions{Level: slog.LevelDebug})
	t.Cleanup(func() {
		if t.Failed() {
			c.mu.Lock()
			defer c.mu.Unlock()
			t.Log(strings.Join(*c.lines, ""))
		}
	})
	return c
}

func (c *logCapture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.lines = append(*c.lines, string(p))
	return len(p), nil
}

// logged reports whether a log line contains all words.
func logged(h *TaskHub, words ...string) bool {
	c := h.cfg.Logger.Handler().(*logCapture)
	c.mu.Lock()
	defer c.mu.Unlock()
next:
	for _, line := range *c.lines {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue next
			}
		}
		return true
	}
	return false
}
