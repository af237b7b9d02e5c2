package handler

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
)

// embeddedHub returns the configuration of an app whose hub is in a file that is there.
func embeddedHub(t *testing.T) Config {
	t.Helper()
	cfg := Config{Root: t.TempDir(), StorageType: Embedded}.WithDefaults()
	cfg.Storage.TaskHub = "Own"
	hub, err := embedded.Open(cfg.hubFile(), cfg.embeddedConfig())
	if err == nil {
		err = hub.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestHubCopy_RefusesToCopyAHubOntoItself(t *testing.T) {
	t.Parallel()
	cfg := embeddedHub(t)
	link := filepath.Join(cfg.Root, "link.db")
	if err := os.Symlink(cfg.hubFile(), link); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(cfg.hubFile(), filepath.Join(cfg.Root, "other.db.copying")); err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][2]string{
		{"embedded", "embedded"},
		{"embedded", "embedded:" + cfg.hubFile()},
		{"embedded:" + link, "embedded"},
		{"embedded", "embedded:" + filepath.Join(cfg.Root, "other.db")}, // which the copy would be made in
		{"azurestorage", "azurestorage:" + DefaultConnectionName},
	} {
		began := time.Now()
		_, err := hubCopy{cfg}.run(t.Context(), hubcli.CopyRequest{From: pair[0], To: pair[1], Wait: time.Hour, Progress: func(string) {}})
		if err == nil || !strings.Contains(err.Error(), "are the same task hub") {
			t.Errorf("copy %s %s: %v after %v, want that they are the same", pair[0], pair[1], err, time.Since(began))
		}
	}
}

func TestHubCopy_TaskHubNamesTheHubInAzureStorageOnly(t *testing.T) {
	t.Parallel()
	cfg := embeddedHub(t)
	target := filepath.Join(cfg.Root, "copy.db")
	totals, err := hubCopy{cfg}.run(t.Context(), hubcli.CopyRequest{
		From: "embedded", To: "embedded:" + target, TaskHub: "Other", Progress: func(string) {},
	})
	if err != nil || totals != (provider.Totals{}) {
		t.Errorf("copied %v, %v, want the hub of the configuration", totals, err)
	}
}
