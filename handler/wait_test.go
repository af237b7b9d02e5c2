package handler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/labstack/echo/v4"
)

// See DurableClient.cs, WaitForCompletionOrCreateCheckStatusResponseAsync.
func TestWaitOrCheckStatus_AnswersWithTheOutputOrTheStatusURL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		after  time.Duration
		status history.RuntimeStatus
		want   string
	}{
		{"completes soon", 2500 * time.Millisecond, history.Completed, "3s 200 [1]"},
		{"fails soon", 2500 * time.Millisecond, history.Failed, `3s 200 {"name":"Greet","instanceId":"i","runtimeStatus":"Failed"`},
		{"takes longer", 11 * time.Second, history.Completed, `10s 202 {"id":"i","statusQueryGetUri":`},
	} {
		synctest.Test(t, func(t *testing.T) {
			hub := newFakeHub()
			hub.put("i", history.Running, nil)
			app := App{Routes: func(api *echo.Group, _ *durable.Client) {
				api.POST("/orders", func(c echo.Context) error { return WaitOrCheckStatus(c, "i", 0, 0) })
			}}
			s := readyServer(t, app, fakeConfig(t, hub))
			timer := time.AfterFunc(tt.after, func() {
				hub.mu.Lock()
				defer hub.mu.Unlock()
				hub.instances["i"].Status, hub.instances["i"].Output = tt.status, new("[1]")
			})
			defer timer.Stop()
			began := time.Now()
			w := call(s, "POST", "/api/orders", "")
			if got := fmt.Sprint(time.Since(began), " ", w.Code, " ", w.Body); !strings.HasPrefix(got, tt.want) {
				t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
			}
		})
	}
	outside := echo.New().NewContext(httptest.NewRequest("GET", "/", nil), httptest.NewRecorder())
	if err := WaitOrCheckStatus(outside, "i", 0, 0); err == nil {
		t.Error("outside of a server: no error")
	}
}

// After a start, a failed poll is not the answer, because the caller would start another instance.
func TestStart_WaitsDespiteFailedPolls(t *testing.T) {
	t.Parallel()
	set := func(status history.RuntimeStatus) func(*fakeHub) {
		return func(hub *fakeHub) {
			hub.outage, hub.instances["i"].Status, hub.instances["i"].Output = nil, status, new("[1]")
		}
	}
	fail := func(hub *fakeHub) { hub.outage = errNoStorage }
	purge := func(hub *fakeHub) { delete(hub.instances, "i") }
	const checkStatus = `30s 202 {"id":"i","statusQueryGetUri":`
	for _, tt := range []struct {
		name          string
		first, second func(*fakeHub) // after 1.5 and 3.5 seconds
		want          string
	}{
		{"fails once, then completes", fail, set(history.Completed), "4s 200 [1]"},
		{"fails once, then is terminated", fail, set(history.Terminated), `4s 200 {"name":"Greet","instanceId":"i","runtimeStatus":"Terminated"`},
		{"fails until the timeout", fail, fail, checkStatus},
		{"is purged", purge, purge, checkStatus},
		{"cannot be read after its end", func(hub *fakeHub) {
			set(history.Failed)(hub)
			hub.outageOfInputs = errNoStorage
		}, func(*fakeHub) {}, checkStatus},
	} {
		for _, route := range []string{"orchestrators/Greet/i", "instances/i/restart"} {
			synctest.Test(t, func(t *testing.T) {
				hub := newFakeHub()
				hub.put("i", history.Completed, nil)
				s := readyServer(t, App{}, fakeConfig(t, hub))
				after := func(d time.Duration, change func(*fakeHub)) *time.Timer {
					return time.AfterFunc(d, func() {
						hub.mu.Lock()
						defer hub.mu.Unlock()
						change(hub)
					})
				}
				defer after(1500*time.Millisecond, tt.first).Stop()
				defer after(3500*time.Millisecond, tt.second).Stop()
				began := time.Now()
				w := call(s, "POST", managed+route+"?timeout=30&pollingInterval=1&restartWithNewInstanceId=false", "")
				if got := fmt.Sprint(time.Since(began), " ", w.Code, " ", w.Body); !strings.HasPrefix(got, tt.want) {
					t.Errorf("%s, %s: %s, want %s", route, tt.name, got, tt.want)
				}
			})
		}
	}
}

func TestStart_WaitsNoLongerThanItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := newFakeHub()
		s := readyServer(t, App{}, fakeConfig(t, hub))
		timer := time.AfterFunc(1500*time.Millisecond, func() { hub.fail(errNoStorage) })
		defer timer.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
		defer cancel()
		began := time.Now()
		s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "POST", managed+"orchestrators/Greet/i?timeout=30&pollingInterval=1", nil))
		if took := time.Since(began); took != 5500*time.Millisecond {
			t.Errorf("the request ended after %v, want 5.5s", took)
		}
	})
}

func TestList_AnUnknownTokenIsABadRequest(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	s := readyServer(t, App{}, fakeConfig(t, hub))
	hub.fail(provider.ErrContinuation)
	want := `{"Message":"The continuation token was not issued by this task hub."`
	if w := call(s, "GET", managed+"instances", "", management.HeaderContinuation, "x"); w.Code != http.StatusBadRequest || !strings.HasPrefix(w.Body.String(), want) {
		t.Errorf("%d %s, want 400 %s", w.Code, w.Body, want)
	}
	hub.fail(errors.New("something else"))
	if w := call(s, "GET", managed+"instances", "", management.HeaderContinuation, "x"); w.Code != http.StatusInternalServerError {
		t.Errorf("something else: %d, want 500", w.Code)
	}
	hub.fail(errNoStorage)
	if w := call(s, "GET", managed+"instances", "", management.HeaderContinuation, "x"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("without storage: %d, want 503", w.Code)
	}
}
