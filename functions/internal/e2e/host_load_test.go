//go:build unix

package e2e_test

import (
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
)

// This test measures the overhead of the host. The times are meaningless on a machine that does other work,
// so it only runs on request: DURABLE_LOAD=1 go test ./functions/internal/e2e -run AThousand -v
func TestHost_AThousandStartsAtOnceAreAllAccepted(t *testing.T) {
	if os.Getenv("DURABLE_LOAD") == "" {
		t.Skip("measures times; run it alone with DURABLE_LOAD=1")
	}
	for _, storage := range []struct {
		name       string
		connection func() string
	}{
		{"a local file", func() string { return "" }},
		{"Azurite", func() string { return azuritetest.Start(t) }},
	} {
		t.Run(storage.name, func(t *testing.T) {
			a := startHost(t, e2eApp, newRoot(t, newHub(), storage.connection(), nil))
			a.burst("/api/accept", 100) // warm-up: the host compiles code that it has not run yet
			for _, path := range []string{"/api/accept", "/api/start"} {
				statuses, times := a.burst(path, 1000)
				t.Logf("1,000 at once to %s: %v, p50 %v, p95 %v, last %v", path, statuses, times[500], times[950], times[999])
				if statuses[http.StatusAccepted] != 1000 {
					t.Errorf("%s: statuses are %v, want 202 for all", path, statuses)
				}
			}
		})
	}
}

// burst sends n POST requests at the same time. It returns the number of responses by status, and the sorted
// response times. Status 0 counts requests without a response.
func (a *app) burst(path string, n int) (statuses map[int]int, times []time.Duration) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}, Timeout: 5 * time.Minute}
	defer client.CloseIdleConnections()
	statuses = map[int]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	gate := make(chan struct{})
	for range n {
		all.Go(func() {
			<-gate
			began, status := time.Now(), 0
			if resp, err := client.Post(a.url+path, "application/json", nil); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				status = resp.StatusCode
			}
			took := time.Since(began).Round(time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
			times = append(times, took)
		})
	}
	close(gate)
	all.Wait()
	slices.Sort(times)
	return statuses, times
}
