package handler

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
)

func TestHubTool_CompactsAndDeletesAFileThatNobodyHas(t *testing.T) {
	t.Parallel()
	cfg := Config{StorageType: AzureStorage, Logger: slog.New(slog.DiscardHandler)}
	if _, err := compactHub(cfg); err == nil || !strings.Contains(err.Error(), "only one in a local file") {
		t.Errorf("in Azure Storage: %v", err)
	}
	cfg.StorageType, cfg.Embedded.Path = Embedded, filepath.Join(t.TempDir(), "hub.db")
	if _, err := compactHub(cfg); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "there is no task hub") {
		t.Errorf("no file: %v", err)
	}
	h, err := embedded.Open(cfg.Embedded.Path, embedded.Config{Logger: cfg.Logger})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := compactHub(cfg); !errors.As(err, new(*hubcli.UnavailableError)) || !strings.Contains(err.Error(), "stop that process first") {
		t.Errorf("a file that is open: %v", err)
	}
	if err := fileError(embedded.Delete(cfg.Embedded.Path)); !errors.As(err, new(*hubcli.UnavailableError)) || !strings.Contains(err.Error(), "stop that process first") {
		t.Errorf("delete a file that is open: %v", err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if done, err := compactHub(cfg); err != nil || done.Path != cfg.Embedded.Path || done.Before == 0 || done.After == 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if err := fileError(embedded.Delete(cfg.Embedded.Path)); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := fileError(embedded.Delete(cfg.Embedded.Path)); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "there is no task hub") {
		t.Errorf("delete what is not there: %v", err)
	}
}
