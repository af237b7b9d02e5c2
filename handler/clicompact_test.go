package handler

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
)

func TestHubTool_CompactsAndDeletesAFileThatNoProcessHolds(t *testing.T) {
	t.Parallel()
	cfg := Config{StorageType: AzureStorage, Logger: slog.New(slog.DiscardHandler)}
	if _, err := compactHub(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "only a hub in a local file or in partition logs") {
		t.Errorf("in queues and tables: %v", err)
	}
	cfg.StorageType, cfg.Embedded.Path = Embedded, filepath.Join(t.TempDir(), "hub.db")
	if _, err := compactHub(t.Context(), cfg); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "there is no task hub") {
		t.Errorf("no file: %v", err)
	}
	h, err := embedded.Open(cfg.Embedded.Path, embedded.Config{Logger: cfg.Logger})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := compactHub(t.Context(), cfg); !errors.As(err, new(*hubcli.UnavailableError)) || !strings.Contains(err.Error(), "stop that process first") {
		t.Errorf("a file that is open: %v", err)
	}
	if err := fileError(embedded.Delete(cfg.Embedded.Path)); !errors.As(err, new(*hubcli.UnavailableError)) || !strings.Contains(err.Error(), "stop that process first") {
		t.Errorf("delete a file that is open: %v", err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if done, err := compactHub(t.Context(), cfg); err != nil || done.Path != cfg.Embedded.Path || done.Before == 0 || done.After == 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if err := fileError(embedded.Delete(cfg.Embedded.Path)); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := fileError(embedded.Delete(cfg.Embedded.Path)); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "there is no task hub") {
		t.Errorf("delete a missing file: %v", err)
	}
}

func TestPartitionLog_IsCompactedIfNoWorkerUsesIt(t *testing.T) {
	t.Parallel()
	onLogs(t, func(a *settingsApp) {
		a.start("Quick/i", "", time.Second)
		if _, err := compactHub(a.Context(), a.cfg); !errors.As(err, new(*hubcli.UnavailableError)) || !strings.Contains(err.Error(), "stop the workers first") {
			a.Errorf("compacted while a worker uses it: %v", err)
		}
		cfg := a.cfg
		cfg.Storage.TaskHub = "Other"
		if _, err := compactHub(a.Context(), cfg); !errors.Is(err, partitionlog.ErrNoHub) {
			a.Errorf("compacted a hub that does not exist: %v", err)
		}
		hub, err := partitionlog.Open(cfg.Connection, cfg.partitionLogConfig())
		if err != nil {
			a.Fatal(err)
		}
		if err := errors.Join(hub.Check(a.Context()), hub.Close()); err != nil {
			a.Fatal(err)
		}
		done, err := compactHub(a.Context(), cfg)
		if err != nil || !strings.HasPrefix(done.Path, "task hub Other of connection ") || done.Before == 0 || done.After == 0 {
			a.Errorf("%+v, %v", done, err)
		}
	})
}

func TestPartitionLog_IsRepairedFromTheCommandLine(t *testing.T) {
	t.Parallel()
	onLogs(t, func(a *settingsApp) {
		a.start("Quick/i", "", time.Second)
		if n := a.account.Vanish("testhubname-log", func(name string) bool { return name == "hub.json" }); n != 1 {
			a.Fatalf("%d blobs have vanished, want hub.json", n)
		}
		for _, tt := range []struct{ apply, problem, repaired bool }{{false, true, false}, {true, true, true}, {false, false, false}} {
			r, err := repairHub(a.Context(), a.cfg, tt.apply)
			if err != nil || !strings.HasPrefix(r.Hub, "task hub TestHubName of connection ") || len(r.Blobs) != 5 || (len(r.Problems) == 1) != tt.problem || tt.problem && r.Problems[0].Repaired != tt.repaired {
				a.Errorf("apply %v: %+v, %v; want problem %v, repaired %v", tt.apply, r, err, tt.problem, tt.repaired)
			}
		}
		cfg := a.cfg
		cfg.StorageType = AzureStorage
		if _, err := repairHub(a.Context(), cfg, false); err == nil || !strings.Contains(err.Error(), "only a task hub in partition logs") {
			a.Errorf("in queues and tables: %v", err)
		}
	})
}
