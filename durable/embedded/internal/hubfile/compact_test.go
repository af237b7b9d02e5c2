package hubfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/disk"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/disk/powerloss"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
	bolt "go.etcd.io/bbolt"
)

// fill makes the file of a store large. It keeps some records and deletes many.
func fill(t *testing.T, s *opened, deleted int) (left model) {
	t.Helper()
	left = newModel()
	r, next := rand.New(rand.NewPCG(9, 9)), uint64(0)
	for range 30 {
		left.change(t, s, r, &next)
	}
	change := func(f func(t *logstore.Txn, key []byte)) {
		err := s.change(func(t *logstore.Txn) {
			for n := range deleted {
				f(t, fmt.Appendf(nil, "large %d", n))
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	change(func(t *logstore.Txn, key []byte) { t.Put(instancesTable, key, make([]byte, 1<<20)) })
	if err := s.Close(); err != nil { // writes everything to the database
		t.Fatal(err)
	}
	*s = *newStore(t, s.file.path)
	change(func(t *logstore.Txn, key []byte) { t.Remove(instancesTable, key) })
	return left
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// wantOnly fails if a folder contains files that do not belong to an open hub.
func wantOnly(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 4 {
		t.Errorf("the folder of an open hub contains %v", entries)
	}
}

func TestFile_IsCompactedIfMostOfItIsFreeOrOnRequest(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		deleted int // MiB
		always  bool
		shrinks bool
	}{
		"most is free":   {24, false, true},
		"little is free": {4, false, false},
		"little is free, but compaction is requested": {4, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "hub.db")
			s := newStore(t, path)
			want := fill(t, s, test.deleted)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(compactPath(path), []byte("left of a copy that was not completed"), 0o600); err != nil {
				t.Fatal(err)
			}
			before := sizeOf(t, path)
			o := quiet
			o.Compact = test.always
			for range 2 { // the second time the file does not change
				s = openStore(t, path, o)
				s.Start()
				after := sizeOf(t, path)
				if after < before/4 != test.shrinks {
					t.Errorf("the file has %d bytes, and had %d before it was opened", after, before)
				}
				if got := storedIn(t, s); got.indexIn([]model{want}) < 0 {
					t.Error("the content of the file has changed")
				}
				if s.file.db.NoSync {
					t.Error("the database is no longer synced")
				}
				if err := s.file.CheckPath(); err != nil {
					t.Error(err)
				}
				wantOnly(t, filepath.Dir(path))
				next := uint64(1 << 20)
				want.change(t, s, rand.New(rand.NewPCG(1, 1)), &next)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// After a process death or a power loss at any step, a complete hub remains.
func TestFile_SurvivesAPowerLossDuringCompaction(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hub.db")
	s := newStore(t, path)
	want := fill(t, s, 6)
	s.die() // the last deletions are only in the journal
	o, r := quiet, rand.New(rand.NewPCG(2, 2))
	o.Compact = true
	steps := map[string]bool{}
	for step, lost := 0, true; lost; step++ {
		for range testshare.Amount(4, 1) { // which writes survive is random
			from, image := t.TempDir(), t.TempDir()
			copyHub(t, path, filepath.Join(from, "hub.db"))
			d, restore, err := powerloss.Install(from)
			if err != nil {
				t.Fatal(err)
			}
			calls := 0
			lost = false
			d.Before(func(call string) {
				if calls++; calls == step+1 {
					lost, steps[call] = true, true
					if err := d.Lose(r, image, powerloss.CopyFile); err != nil {
						t.Error(err)
					}
				}
			})
			f, err := Open(filepath.Join(from, "hub.db"), o)
			restore()
			if err != nil {
				t.Fatal(err)
			}
			f.Abandon()
			if !lost {
				break
			}
			s := openStore(t, filepath.Join(image, "hub.db"), quiet)
			if got := storedIn(t, s); got.indexIn([]model{want}) < 0 {
				t.Errorf("step %d: the content differs after a power loss", step)
			}
			wantOnly(t, image)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !steps["sync"] || !steps["rename"] || !steps["sync folder"] {
		t.Errorf("power losses happened before %v; want other steps", steps)
	}
}

// A fullDisk has no space for a copy of a file.
type fullDisk struct{ disk.System }

func (fullDisk) Rename(string, string) error { return errFull }

var errFull = errors.New("no space left on device")

func TestFile_IsUnchangedIfItCannotBeCompacted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hub.db")
	s := newStore(t, path)
	want := fill(t, s, 24)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := sizeOf(t, path)
	restore := disk.Replace(filepath.Dir(path), fullDisk{})
	defer restore()
	o := quiet
	o.Compact = true
	if _, err := Open(path, o); !errors.Is(err, errFull) {
		t.Errorf("Open with Compact: %v", err)
	}
	s = openStore(t, path, quiet) // compaction would be worthwhile
	if after := sizeOf(t, path); after != before {
		t.Errorf("the file has %d bytes, and had %d before it was opened", after, before)
	}
	if got := storedIn(t, s); got.indexIn([]model{want}) < 0 {
		t.Error("the content of the file has changed")
	}
	wantOnly(t, filepath.Dir(path))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFile_KeepsItsModeAndLinkWhenItIsCompacted(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip(errNoCompaction)
	}
	at, link := filepath.Join(t.TempDir(), "hub.db"), filepath.Join(t.TempDir(), "link.db")
	s := newStore(t, at)
	if err := errors.Join(s.Close(), os.Chmod(at, 0o640), os.Symlink(at, link)); err != nil {
		t.Fatal(err)
	}
	was, err := os.Stat(at)
	if err != nil {
		t.Fatal(err)
	}
	o := quiet
	o.Compact = true
	if err := openStore(t, link, o).Close(); err != nil {
		t.Fatal(err)
	}
	is, err := os.Lstat(at)
	if err != nil || is.Mode() != 0o640 || os.SameFile(was, is) {
		t.Errorf("the file has mode %v, same file %v, %v", is.Mode(), os.SameFile(was, is), err)
	}
	if l, err := os.Lstat(link); err != nil || l.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is now %v, %v", l, err)
	}
}

// A process that waits for the lock of a file opens the file that has replaced it.
func TestFile_IsNotOpenedTwiceDuringCompaction(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the test waits until a process has the file open, which only /proc of Linux shows")
	}
	folder, err := filepath.EvalSymlinks(t.TempDir()) // as /proc shows it
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "hub.db")
	if err := newStore(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	first, err := openBolt(path, time.Second, &bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan *bolt.DB)
	go func() {
		db, err := openBolt(path, time.Minute, &bolt.Options{})
		if err != nil {
			t.Error(err)
		}
		waited <- db
	}()
	for opens(t, path) < 2 {
		runtime.Gosched()
	}
	compacted, err := replaceCompact(first, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for opens(t, path) < 2 { // the waiting process opens the new file and waits for its lock
		select {
		case <-waited:
			t.Fatal("two processes have the file open")
		default:
			runtime.Gosched()
		}
	}
	if err := compacted.Close(); err != nil {
		t.Fatal(err)
	}
	last := <-waited
	if err := last.View(func(tx *bolt.Tx) error { return nil }); err != nil || last.Close() != nil {
		t.Error(err)
	}
}

// opens returns how often the current file at path is open in this process.
func opens(t *testing.T, path string) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if name, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil && name == path {
			n++
		}
	}
	return n
}
