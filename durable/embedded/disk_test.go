//go:build linux

package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func init() {
	children["full"] = func(path string) error { return fillDisk(path, false) }
	children["full-relaxed"] = func(path string) error { return fillDisk(path, true) }
}

// fillDisk fills a hub up to a file size limit of the operating system, and then lifts the limit.
// The limit has the effect of a full disk.
func fillDisk(path string, relaxed bool) error {
	signal.Ignore(syscall.SIGXFSZ) // the write fails instead
	ctx := context.Background()
	hub, err := embedded.Open(path, embedded.Config{Relaxed: relaxed, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	startOf := func(id string, size int) error {
		start := &history.ExecutionStarted{
			Header: history.NewHeader(time.Now()), Name: "Orchestrator", Input: new(strings.Repeat("x", size)),
			Instance: history.OrchestrationInstance{InstanceID: id, ExecutionID: "execution"},
		}
		return hub.StartInstance(ctx, provider.TaskMessage{Event: start, Target: start.Instance}, nil)
	}
	start := func(i int) error { return startOf(fmt.Sprintf("instance %d", i), 100_000) }
	if err := start(0); err != nil {
		return err
	}
	if err := limitFiles(3 << 20); err != nil {
		return err
	}
	n := 1
	for err = nil; err == nil && n < 1000; n++ {
		err = start(n)
	}
	if !errors.Is(err, syscall.EFBIG) || !strings.Contains(err.Error(), path) {
		return fmt.Errorf("instance %d: got %w, want EFBIG with the name of the file", n-1, err)
	}
	for range 3 { // writes still fail, and reads work
		if err := start(n); !errors.Is(err, syscall.EFBIG) {
			return fmt.Errorf("another instance: got %w", err)
		}
	}
	if err := hub.Check(ctx); !errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("check: got %w", err)
	}
	if err := startOf("one for which there is room", 10); err != nil {
		return fmt.Errorf("a small start: %w", err)
	}
	for range 2 {
		if err := hub.Check(ctx); !errors.Is(err, syscall.EFBIG) {
			return fmt.Errorf("check after a small write: got %w", err)
		}
	}
	if _, err := hub.Instance(ctx, "instance 1", provider.Fetch{Input: true}); err != nil {
		return fmt.Errorf("read while the disk is full: %w", err)
	}
	if _, err := hub.Instance(ctx, fmt.Sprintf("instance %d", n-1), provider.Fetch{}); !errors.Is(err, provider.ErrInstanceNotFound) {
		return fmt.Errorf("read of the instance whose start failed: %w", err)
	}
	if err := limitFiles(syscall.RLIM_INFINITY & (1<<63 - 1)); err != nil {
		return err
	}
	for range 2 {
		if err := hub.Check(ctx); err != nil {
			return fmt.Errorf("check with free space again: %w", err)
		}
	}
	if err := start(n); err != nil {
		return fmt.Errorf("start with free space again: %w", err)
	}
	fmt.Println(n)
	select {} // the test kills the child and checks the files
}

func limitFiles(size uint64) error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
		return err
	}
	l.Cur = min(size, l.Max)
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l)
}

func TestHub_FailsWhileTheDiskIsFullAndContinuesAfterwards(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"full", "full-relaxed"} {
		path := filepath.Join(t.TempDir(), "hub.db")
		c := startChild(t, role, path)
		var n int
		if _, err := fmt.Sscan(c.line(t), &n); err != nil {
			t.Fatal(err)
		}
		c.kill()
		hub := open(t, path, impatient)
		for i := range n + 1 {
			s, err := hub.Instance(t.Context(), fmt.Sprintf("instance %d", i), provider.Fetch{Input: true})
			if i == n-1 {
				if !errors.Is(err, provider.ErrInstanceNotFound) {
					t.Errorf("read of the instance whose start failed: %v", err)
				}
				continue
			}
			if err != nil || len(*s.Input) != 100_000 {
				t.Errorf("instance %d: %v", i, err)
			}
		}
	}
}

// asNobody calls f on a thread that accesses files as user 65534 if this process runs as root. The
// thread ends with its goroutine.
func asNobody(t *testing.T, f func() error) error {
	t.Helper()
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if os.Getuid() == 0 {
			if err := syscall.Setfsuid(65534); err != nil {
				result <- err
				return
			}
		}
		result <- f()
	}()
	return <-result
}

func TestOpen_ReportsMissingWritePermission(t *testing.T) {
	t.Parallel()
	_, sound := closedHub(t)
	// The parent of t.TempDir belongs to this user only.
	top, err := os.MkdirTemp("", "embedded") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	chmod := func(path string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	chmod(top, 0o755)
	for _, tt := range []struct {
		name      string
		file, dir os.FileMode // no file if 0
	}{
		{"a folder that is read-only", 0, 0o555},
		{"a file that is read-only", 0o444, 0o777},
		{"a file in a folder that is read-only", 0o666, 0o555},
		{"a file that cannot be read", 0o200, 0o777},
	} {
		dir := filepath.Join(top, tt.name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "hub.db")
		if tt.file != 0 {
			write(t, path, sound)
			chmod(path, tt.file)
		}
		chmod(dir, tt.dir)
		err := asNobody(t, func() error {
			hub, err := embedded.Open(path, impatient)
			if err == nil {
				err = errors.Join(errors.New("it was opened"), hub.Close())
			}
			return err
		})
		if !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: Open returned %v, want os.ErrPermission with the name of the file", tt.name, err)
		}
		chmod(dir, 0o755)
		if tt.file != 0 {
			unchanged(t, path, sound)
		}
	}
}
