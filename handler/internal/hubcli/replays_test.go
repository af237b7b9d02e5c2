package hubcli_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
)

// oneDamaged is a management API with the instances damaged and sound. It answers status to each request for a
// part of damaged.
func oneDamaged(status int) answering {
	return listing(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case strings.Contains(path, "/damaged/"):
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"Message":"its history cannot be decoded"}`)
		case strings.HasSuffix(path, "/why"):
			_, _ = io.WriteString(w, `{"instanceId":"sound","name":"Hello","reasons":[{"kind":"event","name":"Approved"}]}`)
		default:
			_, _ = io.WriteString(w, "[]")
		}
	}, "damaged", "sound")
}

func TestReplays_ContinueAfterADamagedInstance(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable} {
		api, dir := oneDamaged(status), t.TempDir()
		const damage = `instance "damaged": its history cannot be decoded`
		runOn(t.Context(), api, "why", "--stuck", "--idle", "0s").wants(t, hubcli.ExitFailed, "event Approved", damage, "1 of 2 instances could not be read")
		runOn(t.Context(), api, "verify").wants(t, hubcli.ExitFailed, "damaged\tHello", "1 of 2 instances do not match")
		runOn(t.Context(), api, "record", "--dir", dir).wants(t, hubcli.ExitFailed, "recorded 1 histories", damage, "1 of 2 instances could not be read")
		if _, err := os.Stat(filepath.Join(dir, "sound.json")); err != nil {
			t.Error(err)
		}
	}
}

func TestReplays_StopWhenTheHubIsUnreachable(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"why --stuck --idle 0s", "verify", "record --dir " + t.TempDir()} {
		for name, fail := range map[string]func(w http.ResponseWriter) error{
			"no answer": func(http.ResponseWriter) error { return errors.New("connection refused") },
			"an outage": func(w http.ResponseWriter) error {
				w.WriteHeader(http.StatusServiceUnavailable)
				return nil
			},
		} {
			var attempts atomic.Int64
			api := failing{listing(nil, strings.Fields(strings.Repeat("i ", 100))...), func(w http.ResponseWriter, _ *http.Request) error {
				attempts.Add(1)
				return fail(w)
			}}
			runOn(t.Context(), api, strings.Fields(command)...).wants(t, hubcli.ExitUnavailable, "", `instance "i": `)
			if n := attempts.Load(); n > 15 {
				t.Errorf("%s: %s: %d attempts, want at most 8 and the 7 that run at the same time", name, command, n)
			}
		}
	}
}

func TestVerify_StopsBetweenFilesWhenItIsInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "one.json"), []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	runOn(ctx, listing(nil), "verify", dir).wants(t, hubcli.ExitFailed, "", "context canceled")
}

func TestRecord_WritesAFileForEachIDAndCountsTheFiles(t *testing.T) {
	t.Parallel()
	ids := []string{strings.Repeat("注", 28), strings.Repeat("a", 251), strings.Repeat("a", 252), "a/b", "purged"}
	dir := t.TempDir()
	api := listing(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/purged") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, "[]")
	}, ids...)
	runOn(t.Context(), api, "record", "--dir", dir).wants(t, hubcli.ExitOK, "recorded 4 histories")
	if files, err := filepath.Glob(filepath.Join(dir, "*.json")); err != nil || len(files) != 4 {
		t.Errorf("wrote %q, %v; want 4 files", files, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "a%2Fb.json")); err != nil {
		t.Error(err)
	}
	runOn(t.Context(), api, "verify", dir).wants(t, hubcli.ExitOK, "", "All instances match the orchestrators of this program: 4")
}

// Windows refuses ":", or takes it for the name of a stream in a file, and opens a device for names such as nul.json and
// con.x.json. Windows and macOS do not distinguish names that differ only in case.
func TestRecord_FileNamesAreValidAndDifferentOnEverySystem(t *testing.T) {
	t.Parallel()
	ids := []string{"abc:0", "abc:1", "Order-1", "order-1", "ORDER-1", "nul", "NUL", "Con.x", "com1", "lpt9", "conin$", "console", `"*<>?|\`}
	dir := filepath.Join(t.TempDir(), "runs[1]")
	api := listing(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "[]") }, ids...)
	runOn(t.Context(), api, "record", "--dir", dir).wants(t, hubcli.ExitOK, fmt.Sprintf("recorded %d histories", len(ids)))
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != len(ids) {
		t.Errorf("%d files, %v; want %d", len(files), err, len(ids))
	}
	device := regexp.MustCompile(`^(con|nul|com1|lpt9|conin\$)\.`)
	seen := map[string]bool{}
	for _, file := range files {
		name := strings.ToLower(file.Name())
		if seen[name] || strings.ContainsAny(name, `:"*<>?|\`) || device.MatchString(name) {
			t.Errorf("the file name %q is not valid, or there twice", file.Name())
		}
		seen[name] = true
	}
	for _, want := range []string{"abc%3A0.json", "order-1.json", "console.json"} {
		if !seen[strings.ToLower(want)] {
			t.Errorf("no file %s in %v", want, files)
		}
	}
	// Earlier versions wrote such names.
	for _, name := range []string{"Order-9.json", "note.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("[]"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runOn(t.Context(), api, "verify", dir).wants(t, hubcli.ExitOK, "", fmt.Sprintf("All instances match the orchestrators of this program: %d", len(ids)+1))
}
