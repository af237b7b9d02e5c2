package embedded

import (
	"bytes"
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded/internal/hubfile"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/disk/powerloss"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition/partitiontest"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var rewriteFormat = flag.Bool("format.rewrite", false, "write the files of the current format in testdata, after a change that older builds need not read")

// A process left a hub of each format version without closing it. Open must recover everything in
// its database and its journal. The files of a format were written once, by the version that
// introduced it, and must not change.
func TestOpen_ReadsFilesOfEveryFormatVersion(t *testing.T) {
	t.Parallel()
	for format := 1; format <= hubfile.FormatVersion; format++ {
		for _, relaxed := range []bool{false, true} {
			t.Run(fmt.Sprintf("format %d, relaxed %v", format, relaxed), func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join("testdata", fmt.Sprintf("format%d", format), map[bool]string{false: "durable", true: "relaxed"}[relaxed])
				path := filepath.Join(t.TempDir(), "hub.db")
				sampleHub(t, path, relaxed)
				if *rewriteFormat && format == hubfile.FormatVersion {
					packHub(t, path, dir)
				}
				unpackHub(t, dir, path+".left")
				want := contents(t, path, relaxed)
				if got := contents(t, path+".left", relaxed); !cmp.Equal(want, got, ignoringTimes) {
					t.Errorf("(-want +got):\n%s", cmp.Diff(want, got, ignoringTimes))
				}
			})
		}
	}
}

// A hub is exact if this version created it and nothing was imported. The kind of files of older
// versions is unknown.
func TestOpen_RestoresWhetherDataWasImported(t *testing.T) {
	t.Parallel()
	isExact := func(path string) bool {
		h, err := Open(path, Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		}()
		return h.IsExactlyOnce()
	}
	created, filled, old := filepath.Join(t.TempDir(), "hub.db"), filepath.Join(t.TempDir(), "hub.db"), filepath.Join(t.TempDir(), "hub.db")
	for _, when := range []string{"when it is created", "when it is opened again"} {
		if !isExact(created) {
			t.Errorf("a new hub is not exact %s; want exact", when)
		}
	}
	h, err := Open(filled, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Import(t.Context(), func(provider.HubWriter) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if h.IsExactlyOnce() {
		t.Error("a hub with an import is exact; want not exact")
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if isExact(filled) {
		t.Error("a hub with an import is exact when it is opened again; want not exact")
	}
	unpackHub(t, filepath.Join("testdata", "format1", "durable"), old)
	if isExact(old) {
		t.Error("a hub of an older version is exact; want not exact")
	}
}

var ignoringTimes = cmpopts.IgnoreTypes(time.Time{})

// sampleHub creates a hub that uses all features of the format, partly in the database and partly
// in the journal. It leaves the files as a dead process does.
func sampleHub(t *testing.T, path string, relaxed bool) {
	t.Helper()
	live := filepath.Join(t.TempDir(), "live.db")
	r := openRunning(t, live, relaxed)
	r.Start("ended")
	r.Finish(r.Next(), partitiontest.Ended())
	r.Start("runs")
	timer := &history.TimerCreated{Header: history.Header{EventID: 2}, FireAt: history.TruncateToTicks(time.Now().Add(1000 * time.Hour))}
	r.Finish(r.Next(), partitiontest.Scheduled(0), partitiontest.Scheduled(1), timer)
	r.Must(r.AwaitActivity().Lock.Complete(t.Context(), partitiontest.ResultOf(0)))
	r.stop()
	r.Must(r.Close())

	r = openRunning(t, live, relaxed)
	r.Raise("runs", strings.Repeat("a long name ", 3000)) // stored in several pieces
	r.StartAt("scheduled", time.Now().Add(1000*time.Hour))
	r.Start("gone")
	r.stop()
	r.Must(r.Purge(t.Context(), "ended", nil))
	for _, suffix := range []string{".journal-0", ".journal-1", ""} {
		r.Must(powerloss.CopyFile(live+suffix, path+suffix))
	}
}

// running is a hub that runs until stop is called.
type running struct {
	*partitiontest.Stage
	*Hub
	stop func()
}

func openRunning(t *testing.T, path string, relaxed bool) *running {
	t.Helper()
	h, err := Open(path, Config{Relaxed: relaxed, DrainTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // stop waits for it
		defer close(done)
		_ = h.Run(ctx) // nil, or the error that the hub is closed
	}()
	r := &running{&partitiontest.Stage{T: t, Hub: h}, h, func() { cancel(); <-done }}
	t.Cleanup(func() {
		r.stop()
		_ = h.Close() // may be closed already
	})
	return r
}

// contents opens a hub and returns everything that it exports.
func contents(t *testing.T, path string, relaxed bool) (all exported) {
	t.Helper()
	h, err := Open(path, Config{Relaxed: relaxed, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Export(t.Context(), &all, provider.ExportOptions{}); err != nil {
		t.Error(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	return all
}

// exported is the exported content of a hub.
type exported struct {
	States    []provider.InstanceState
	Histories [][]history.Event
	Tasks     []provider.TaskMessage
	Messages  []provider.TaskMessage
}

func (e *exported) Instance(_ context.Context, state *provider.InstanceState, past []history.Event) error {
	e.States = append(e.States, *state)
	e.Histories = append(e.Histories, slices.Clone(past))
	return nil
}

func (e *exported) Activity(_ context.Context, task provider.TaskMessage) error {
	e.Tasks = append(e.Tasks, task)
	return nil
}

func (e *exported) Message(_ context.Context, m provider.TaskMessage) error {
	e.Messages = append(e.Messages, m)
	return nil
}

// packHub copies the files of a hub to a folder of testdata.
func packHub(t *testing.T, path, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", ".journal-0", ".journal-1"} {
		content, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "hub.db"+suffix+".gz"), packed.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func unpackHub(t *testing.T, dir, path string) {
	t.Helper()
	for _, suffix := range []string{"", ".journal-0", ".journal-1"} {
		packed, err := os.Open(filepath.Join(dir, "hub.db"+suffix+".gz"))
		if err != nil {
			t.Fatal(err)
		}
		defer packed.Close()
		r, err := gzip.NewReader(packed)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+suffix, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
