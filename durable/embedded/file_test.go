package embedded_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	bolt "go.etcd.io/bbolt"
)

var impatient = embedded.Config{LockTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)}

// holdHub opens a hub and holds it until the process is killed.
func holdHub(path string) error {
	if _, err := embedded.Open(path, embedded.Config{}); err != nil {
		return err
	}
	fmt.Println("open")
	time.Sleep(time.Hour) // real time: until the parent kills this process; the runtime would report a deadlock
	return nil
}

func TestOpen_RefusesAHubOpenInAnotherProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hub.db")
	c := startChild(t, "hold", path)
	c.line(t)
	_, err := embedded.Open(path, impatient)
	held, ok := errors.AsType[*embedded.HeldError](err)
	if !ok {
		t.Fatalf("Open returned %v, want a *HeldError", err)
	}
	if want := fmt.Sprintf("process %d on host ", c.Process.Pid); held.Path != path || !strings.HasPrefix(held.Holder, want) {
		t.Errorf("HeldError has path %s and holder %q, want %s and %q", held.Path, held.Holder, path, want)
	}
	c.kill()
	open(t, path, impatient)
}

func TestOpen_RefusesAHubOpenInThisProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hub.db")
	hub := open(t, path, impatient)
	if _, err := embedded.Open(path, impatient); !errors.As(err, new(*embedded.HeldError)) {
		t.Errorf("Open returned %v, want a *HeldError", err)
	}
	if err := hub.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path, impatient)
}

func TestOpen_CreatesFoldersAndCloseLeavesOneFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "not", "there")
	hub := open(t, filepath.Join(dir, "hub.db"), impatient)
	if err := hub.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "hub.db" {
		t.Errorf("the folder contains %v, %v, want only hub.db", entries, err)
	}
}

func TestHub_ReturnsErrClosedAfterClose(t *testing.T) {
	t.Parallel()
	hub := open(t, filepath.Join(t.TempDir(), "hub.db"), impatient)
	run(t, hub)
	waiting := make(chan error, 2)
	go func() { _, err := hub.NextOrchestration(t.Context()); waiting <- err }()
	go func() { _, err := hub.NextActivity(t.Context()); waiting <- err }()
	if err := hub.Close(); err != nil {
		t.Fatal(err)
	}
	_, read := hub.Instance(t.Context(), "a", provider.Fetch{})
	for what, err := range map[string]error{
		"start":                      startInstance(t, hub, "a"),
		"read":                       read,
		"run":                        hub.Run(t.Context()),
		"who waits for work":         <-waiting,
		"who waits for work as well": <-waiting,
	} {
		if !errors.Is(err, embedded.ErrClosed) {
			t.Errorf("%s: got %v, want %v", what, err, embedded.ErrClosed)
		}
	}
}

func startInstance(t *testing.T, hub *embedded.Hub, id string) error {
	t.Helper()
	start := &history.ExecutionStarted{
		Header: history.NewHeader(time.Now()), Name: "Orchestrator", Input: new("input of " + id),
		Instance: history.OrchestrationInstance{InstanceID: id, ExecutionID: "execution of " + id},
	}
	return hub.StartInstance(t.Context(), provider.TaskMessage{Event: start, Target: start.Instance}, nil)
}

// closedHub creates a hub with instances and returns its file and the file's content.
func closedHub(t *testing.T) (path string, content []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "hub.db")
	hub := open(t, path, impatient)
	for i := range 50 {
		if err := startInstance(t, hub, fmt.Sprintf("instance %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := hub.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, content
}

func TestOpen_RefusesFilesThatAreNotAValidHub(t *testing.T) {
	t.Parallel()
	_, sound := closedHub(t)
	edited := func(edit func(*bolt.Tx) error) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			write(t, path, sound)
			db, err := bolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(db.Update(edit), db.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	damaged := func(content []byte) func(*testing.T, string) {
		return func(t *testing.T, path string) { write(t, path, content) }
	}
	changed := func(at int, b byte) []byte {
		c := bytes.Clone(sound)
		c[at], c[at+4096] = b, b // in both headers
		return c
	}
	for _, tt := range []struct {
		name string
		make func(t *testing.T, path string)
		want string
	}{
		{"an empty file", damaged(nil), "empty"},
		{"a text", damaged([]byte(strings.Repeat("This is no hub.\n", 1000))), "no valid header"},
		{"zeros", damaged(make([]byte, 1<<16)), "no valid header"},
		{"a hub that is cut off", damaged(sound[:len(sound)/2]), "cut off"},
		{"a hub that is cut off early", damaged(sound[:5000]), "cut off"},
		{"a hub with a changed header", damaged(changed(16+30, 0xEE)), "no valid header"},
		{"a database of another program", edited(func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("hub")) }), "another program"},
		{"a hub without history", edited(func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("history")) }), "history"},
		{"a hub without format", edited(func(tx *bolt.Tx) error { return tx.Bucket([]byte("hub")).Delete([]byte("format")) }), "format"},
		{"a hub whose journal is gone", edited(func(tx *bolt.Tx) error { return tx.Bucket([]byte("hub")).Put([]byte("open"), []byte{1}) }), "journal"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "hub.db")
			tt.make(t, path)
			before := read(t, path)
			_, err := embedded.Open(path, impatient)
			if !errors.As(err, new(*embedded.CorruptError)) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("Open returned %v, want a *CorruptError with %q and the file's name", err, tt.want)
			}
			unchanged(t, path, before)
		})
	}
}

func TestOpen_RefusesANewerFormat(t *testing.T) {
	t.Parallel()
	path, _ := closedHub(t)
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte("hub")).Put([]byte("format"), []byte{2}) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	before := read(t, path)
	_, err = embedded.Open(path, impatient)
	format, ok := errors.AsType[*embedded.FormatError](err)
	if !ok || format.Path != path || format.Version != 2 || format.Supported != 1 {
		t.Errorf("Open returned %v, want a *FormatError with versions 2 and 1", err)
	}
	unchanged(t, path, before)
}

func TestOpen_RefusesAFolder(t *testing.T) {
	t.Parallel()
	if _, err := embedded.Open(t.TempDir(), impatient); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("Open returned %v, want an error that names a directory", err)
	}
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// unchanged fails unless the file has its previous content and no other files are beside it.
func unchanged(t *testing.T, path string, before []byte) {
	t.Helper()
	if !bytes.Equal(read(t, path), before) {
		t.Error("the file was changed")
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("files beside the hub's file: %v, %v", entries, err)
	}
}

func TestOpen_DoesNotWriteThroughALink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, mine := filepath.Join(dir, "hub.db"), filepath.Join(dir, "mine.txt")
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(mine, path+".owner"); err != nil {
		if runtime.GOOS != "windows" {
			t.Fatal(err)
		}
		t.Skipf("Windows lets only some accounts create symbolic links: %v", err)
	}
	hub := open(t, path, embedded.Config{})
	if text, err := os.ReadFile(mine); err != nil || string(text) != "mine" {
		t.Errorf("the target of the link contains %q, %v", text, err)
	}
	if info, err := os.Lstat(path + ".owner"); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the owner's file is %v, %v", info, err)
	}
	if err := hub.Close(); err != nil {
		t.Error(err)
	}
}

func TestHub_FailsReadsAndWritesWhenItsFileIsGone(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(path string) error{
		"deleted": os.Remove,
		"moved":   func(path string) error { return os.Rename(path, path+".bak") },
		"replaced": func(path string) error {
			return errors.Join(os.Rename(path, path+".bak"), os.WriteFile(path, []byte("another"), 0o600))
		},
	} {
		path := filepath.Join(t.TempDir(), "hub.db")
		hub := open(t, path, embedded.Config{})
		if err := startInstance(t, hub, "before"); err != nil {
			t.Fatal(err)
		}
		err := lose(path)
		if err != nil {
			t.Fatal(err)
		}
		patience.Until(t, "a read finds the file "+name, func() bool { // reads check the file at most once a second
			_, err = hub.Instance(t.Context(), "before", provider.Fetch{})
			return err != nil
		})
		for what, err := range readings(t, hub, err) {
			if !errors.As(err, new(*fs.PathError)) || !strings.Contains(err.Error(), "was deleted or moved") {
				t.Errorf("%s: %s returned %v, want an error about a deleted or moved file", name, what, err)
			}
		}
		if err := startInstance(t, hub, "after"); !errors.As(err, new(*fs.PathError)) || !strings.Contains(err.Error(), "was deleted or moved") {
			t.Errorf("%s: %v, want an error about a deleted or moved file", name, err)
		}
		if name == "moved" {
			if err := os.Rename(path+".bak", path); err != nil {
				t.Fatal(err)
			}
			if err := startInstance(t, hub, "again"); err != nil {
				t.Errorf("start after the file was put back: %v", err)
			}
			for what, err := range readings(t, hub, nil) {
				if err != nil {
					t.Errorf("after the file was put back: %s returned %v", what, err)
				}
			}
		}
		_ = hub.Close() // nothing must be kept
	}
}

// readings returns the errors of all reads of the instance "before", including the given error of
// Instance.
func readings(t *testing.T, hub *embedded.Hub, instance error) map[string]error {
	_, list := hub.Instances(t.Context(), provider.Query{})
	_, past := hub.History(t.Context(), "before")
	return map[string]error{"Instance": instance, "Instances": list, "History": past, "Check": hub.Check(t.Context())}
}
