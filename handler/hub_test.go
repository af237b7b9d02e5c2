package handler

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/taskhub"
	"github.com/labstack/echo/v4"
)

// A logBuffer stores the log.
type logBuffer struct {
	mu   sync.Mutex // guards the fields below
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// count returns the number of lines that contain text.
func (b *logBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for line := range strings.Lines(b.text.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func loggedConfig(t *testing.T, hub *fakeHub) (Config, *logBuffer) {
	t.Helper()
	cfg := fakeConfig(t, hub)
	log := &logBuffer{}
	cfg.Logger = NewLogger(log, slog.LevelInfo)
	return cfg, log
}

var refusedConnection = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

func TestHub_RetriesStorageThatIsDownAtStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := newFakeHub()
		hub.fail(refusedConnection)
		cfg, log := loggedConfig(t, hub)
		s := New(App{Routes: func(api *echo.Group, _ *durableClient) {
			api.GET("/mine", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })
		}}, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.work(ctx) }()

		began := time.Now()
		for _, target := range []string{"/api/durabletask/instances/i", "/api/mine", "/api/nothing"} {
			want := "503\nRetry-After: 5\nContent-Type: application/json; charset=utf-8\n" +
				`{"Message":"The storage of task hub \"MyHub\" cannot be used: dial tcp: connection refused. The app retries every few seconds."}`
			compare(t, target, answerText(s, "GET", target, ""), want)
		}
		if w := call(s, "GET", "/", ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `{"status":"unavailable","reason":"The storage of task hub`) {
			t.Errorf("/ is answered with %d %s", w.Code, w.Body)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the answers took %v", took)
		}

		time.Sleep(10*time.Minute + time.Second)
		if n := log.count("the storage cannot be used; all calls get status 503"); n < 9 || n > 12 {
			t.Errorf("the reason was logged %d times in ten minutes, want about once a minute", n)
		}
		hub.fail(nil)
		time.Sleep(taskhub.MaxProbeDelay)
		synctest.Wait()
		if w := call(s, "GET", "/api/mine", ""); w.Code != http.StatusNoContent {
			t.Errorf("after the outage: %d %s", w.Code, w.Body)
		}
		if w := call(s, "GET", "/", ""); w.Body.String() != `{"status":"ready"}` {
			t.Errorf("after the outage / says %s", w.Body)
		}
		if log.count("connected to storage again") != 1 {
			t.Errorf("the log has no record that the app is connected to storage again:\n%s", log.text.String())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if hub.ran != 1 {
			t.Errorf("the provider ran %d times, want 1", hub.ran)
		}
	})
}

func TestHub_FirstRequestWaitsForTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(App{}, fakeConfig(t, newFakeHub()))
		time.AfterFunc(3*time.Second, s.state.SetReady)
		began := time.Now()
		if w := call(s, "GET", "/api/durabletask/instances", ""); w.Code != http.StatusOK || time.Since(began) != 3*time.Second {
			t.Errorf("%d after %v, want 200 after 3s", w.Code, time.Since(began))
		}
		s = New(App{}, fakeConfig(t, newFakeHub()))
		began = time.Now()
		if w := call(s, "GET", "/api/durabletask/instances", ""); w.Code != http.StatusServiceUnavailable || time.Since(began) != management.StartupTimeout {
			t.Errorf("%d after %v, want 503 after %v", w.Code, time.Since(began), management.StartupTimeout)
		}
	})
}

func TestHub_EveryCallerGetsTheReasonOfAFailedWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := newFakeHub()
		hub.refusal = errors.New("the hub has 4 partitions, the configuration says 8")
		cfg, log := loggedConfig(t, hub)
		s := New(App{}, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.work(ctx) }()
		synctest.Wait()
		w := call(s, "GET", "/api/durabletask/instances", "")
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "the hub has 4 partitions, the configuration says 8") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		time.Sleep(3*time.Minute + time.Second)
		if n := log.count("the hub has 4 partitions"); n != 4 {
			t.Errorf("the reason was logged %d times in three minutes, want 4", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestHub_EveryCallerAndTheLogGetTheConfigurationProblem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg, log := loggedConfig(t, newFakeHub())
		cfg.Problem = errors.Join(errors.New("a is 1; want 2"), errors.New("b is missing"))
		s := New(App{Routes: func(*echo.Group, *durableClient) { t.Error("routes were asked for without a client") }}, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.work(ctx) }()
		synctest.Wait()
		for _, target := range []string{"/api/durabletask/instances", "/api/anything", "/runtime/webhooks/durabletask/instances", "/else"} {
			compare(t, target, answerText(s, "POST", target, ""), "503\nRetry-After: 5\nContent-Type: application/json; charset=utf-8\n"+
				`{"Message":"The app's configuration is wrong: a is 1; want 2; b is missing. Correct it and restart the app."}`)
		}
		if w := call(s, "GET", "/", ""); w.Code != http.StatusOK {
			t.Errorf("/ is answered with %d", w.Code)
		}
		time.Sleep(2*time.Minute + time.Second)
		if n := log.count("a is 1; want 2; b is missing"); n != 3 {
			t.Errorf("the reason was logged %d times in two minutes, want 3", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestNew_AnAppThatPanicsIsAConfigurationProblem(t *testing.T) {
	t.Parallel()
	s := New(App{Routes: func(*echo.Group, *durableClient) { panic("two routes of one name") }}, fakeConfig(t, newFakeHub()))
	w := call(s, "GET", "/api/x", "")
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "the app cannot be created: two routes of one name") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestNew_TwoFunctionsOfOneNameAreAConfigurationProblem(t *testing.T) {
	t.Parallel()
	greet := func(context.Context, string) (string, error) { return "", nil }
	wave := func(context.Context, string) (string, error) { return "", nil }
	s := New(App{Registrations: []*durable.Registration{durable.Activity("Hi", greet), durable.Activity("Hi", wave)}}, fakeConfig(t, newFakeHub()))
	w := call(s, "GET", "/api/x", "")
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "the app cannot be created: ") || !strings.Contains(w.Body.String(), "Hi") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
