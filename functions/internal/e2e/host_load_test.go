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

// The times are for whoever wants to know what the host adds; they say little
// on a machine that does other things, too. So this test runs when it is asked
// for: DURABLE_LOAD=1 go test ./functions/internal/e2e -run AThousand -v
func TestHost_AThousandStartsAtOnceAreAllAccepted(t *testing.T) {
	if os.Getenv("DURABLE_LOAD") == "" {
		t.Skip("its times say little beside other tests; DURABLE_LOAD=1 asks for it")
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
			a.burst("/api/accept", 100) // the host compiles what it has not run yet
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

// burst posts so many requests at once, and returns how often each status came
// and, sorted, how long the answers took. Status 0 is for no answer.
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
