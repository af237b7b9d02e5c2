package handler

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// A thousand callers at a time, each with a start, a wait for its end that is in
// vain and an event: all are answered, and nothing of it stays.
func TestServer_AThousandCallersAtATimeLeaveNothingBehind(t *testing.T) {
	hub := newFullHub()
	cfg := fakeConfig(t, hub)
	cfg.Logger = quiet
	s := readyServer(t, App{}, cfg)
	server := httptest.NewServer(s)
	transport := &http.Transport{MaxIdleConnsPerHost: 2000, MaxConnsPerHost: 1000}
	client := &http.Client{Transport: transport}
	post := func(path, body string) error {
		resp, err := client.Post(server.URL+managed+path, "application/json", strings.NewReader(body))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusAccepted {
			return fmt.Errorf("%s: status %d", path, resp.StatusCode)
		}
		return nil
	}
	input := `"` + strings.Repeat("x", 10_000) + `"`
	before := usage()
	round := func() {
		var callers sync.WaitGroup
		for i := range 1000 {
			callers.Go(func() {
				id := fmt.Sprintf("caller-%d", i)
				for _, err := range []error{
					post("orchestrators/Greet/"+id+"-a", input),
					post("orchestrators/Greet/"+id+"-b?timeout=0.3&pollingInterval=0.1", input),
					post("instances/running/raiseEvent/E", input),
				} {
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
	}
	round()
	transport.CloseIdleConnections()
	server.Close()
	hub.fakeHub.clear()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		after := usage()
		if after.goroutines <= before.goroutines+5 && after.heap <= before.heap+16<<20 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines and %d MiB of heap before, %d and %d after", before.goroutines, before.heap>>20, after.goroutines, after.heap>>20)
		}
	}
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

// clear forgets everything.
func (h *fakeHub) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.instances)
	h.sent, h.queries = nil, nil
}
