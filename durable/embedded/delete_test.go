package embedded_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
)

func TestDelete_DeletesAllFilesButNotOfAnOpenHub(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "hub.db")
	if err := embedded.Delete(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Delete without a file: %v, want %v", err, fs.ErrNotExist)
	}
	hub, err := embedded.Open(path, embedded.Config{Contact: "http://here"})
	if err != nil {
		t.Fatal(err)
	}
	held, ok := errors.AsType[*embedded.HeldError](embedded.Delete(path))
	if !ok || held.Path != path || held.Contact != "http://here" {
		t.Errorf("Delete of an open hub: %+v, want a *HeldError with the holder's contact", held)
	}
	if err := hub.Close(); err != nil {
		t.Fatal(err)
	}
	if err := embedded.Delete(path); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("remaining files: %v, %v", left, err)
	}
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := embedded.Delete(path); err != nil {
		t.Errorf("Delete of a damaged file: %v", err)
	}
}
