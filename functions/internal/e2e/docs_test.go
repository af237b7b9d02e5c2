//go:build unix

package e2e_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/docblock"
)

// commandCounts counts the commands of the documentation. executed includes the commands that
// prepare a page, which readers do not see.
type commandCounts struct{ executed, prepared, compared, marked atomic.Int32 }

// Every command of the documentation is executed in order, with the sample app on a local hub,
// and must succeed. Marked blocks are exceptions. The output must match the block that follows.
func TestDocs_CommandsSucceed(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(checkout, "durable", "docs", "*.md"))
	if err != nil || len(pages) < 40 {
		t.Fatalf("found %d pages: %v", len(pages), err)
	}
	pages = append(pages, filepath.Join(checkout, "README.md"), filepath.Join(checkout, ".github", "CONTRIBUTING.md"))
	var counts commandCounts
	t.Run("pages", func(t *testing.T) { // ends with its parallel subtests
		for _, path := range pages {
			blocks, _, err := docblock.Read(path)
			if err != nil {
				t.Fatal(err)
			}
			blocks = slices.DeleteFunc(blocks, func(b docblock.Block) bool { return len(b.Commands()) == 0 && !b.Output })
			if len(blocks) > 0 {
				t.Run(filepath.Base(path), func(t *testing.T) {
					t.Parallel()
					newReader(t, &counts).follow(blocks)
				})
			}
		}
	})
	t.Logf("commands: %d executed, %d more to prepare pages, %d marked; outputs: %d compared",
		counts.executed.Load(), counts.prepared.Load(), counts.marked.Load(), counts.compared.Load())
	if counts.executed.Load() < 40 || counts.compared.Load() < 12 {
		t.Error("the test executes too few commands or compares too few outputs")
	}
}

// appsOfPages are the pages that need another app than the sample.
var appsOfPages = map[string]func() (string, error){"operate-prometheus.md": e2eApp}

// reader executes the commands of one page in a folder with the app.
type reader struct {
	t      *testing.T
	counts *commandCounts
	root   string
	built  func() (string, error)
	app    *app // nil if it does not run
}

func newReader(t *testing.T, counts *commandCounts) *reader {
	t.Helper()
	return &reader{t: t, counts: counts, root: newRoot(t, newHub(), "", nil), built: sampleApp}
}

// follow executes the blocks of a page in order.
func (r *reader) follow(blocks []docblock.Block) {
	if built := appsOfPages[blocks[0].Page]; built != nil {
		r.built = built
	}
	folder := filepath.Join(r.root, "bin")
	if err := errors.Join(os.MkdirAll(folder, 0o755), os.Symlink(binary(r.t, r.built), filepath.Join(folder, "app"))); err != nil {
		r.t.Fatal(err)
	}
	for i, b := range blocks {
		commands := b.Commands()
		switch {
		case len(commands) == 0: // an output, compared with its commands
		case !b.Executed():
			r.counts.marked.Add(int32(len(commands)))
		case b.Has(docblock.Server):
			r.stop()
			r.serve(b, commands)
		default:
			if b.Has(docblock.Stopped) {
				r.stop()
			} else if r.app == nil {
				r.app = startStandalone(r.t, r.built, r.root, "DURABLE_LOG_LEVEL=info")
			}
			if i+1 < len(blocks) && blocks[i+1].Output {
				r.execute(b, commands, blocks[i+1].Text)
			} else {
				r.execute(b, commands, "")
			}
		}
	}
}

// stop stops the app like Ctrl+C, if it runs.
func (r *reader) stop() {
	if r.app == nil {
		return
	}
	_ = r.app.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	eventually(r.t, 0, "the end of the app", r.app.ended)
	r.app = nil
}

// execute runs the commands of a block and compares their output with want, or with the output in
// the transcript. The effects of a command may be visible later. A command is therefore repeated
// while the status of its instance does not allow it, and the last one until its output matches.
func (r *reader) execute(b docblock.Block, commands []docblock.Command, want string) {
	output, differs, result := "", "", ran{}
	defer func() {
		if r.t.Failed() {
			r.t.Logf("%s: exit code %d; no line of the output is like %q\n%s%s%s", b.At(), result.code, differs, output, result.stdout, result.errs)
		}
	}()
	for i, c := range commands {
		if b.Hidden {
			r.counts.prepared.Add(1)
		} else {
			r.counts.executed.Add(1)
		}
		expected := c.Output
		if i == len(commands)-1 {
			expected += want
		}
		eventually(r.t, 0, b.At()+": "+c.Text, func() bool {
			if result = r.shell(c.Text); result.code == 4 {
				return false
			}
			if result.code != 0 {
				r.t.Fatalf("%s: %s: exit code %d", b.At(), c.Text, result.code)
			}
			if differs = mismatch(expected, output+result.stdout); differs == "" {
				return true
			}
			return !regexp.MustCompile(`^(bin/app hub (get|list|why)|curl) `).MatchString(c.Text)
		})
		if differs != "" {
			r.t.Fatalf("%s: %s: the output differs", b.At(), c.Text)
		}
		output += result.stdout
		if expected != "" {
			output = ""
			r.counts.compared.Add(1)
		}
	}
}

// serve starts the app with the last command of a block, waits until it listens, and stops it.
func (r *reader) serve(b docblock.Block, commands []docblock.Command) {
	r.counts.executed.Add(int32(len(commands)))
	text := commands[len(commands)-1].Text
	p := run(r.t, r.root, environment("PORT=0"), "bash", "-c", strings.Replace(text, "bin/app", "exec bin/app", 1))
	p.awaitLog(`msg=listening address=\S+`, 0)
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	eventually(r.t, 0, "the end of the app", p.ended)
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		r.t.Errorf("%s: %s: exit code %d", b.At(), text, code)
	}
}

// shell runs a command of a page. Requests go to the app of the test, and must succeed. Files in
// /tmp are in the folder of the test.
func (r *reader) shell(text string) ran {
	text = strings.ReplaceAll(text, "/tmp/", r.root+"/")
	if r.app != nil {
		text = strings.ReplaceAll(text, "http://localhost:8080", r.app.url)
	}
	cmd := exec.CommandContext(r.t.Context(), "bash", "-c", `curl() { command curl -sS --fail-with-body "$@"; }; `+text)
	cmd.Dir, cmd.Env = r.root, environment()
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // the exit code is checked
	return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// varying matches words of an output that differ between runs: numbers, times, units and paths.
var varying = regexp.MustCompile(`^(\d[\d.:TZ-]*|(\d+[hms])+|[kMG]?B,?|/\S+)$`)

// mismatch returns the first line of a page that the output does not contain. In the page, "…"
// stands for any text. Of a JSON object only the names are compared.
func mismatch(page, output string) string {
	if names := objectNames(page); names != nil {
		got := objectNames(output)
		for _, name := range names {
			if !slices.Contains(got, name) {
				return name
			}
		}
		return ""
	}
	for line := range strings.Lines(page) {
		var pattern []string
		for _, word := range strings.Fields(line) {
			if varying.MatchString(word) {
				pattern = append(pattern, `\S+`)
			} else {
				pattern = append(pattern, strings.ReplaceAll(regexp.QuoteMeta(word), "…", ".*"))
			}
		}
		if len(pattern) > 0 && !regexp.MustCompile(`(?m)^\s*`+strings.Join(pattern, `\s+`)+`\s*$`).MatchString(output) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// objectNames returns the names of a JSON object, or nil.
func objectNames(text string) (names []string) {
	var object map[string]json.RawMessage
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&object); err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	for name := range object {
		names = append(names, name)
	}
	return names
}

func TestDocs_OutputsAreComparedWithoutTimesAndNumbers(t *testing.T) {
	for _, c := range []struct{ page, output, want string }{
		{"ID  AT       SINCE   DUE\na   x.go:40  3s ago  in 1m27s\n", "ID\tAT\tSINCE\tDUE\na\tx.go:40\t9s ago\tin 2m\n", ""},
		{"a  x.go:40\n", "a\tx.go:41\n", "a  x.go:40"},
		{"copied to /srv/a.db: 1.2 MB\n", "copied to /b.db: 80 kB\n", ""},
		{"error: …\nEnd  2026-01-31T12:00:00Z\n", "error: no\nEnd\t2027-02-01T01:02:03.4Z\n", ""},
		{`{"a": 1}`, `{"a": 2, "b": 3}`, ""},
		{`{"c": 1}`, `{"a": 2}`, "c"},
	} {
		if got := mismatch(c.page, c.output); got != c.want {
			t.Errorf("mismatch(%q, %q) = %q, want %q", c.page, c.output, got, c.want)
		}
	}
}
