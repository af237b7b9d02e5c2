package handler

import (
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
