package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	bbolt "go.etcd.io/bbolt"
)

func quick(*durable.Context, struct{}) (string, error) { return "done", nil }

// A fileApp is a server with a hub in a file.
type fileApp struct {
	*Server
	log  *logBuffer
	stop func() error // waits until Run has returned
}

func startFileApp(t *testing.T, path string) *fileApp {
	t.Helper()
	log := &logBuffer{}
	s := New(App{Registrations: []*durable.Registration{durable.Orchestrator("Quick", quick)}}, Config{
		Address: "127.0.0.1:0", StorageType: Embedded, Embedded: EmbeddedConfig{Path: path}, Logger: NewLogger(log, slog.LevelInfo),
	})
	return runFileApp(t, s, log)
}

// runFileApp runs s until the test ends or stop is called.
func runFileApp(t *testing.T, s *Server, log *logBuffer) *fileApp {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }() // received by stop
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

// await repeats a request until the answer has the given status.
func (a *fileApp) await(t *testing.T, method, target string, status int) string {
	t.Helper()
	return a.awaitAnswer(t, method, target, status, "")
}

// awaitAnswer repeats a request until the answer has the given status and its body contains a text.
func (a *fileApp) awaitAnswer(t *testing.T, method, target string, status int, text string) (body string) {
	t.Helper()
	var last string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s %s: last answer %s", method, target, last)
		}
	})
	patience.Until(t, fmt.Sprintf("%s %s: %d with %q", method, target, status, text), func() bool {
		w := a.ask(method, target)
		body = w.Body.String()
		last = fmt.Sprint(w.Code, " ", body)
		return w.Code == status && strings.Contains(body, text)
	})
	return body
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
		t.Error("the file was not closed: a process still owns it")
	}
	hub, err := embedded.Open(path, embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.Close(); err != nil {
		t.Error(err)
	}
}

// Reads of a hub whose file was deleted get the same answer as writes.
func TestServer_EveryRequestReportsThatTheFileWasDeleted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hub.db")
	a := startFileApp(t, path)
	a.completes(t)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for _, r := range [][2]string{
		{"GET", "/durabletask/instances"},
		{"GET", "/durabletask/instances/x"},
		{"POST", "/durabletask/orchestrators/Quick"},
		{"GET", "/durabletask/health/ready"},
	} {
		if body := a.await(t, r[0], r[1], http.StatusServiceUnavailable); !strings.Contains(body, "deleted or moved") {
			t.Errorf("%s %s: 503 %s, want that the file was deleted or moved", r[0], r[1], body)
		}
	}
	_ = a.stop() // the hub has nothing to save
}

// When the Functions host restarts an app, the previous process may still hold the file for a moment.
func TestServer_WaitsForTheProcessThatHoldsTheFile(t *testing.T) {
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

// The answer contains the name of an unusable file. The app does not change the file and continues to
// run.
func TestServer_ReportsTheProblemOfTheFile(t *testing.T) {
	t.Parallel()
	holding := func(content string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		name, want string
		make       func(t *testing.T, path string)
	}{
		{"no hub", "damaged or not a task hub", holding("not a hub")},
		{"empty", "the file is empty", holding("")},
		{"of a newer format", "has format version 2; this program knows versions up to 1", newerHub},
		{"read-only", "read-only", func(t *testing.T, path string) {
			if os.Geteuid() == 0 {
				t.Skip("the superuser may write what is read-only")
			}
			newHubFile(t, path)
			if err := os.Chmod(path, 0o400); err != nil {
				t.Fatal(err)
			}
		}},
		{"a folder", "directory", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "hub.db")
			tt.make(t, path)
			before, _ := os.ReadFile(path) // fails for a folder
			a := startFileApp(t, path)
			body := a.awaitAnswer(t, http.MethodGet, "/durabletask/instances", http.StatusServiceUnavailable, tt.want)
			if !strings.Contains(body, path) {
				t.Errorf("503 with %s, want %q and %s", body, tt.want, path)
			}
			if code := a.ask(http.MethodGet, "/").Code; code != http.StatusOK {
				t.Errorf("GET /: %d, want 200", code)
			}
			if err := a.stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(after, before) {
				t.Error("the file was changed")
			}
		})
	}
}

// newHubFile creates a hub in a file that no process holds.
func newHubFile(t *testing.T, path string) {
	t.Helper()
	hub, err := embedded.Open(path, embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hub.Instances(t.Context(), provider.Query{}); err != nil { // creates the file
		t.Fatal(err)
	}
	if err := hub.Close(); err != nil {
		t.Fatal(err)
	}
}

// newerHub creates a hub with the format version of a later program.
func newerHub(t *testing.T, path string) {
	t.Helper()
	newHubFile(t, path)
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("hub")).Put([]byte("format"), []byte{2}) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}
