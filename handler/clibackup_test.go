package handler

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
)

// The process that holds a local file writes the backup. The command reports a missing file.
func TestHubBackup_ManagementAPIWritesTheBackupOfALocalFile(t *testing.T) {
	t.Parallel()
	cfg := embeddedHub(t)
	if _, err := (hubCopy{cfg}).backup(t.Context(), hubcli.CopyRequest{To: filepath.Join(t.TempDir(), "backup.db")}); !errors.Is(err, hubcli.ErrUseManagementAPI) {
		t.Errorf("a local file: %v, want ErrUseManagementAPI", err)
	}
	if err := embedded.Delete(cfg.hubFile()); err != nil {
		t.Fatal(err)
	}
	if _, err := (hubCopy{cfg}).backup(t.Context(), hubcli.CopyRequest{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestManagement_WritesABackupForCallersWithTheKey(t *testing.T) {
	t.Parallel()
	cfg := embeddedHub(t)
	var log strings.Builder
	cfg.RoutePrefix, cfg.Key, cfg.ReadKey, cfg.Logger = "api", theKey, "the key of readers", slog.New(slog.NewTextHandler(&log, nil))
	s := New(App{}, cfg)
	if err := s.hub.File.Open(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.hub.Close(); err != nil {
			t.Error(err)
		}
	}()
	s.state.SetReady()
	folder := t.TempDir()
	taken := filepath.Join(folder, "taken")
	if err := os.WriteFile(taken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "backup.db")
	for _, tt := range []struct {
		key, path string
		status    int
	}{
		{"", path, http.StatusUnauthorized},
		{cfg.ReadKey, path, http.StatusForbidden},
		{cfg.Key, "", http.StatusBadRequest},
		{cfg.Key, "backup.db", http.StatusBadRequest},
		{cfg.Key, taken, http.StatusBadRequest},
		{cfg.Key, filepath.Join(folder, "nowhere", "backup.db"), http.StatusBadRequest},
	} {
		w := call(s, "POST", managed+"backup?"+url.Values{"path": {tt.path}, "code": {tt.key}}.Encode(), "")
		if w.Code != tt.status {
			t.Errorf("a backup into %q with key %q: %d %s, want %d", tt.path, tt.key, w.Code, w.Body, tt.status)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) || strings.Contains(log.String(), "HubBackedUp") {
		t.Fatalf("a refused backup was written: %v\n%s", err, log.String())
	}
	w := call(s, "POST", managed+"backup?"+url.Values{"path": {path}, "code": {cfg.Key}}.Encode(), "")
	var done hubcli.BackupResult
	if err := json.Unmarshal(w.Body.Bytes(), &done); err != nil || w.Code != http.StatusOK || done.Path != path || done.Bytes == 0 {
		t.Fatalf("%d %s, want the file and its size", w.Code, w.Body)
	}
	if !strings.Contains(log.String(), "event=HubBackedUp taskHub=Own path="+path) {
		t.Errorf("the log has no line for the backup:\n%s", log.String())
	}
	hub, err := embedded.Open(path, cfg.embeddedConfig())
	if err == nil {
		err = hub.Close()
	}
	if err != nil {
		t.Errorf("open the backup: %v", err)
	}
}

func TestManagement_RefusesABackupOfAHubThatIsNotInALocalFile(t *testing.T) {
	t.Parallel()
	s := New(App{}, fakeConfig(t, newFakeHub()))
	s.state.SetReady()
	w := call(s, "POST", managed+"backup?path="+filepath.Join(t.TempDir(), "backup.db"), "")
	if w.Code != http.StatusNotImplemented || !strings.Contains(w.Body.String(), "not in a local file") {
		t.Errorf("%d %s, want 501", w.Code, w.Body)
	}
}
