package durable_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// renderFarm is a service that accepts a request immediately and has a URL to poll for
// the result.
func renderFarm() *httptest.Server {
	asked := 0
	mux := http.NewServeMux()
	mux.HandleFunc("POST /films", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/films/1")
		w.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("GET /films/1", func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked < 3 {
			w.WriteHeader(http.StatusAccepted) // not done: poll again
			return
		}
		_, _ = io.WriteString(w, "film 1, rendered")
	})
	return httptest.NewServer(mux)
}

func render(ctx *durable.Context, farm string) (string, error) {
	resp, err := durable.CallHTTP(ctx, durable.HTTPRequest{
		Method:       "POST",
		URL:          farm + "/films",
		Content:      `{"title":"Metropolis"}`,
		Header:       http.Header{"Content-Type": {"application/json"}},
		PollInterval: time.Millisecond,
		TotalTimeout: time.Hour,
		RetryStatus:  []int{http.StatusTooManyRequests, http.StatusServiceUnavailable},
	}, durable.RetryPolicy{MaxAttempts: 3, FirstInterval: time.Second, Coefficient: 2}).Await()
	if err != nil {
		return "", err
	}
	return fmt.Sprint(resp.StatusCode, ": ", resp.Content), nil
}

// Call a service that takes long. Nothing runs between the requests.
func ExampleCallHTTP() {
	farm := renderFarm()
	defer farm.Close()
	registry := durable.NewRegistry(durable.Orchestrator("Render", render))
	runExample(registry, render, farm.URL)
	// Output: 200: film 1, rendered
}
