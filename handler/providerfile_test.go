package handler

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
)

func quick(*durable.Context, struct{}) (string, error) { return "done", nil }

// A fileApp is a server that runs on a hub in a file.
type fileApp struct {
	*Server
	log  *logBuffer
	stop func() error // awaits the end of run
}

func startFileApp(t *testing.T, path string) *fileApp {
	t.Helper()
	log := &logBuffer{}
	s := New(App{Functions: []*durable.Function{durable.Orchestrator("Quick", quick)}}, Config{
		Address: "127.0.0.1:0", StorageType: Embedded, Embedded: EmbeddedConfig{Path: path}, Logger: NewLogger(log, slog.LevelInfo),
	})
	return runFileApp(t, s, log)
}

// runFileApp runs s until the test ends or stop is called.
func runFileApp(t *testing.T, s *Server, log *logBuffer) *fileApp {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }() // awaited by stop
	a := &fileApp{Server: s, log: log}
	stopped := false
	a.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-ended
	}
	t.Cleanup(func() { _ = a.stop() })
	return a
}

func (a *fileApp) ask(method, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w
}

// await asks until the answer has the given status.
func (a *fileApp) await(t *testing.T, method, target string, status int) string {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		w := a.ask(method, target)
		if w.Code == status {
			return w.Body.String()
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s %s: %d %s, want %d", method, target, w.Code, w.Body, status)
		}
	}
}

func (a *fileApp) completes(t *testing.T) {
	t.Helper()
	var started struct{ ID string }
	if err := json.Unmarshal([]byte(a.await(t, http.MethodPost, "/durabletask/orchestrators/Quick", http.StatusAccepted)), &started); err != nil {
		t.Fatal(err)
	}
	a.await(t, http.MethodGet, "/durabletask/instances/"+started.ID, http.StatusOK)
}

func TestServer_RunsOnAFileAndClosesIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hub.db")
	a := startFileApp(t, path)
	a.completes(t)
	if a.log.count("The task hub is in the local file "+path) != 1 || a.log.count("AzureWebJobsStorage") == 0 {
		t.Error("the log does not say once where the hub is and how it could be elsewhere")
	}
	if err := a.stop(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	if _, err := os.Stat(path + ".owner"); err == nil {
		t.Error("the file was not closed: somebody still owns it")
	}
	hub, err := embedded.Open(path, embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.Close(); err != nil {
		t.Error(err)
	}
}

// When the Functions host restarts an app, the process before lives for a
// moment and has the file.
func TestServer_WaitsForTheProcessThatHasTheFileAndThenWorks(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hub.db")
	before, err := embedded.Open(path, embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	a := startFileApp(t, path)
	body := a.await(t, http.MethodGet, "/durabletask/instances", http.StatusServiceUnavailable)
	if !strings.Contains(body, path) && !strings.Contains(body, "starting") {
		t.Errorf("503 with %s, want the file's name", body)
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	a.completes(t)
}

func TestServer_TellsWhatIsWrongWithTheFile(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"not a hub": "damaged or not a task hub", "": "the file is empty"} {
		path := filepath.Join(t.TempDir(), "hub.db")
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		a := startFileApp(t, path)
		body := a.await(t, http.MethodGet, "/durabletask/instances", http.StatusServiceUnavailable)
		for deadline := time.Now().Add(30 * time.Second); !strings.Contains(body, want) && time.Now().Before(deadline); {
			body = a.await(t, http.MethodGet, "/durabletask/instances", http.StatusServiceUnavailable)
		}
		if !strings.Contains(body, want) || !strings.Contains(body, path) {
			t.Errorf("503 with %s, want %q and %s", body, want, path)
		}
		if code := a.ask(http.MethodGet, "/").Code; code != http.StatusOK {
			t.Errorf("GET /: %d, want 200", code)
		}
		if err := a.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != name {
			t.Errorf("the file was changed: %q, %v", text, err)
		}
	}
}
