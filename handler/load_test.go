package handler

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
)

// A thousand concurrent callers, or a hundred under -short, each send four requests: a start, a start
// that waits until its timeout, an event, and an invocation. The invocations end only when all of them
// run. The server answers all requests and retains nothing.
func TestServer_ManyConcurrentCallersLeaveNothingBehind(t *testing.T) {
	hub := newFullHub()
	cfg := fakeConfig(t, hub)
	cfg.Logger, cfg.BehindHost, cfg.Address = quiet, true, "127.0.0.1:41000"
	callers := 1000
	if testing.Short() {
		callers = 100
	}
	patient := patience.Context(t)
	var waiting atomic.Int64
	all := make(chan struct{})
	app := App{Triggers: []Trigger{Manual("Run", func(context.Context, *Invocation, string) error {
		if waiting.Add(1) == int64(callers) {
			close(all)
		}
		select {
		case <-all:
			return nil
		case <-patient.Done():
			return fmt.Errorf("only %d are there", waiting.Load())
		}
	})}}
	s := readyServer(t, app, cfg)
	server := httptest.NewServer(s)
	transport := &http.Transport{MaxIdleConnsPerHost: callers, MaxConnsPerHost: callers}
	client := &http.Client{Transport: transport}
	post := func(path, body string, want int) error {
		r, err := http.NewRequest(http.MethodPost, server.URL+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		r.Host = cfg.Address // like the host
		r.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		if resp.StatusCode != want {
			return fmt.Errorf("%s: status %d", path, resp.StatusCode)
		}
		return nil
	}
	input := `"` + strings.Repeat("x", 10_000) + `"`
	before := usage()
	var running sync.WaitGroup
	for i := range callers {
		running.Go(func() {
			start := fmt.Sprintf("%sorchestrators/Greet/caller-%d", managed, i)
			for _, err := range []error{
				post(start+"-a", input, http.StatusAccepted),
				post(start+"-b?timeout=0.3&pollingInterval=0.1", input, http.StatusAccepted),
				post(managed+"instances/running/raiseEvent/E", input, http.StatusAccepted),
				post("/Run", manualBody, http.StatusOK),
			} {
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	transport.CloseIdleConnections()
	server.Close()
	hub.fakeHub.clear()
	var after used
	defer func() {
		t.Logf("%d goroutines and %d MiB of heap before, %d and %d after", before.goroutines, before.heap>>20, after.goroutines, after.heap>>20)
	}()
	patience.Until(t, "the server releases what the callers used", func() bool {
		after = usage()
		return after.goroutines <= before.goroutines+5 && after.heap <= before.heap+16<<20
	})
}

type used struct {
	goroutines int
	heap       uint64
}

func usage() used {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return used{runtime.NumGoroutine(), m.HeapAlloc}
}

// clear removes everything.
func (h *fakeHub) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.instances)
	h.sent, h.queries = nil, nil
}
