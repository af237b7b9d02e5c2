package handler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
	"github.com/labstack/echo/v4"
)

// The Close method of a test server closes idle connections of http.DefaultTransport, and that can break requests
// of tests that run in parallel. So the variable hides the method for it.
func init() { http.DefaultTransport = struct{ http.RoundTripper }{http.DefaultTransport} }

// anyPort returns a configuration for a free port on the loopback interface.
func anyPort(t *testing.T, hub *fakeHub) (Config, *logBuffer) {
	t.Helper()
	cfg, log := loggedConfig(t, hub)
	cfg.Address = "127.0.0.1:0"
	return cfg, log
}

// start runs s until the test ends or stop is called. stop returns the result of Run.
func start(t *testing.T, s *Server) (base string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	listener, err := s.listen(ctx)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.serve(ctx, listener) }()
	stopped := false
	stop = func() error {
		cancel()
		if stopped {
			return nil
		}
		stopped = true
		return <-done
	}
	t.Cleanup(func() {
		_ = stop()
		wantNothingInUse(t, s)
	})
	return "http://" + listener.Addr().String(), stop
}

// get returns the status and body of an answer.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// A storage that never answers must not delay the answer to /.
func TestServer_AnswersAtOnceIfTheStorageHangs(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	hub.mu.Lock() // every call to the storage hangs
	cfg, _ := anyPort(t, hub)
	base, _ := start(t, New(App{}, cfg))
	if code, body := get(t, base+"/"); code != http.StatusOK || body != `{"status":"unavailable","reason":"The app is starting."}` {
		t.Errorf("%d %s", code, body)
	}
	hub.mu.Unlock()
	if code, body := get(t, base+"/api/durabletask/instances"); code != http.StatusOK || body != "[]" {
		t.Errorf("%d %s", code, body)
	}
}

func TestServer_StopsWhenRequestsAndWorkHaveEnded(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	cfg, log := anyPort(t, hub)
	cfg.Address = fmt.Sprintf("127.0.0.1:%d", processtest.ReservePort(t)) // no other program listens on it after the stop
	entered, release := make(chan struct{}), make(chan struct{})
	s := New(App{Routes: func(api *echo.Group, _ *durableClient) {
		api.GET("/slow", func(c echo.Context) error {
			close(entered)
			<-release
			return c.String(http.StatusOK, "done")
		})
	}}, cfg)
	base, stop := start(t, s)
	answer := make(chan string)
	go func() {
		_, body := get(t, base+"/api/slow")
		answer <- body
	}()
	<-entered
	ended := make(chan error)
	go func() { ended <- stop() }()
	<-s.draining
	close(release)
	if got := <-answer; got != "done" {
		t.Errorf("the running request got %q", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if hub.ran != 1 {
		t.Errorf("the provider ended %d times, want 1", hub.ran)
	}
	if log.count("msg=stopping") != 1 {
		t.Errorf("the log has no record of the stop:\n%s", log.text.String())
	}
	if _, err := net.Dial("tcp", strings.TrimPrefix(base, "http://")); err == nil {
		t.Error("the port is still open")
	}
}

func TestServer_StopHasATimeLimit(t *testing.T) {
	t.Parallel()
	// After half of the shutdown time, the contexts of requests are canceled.
	app := App{Routes: func(api *echo.Group, _ *durableClient) {
		api.GET("/stuck", func(c echo.Context) error {
			<-c.Request().Context().Done()
			return nil
		})
	}}
	serveInBubble(t, app, fakeConfig(t, newFakeHub()), func(t *testing.T, dial func() net.Conn) {
		conn := dial()
		send(t, conn, "GET /api/stuck HTTP/1.1\r\nHost: x\r\n\r\n")
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		synctest.Wait()
	})

	// After the complete time, the server does not wait any longer.
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		cfg := fakeConfig(t, newFakeHub())
		cfg.Provider = stuckHub{newFakeHub(), stuck}
		s := New(App{}, cfg)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.serve(ctx, &pipeListener{conns: make(chan net.Conn)}) }()
		if err := s.state.Await(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		stop()
		began := time.Now()
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "shutdown timed out after 7s: work is still running") {
			t.Errorf("error is %v", err)
		}
		if took := time.Since(began); took != DefaultShutdownTimeout {
			t.Errorf("it took %v", took)
		}
		close(stuck)
	})
}

// A stuckHub does not stop.
type stuckHub struct {
	*fakeHub
	release <-chan struct{}
}

func (h stuckHub) Run(context.Context) error {
	<-h.release
	return nil
}

func TestServer_APortInUseIsAnErrorStandalone(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0") //nolint:forbidigo // the port stays in use
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg, _ := anyPort(t, newFakeHub())
	cfg.Address = taken.Addr().String()
	err = New(App{}, cfg).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "set PORT to a port that is free") {
		t.Errorf("error is %v", err)
	}
}

func TestServer_ErrorOfAnInvalidAddressNamesItsVariable(t *testing.T) {
	t.Parallel()
	cfg, _ := anyPort(t, newFakeHub())
	cfg.Address, cfg.Key = "192.0.2.1:0", strings.Repeat("k", shortestKey) // an address for documentation, RFC 5737
	err := New(App{}, cfg).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "set DURABLE_ADDRESS") || strings.Contains(err.Error(), "PORT") {
		t.Errorf("error is %v", err)
	}
}

func TestServer_WarnsOfTriggersThatTheHostDoesNotKnow(t *testing.T) {
	t.Parallel()
	app := App{Triggers: []Trigger{Timer("Tick", "0 * * * * *", nilTimer), Timer("Tock", "0 * * * * *", nilTimer)}}
	root := hostRoot(t, "{}")
	if _, err := runWrite(t, App{Triggers: app.Triggers[:1]}, root); err != nil {
		t.Fatal(err)
	}
	for _, behindHost := range []bool{true, false} {
		cfg, _ := anyPort(t, newFakeHub())
		var log bytes.Buffer
		cfg.Root, cfg.BehindHost, cfg.Logger = root, behindHost, NewLogger(&log, slog.LevelWarn)
		New(app, cfg).logStart("x")
		if told := strings.Contains(log.String(), "functions=[Tock]") && strings.Contains(log.String(), "-write-functions "+root); told != behindHost {
			t.Errorf("behind the host: %v; the log is %q", behindHost, &log)
		}
	}
}

// The host gives a restarted handler the port of its predecessor.
func TestServer_RetriesAPortInUseBehindTheHost(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", processtest.ReservePort(t))) //nolint:forbidigo // the port stays reserved
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(300*time.Millisecond, func() { taken.Close() })
	cfg, _ := anyPort(t, newFakeHub())
	cfg.Address, cfg.BehindHost = taken.Addr().String(), true
	base, stop := start(t, New(App{}, cfg))
	if code, _ := get(t, base+"/"); code != http.StatusOK {
		t.Errorf("status %d", code)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestWatchParent_EndsWhenTheParentChanges(t *testing.T) {
	t.Parallel()
	calls := 0
	err := watchParent(t.Context(), time.Millisecond, 100, func() int {
		if calls++; calls < 4 {
			return 100
		}
		return 1
	})
	if !errors.Is(err, errParentDied) || calls != 4 {
		t.Errorf("%v after %d looks, want %v after 4", err, calls, errParentDied)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := watchParent(ctx, time.Millisecond, 100, func() int { return 100 }); err != nil {
		t.Errorf("error is %v, want none", err)
	}
}
