package durable_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
	"github.com/google/go-cmp/cmp"
)

// Every episode of the test kit is also replayed from the start.
func TestCallHTTP_CanBeTestedWithoutAService(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, durable.Orchestrator("RunJob", runJob))
	asked := 0
	durabletest.StubName(hub, durable.HTTPActivityName, func(_ context.Context, r durable.HTTPRequest) (durable.HTTPResponse, error) {
		if asked++; asked < 4 {
			return durable.HTTPResponse{StatusCode: 202, Header: http.Header{"Location": {"/jobs/7"}, "Retry-After": {"3600"}}}, nil
		}
		return durable.HTTPResponse{StatusCode: 200, Content: r.Method + " " + r.URL}, nil
	})
	if got, err := durabletest.Run(hub, runJob, durable.Void{}); err != nil || got != "200 GET https://jobs.example/jobs/7" {
		t.Errorf("%q, %v", got, err)
	}
	if got := hub.Elapsed(); got != 3*time.Hour {
		t.Errorf("took %v, want 3 h", got)
	}
	var urls []string
	for _, r := range durabletest.CallsName(hub, durable.HTTPActivityName) {
		urls = append(urls, r.Method+" "+r.URL)
	}
	const again = "GET https://jobs.example/jobs/7"
	if diff := cmp.Diff(urls, []string{"POST https://jobs.example/run", again, again, again}); diff != "" {
		t.Errorf("requests (-got +want):\n%s", diff)
	}
}
