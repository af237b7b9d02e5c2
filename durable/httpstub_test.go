package durable_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
	"github.com/google/go-cmp/cmp"
)

// The test kit also replays every episode from the start.
func TestCallHTTP_CanBeStubbedInTests(t *testing.T) {
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

// fatal is a test that records the message of Fatalf.
type fatal struct {
	testing.TB
	message string
}

func (f *fatal) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	panic(f)
}

func TestCallHTTP_FailsATestWithoutAStub(t *testing.T) {
	t.Parallel()
	f := &fatal{TB: t}
	func() {
		defer func() {
			if v := recover(); v != any(f) {
				t.Errorf("panicked with %v, want the call of Fatalf", v)
			}
		}()
		hub := durabletest.New(f, durable.Orchestrator("RunJob", runJob))
		_, _ = durabletest.Run(hub, runJob, durable.Void{})
	}()
	for _, part := range []string{"https://jobs.example/run", "StubName(hub, durable.HTTPActivityName"} {
		if !strings.Contains(f.message, part) {
			t.Errorf("the test failed with %q, want it to contain %q", f.message, part)
		}
	}
}
