package handler

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/taskhub"
)

// A temporary refusal by the storage is not an error of the app. The answer advises the caller to try
// again.
func TestOutage_OfEachStatusIsAnswered503(t *testing.T) {
	t.Parallel()
	refusals := []azcore.ResponseError{ // of a hub that is deleted while it is in use
		{StatusCode: 404, ErrorCode: "TableNotFound"},
		{StatusCode: 404, ErrorCode: "QueueNotFound"},
		{StatusCode: 409, ErrorCode: "TableBeingDeleted"},
		{StatusCode: 409, ErrorCode: "QueueBeingDeleted"},
	}
	for _, status := range []int{401, 403, 408, 429, 500, 502, 503, 504} {
		refusals = append(refusals, azcore.ResponseError{StatusCode: status})
	}
	for _, refusal := range refusals {
		hub := newFakeHub()
		hub.put("i", history.Running, nil)
		s := readyServer(t, App{}, fakeConfig(t, hub))
		hub.fail(&refusal)
		for _, r := range [][2]string{{"POST", "instances/i/raiseEvent/e"}, {"GET", "instances/i"}, {"GET", "instances"}, {"POST", "orchestrators/E1_HelloSequence"}} {
			w := call(s, r[0], managed+r[1], "1")
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
				t.Errorf("storage says %d %s: %s %s is answered with %d %s, want 503 with Retry-After", refusal.StatusCode, refusal.ErrorCode, r[0], r[1], w.Code, w.Body)
			}
		}
	}
}

// A silentHub never answers.
type silentHub struct{ *fakeHub }

func silence(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (silentHub) StartInstance(ctx context.Context, _ provider.TaskMessage, _ []history.RuntimeStatus) error {
	return silence(ctx)
}
func (silentHub) Send(ctx context.Context, _ provider.TaskMessage) error { return silence(ctx) }
func (silentHub) Instance(ctx context.Context, _ string, _ provider.Fetch) (*provider.InstanceState, error) {
	return nil, silence(ctx)
}

func (silentHub) Instances(ctx context.Context, _ provider.Query) (*provider.Page, error) {
	return nil, silence(ctx)
}

// Every route that reads the storage answers within half a minute, even if the storage never answers.
func TestOutage_EveryRequestIsAnsweredIfTheStorageIsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := readyServer(t, App{}, fakeConfig(t, silentHub{newFakeHub()}))
		for _, route := range allRoutes {
			method, path := methodAndPath(route)
			began := time.Now()
			w := call(s, method, managed+path, "1")
			if took := time.Since(began); took > taskhub.RequestTimeout || w.Code == http.StatusInternalServerError {
				t.Errorf("%s is answered with %d %s after %v, want another answer than 500 within %v", route, w.Code, w.Body, took, taskhub.RequestTimeout)
			}
		}
	})
}

// A busyHub is overloaded.
type busyHub struct{ *fakeHub }

func (busyHub) Check(context.Context) error { return nil }
func (busyHub) IsBusy() bool                { return true }

func TestOutage_BusyStorageGetsNoNewWork(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	hub.put("i", history.Running, nil)
	s := readyServer(t, App{}, fakeConfig(t, busyHub{hub}))
	for target, want := range map[string]int{
		"POST orchestrators/E1_HelloSequence": 503, "POST instances/i/raiseEvent/e": 503, "POST entities/Counter/a?op=add": 503,
		"GET instances": 503, "GET instances/i": 202, "GET health/ready": 200,
	} {
		method, path, _ := strings.Cut(target, " ")
		w := call(s, method, managed+path, "1")
		if w.Code != want || want == 503 && w.Header().Get("Retry-After") == "" {
			t.Errorf("%s is answered with %d %s, want %d", target, w.Code, w.Body, want)
		}
	}
	if len(hub.sent) > 0 || len(hub.instances) > 1 {
		t.Errorf("%d messages were sent, there are %d instances", len(hub.sent), len(hub.instances))
	}
}

// Readiness follows the storage. All callers share one check.
func TestReady_FollowsTheStorage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := newFakeHub()
		s := readyServer(t, App{}, fakeConfig(t, hub))
		ask := func(want int) {
			t.Helper()
			for _, path := range []string{management.ReadyPath, managed + "health/ready"} {
				if w := call(s, "GET", path, ""); w.Code != want {
					t.Errorf("%s: %d %s, want %d", path, w.Code, w.Body, want)
				}
			}
		}
		ask(200)
		hub.fail(refusedConnection)
		time.Sleep(management.CheckInterval)
		ask(503)
		if w := call(s, "GET", managed+"health/ready", ""); !strings.Contains(w.Body.String(), `"the storage of task hub \"MyHub\" cannot be used: dial tcp: connection refused"`) {
			t.Errorf("the reason is %s", w.Body)
		}
		hub.fail(nil)
		ask(503)
		time.Sleep(management.CheckInterval)
		ask(200)
		s = readyServer(t, App{}, fakeConfig(t, silentHub{hub}))
		began := time.Now()
		ask(503)
		if took := time.Since(began); took > management.CheckTimeout {
			t.Errorf("storage that is silent was waited for %v, want %v", took, management.CheckTimeout)
		}
	})
}
