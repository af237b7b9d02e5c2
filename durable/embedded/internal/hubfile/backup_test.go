package hubfile

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// A stepped context calls step for each call of Err.
type stepped struct {
	context.Context
	step func() error
}

func (s stepped) Err() error { return s.step() }

// backup writes a backup of an open store. It calls step before each record.
func backup(t *testing.T, s *opened, path string, step func() error) error {
	t.Helper()
	return s.Snapshot(func(v *logstore.View) error {
		_, err := s.file.Backup(stepped{t.Context(), step}, path, v)
		return err
	})
}

func TestBackup_ContainsTheRecordsOfOneMoment(t *testing.T) {
	t.Parallel()
	const seed = 7
	t.Logf("seed %d", seed)
	s := newStore(t, filepath.Join(t.TempDir(), "hub.db"))
	s.Limits.FlushSize = 20_000
	r, next, m, changes := rand.New(rand.NewPCG(seed, 0)), uint64(0), newModel(), 0
	for range 5 {
		for range 60 {
			m.change(t, s, r, &next)
		}
		want, path := m.clone(), filepath.Join(t.TempDir(), "backup.db")
		err := backup(t, s, path, func() error {
			if r.IntN(10) == 0 {
				m.change(t, s, r, &next)
				changes++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		copied := openStore(t, path, quiet)
		if got := storedIn(t, copied); got.indexIn([]model{want}) < 0 {
			t.Error("the backup differs from the hub at the start of the backup")
		}
		if !copied.file.IsExactlyOnce() || copied.file.OpenCount != s.file.OpenCount+1 || copied.file.CrashCount != s.file.CrashCount {
			t.Errorf("the backup has exact %v, opens %d, crashes %d; want true, %d, %d",
				copied.file.IsExactlyOnce(), copied.file.OpenCount, copied.file.CrashCount, s.file.OpenCount+1, s.file.CrashCount)
		}
		copied.die()
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the backup has mode %v, %v; want 0600", info.Mode(), err)
		}
	}
	if changes == 0 {
		t.Error("nothing changed during a backup")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A process may die at any step of a backup. The incomplete file has another name and cannot be
// opened.
func TestBackup_AnIncompleteFileCannotBeOpened(t *testing.T) {
	t.Parallel()
	s := newStore(t, filepath.Join(t.TempDir(), "hub.db"))
	m, r, next := newModel(), rand.New(rand.NewPCG(3, 3)), uint64(0)
	for range 40 {
		m.change(t, s, r, &next)
	}
	m[instancesTable]["large"], m[instancesTable]["next"] = make([]byte, 3*compactTxn), []byte("in another transaction of the backup")
	err := s.change(func(t *logstore.Txn) {
		for _, key := range []string{"large", "next"} {
			t.Put(instancesTable, []byte(key), m[instancesTable][key])
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	dir, steps := t.TempDir(), 0
	path := filepath.Join(dir, "backup.db")
	look := func() error {
		steps++
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) != 1 || files[0] == path {
			t.Fatalf("the folder contains %q, %v; want one file of another name", files, err)
		}
		content, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		left := filepath.Join(t.TempDir(), "left.db")
		if err := os.WriteFile(left, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if f, err := Open(left, quiet); !errors.As(err, new(*CorruptError)) {
			t.Fatalf("after %d records Open accepts the incomplete file: %v, %v", steps, f, err)
		}
		return nil
	}
	if err := backup(t, s, path, look); err != nil {
		t.Fatal(err)
	}
	copied := openStore(t, path, quiet)
	if got := storedIn(t, copied); got.indexIn([]model{m}) < 0 {
		t.Error("the backup differs from the hub")
	}
	copied.die()
	if steps < 20 {
		t.Errorf("got %d steps, want more", steps)
	}
	if err := backup(t, s, path, look); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Backup to an existing file: %v, want fs.ErrExist", err)
	}
	canceled, other := errors.New("canceled"), filepath.Join(t.TempDir(), "other.db")
	if err := backup(t, s, other, func() error { return canceled }); !errors.Is(err, canceled) {
		t.Errorf("canceled Backup: %v", err)
	}
	if entries, err := os.ReadDir(filepath.Dir(other)); err != nil || len(entries) > 0 {
		t.Errorf("a canceled backup leaves %v, %v", entries, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
