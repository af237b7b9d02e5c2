package durablecheck_test

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durablecheck"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/go/analysis/analysistest"
)

// app is the directory of a module that calls another module. Like standard packages, its path has no dot.
const app = "testdata/modules/app"

func TestAnalyzer_FollowsRelevantCallsIntoOtherModules(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs(app)
	if err != nil {
		t.Fatal(err)
	}
	analysistest.Run(t, dir, durablecheck.Analyzer, "./...")
}

// Under go vet, a separate process analyzes each package, and facts and types are passed in files. A new
// build ID makes go vet run the command: cached results of a package that was vetted only as a dependency
// lack its findings.
func TestCommand_ReportsTheSameUnderGoVet(t *testing.T) {
	t.Parallel()
	got := lines(runCommand(t, app, "go", "vet", "-vettool="+command(t, "-ldflags=-buildid="+rand.Text()), "./..."))
	if diff := cmp.Diff(wanted(t), got); diff != "" {
		t.Errorf("go vet does not report the lines with want comments (-want +got):\n%s", diff)
	}
}

func TestCommand_ReportsTheSameOnItsOwn(t *testing.T) {
	t.Parallel()
	got := lines(runCommand(t, app, command(t), "./..."))
	if diff := cmp.Diff(wanted(t), got); diff != "" {
		t.Errorf("durablecheck does not report the lines with want comments (-want +got):\n%s", diff)
	}
}

// command builds the command with flags and returns its path.
func command(t *testing.T, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "durablecheck")
	args := slices.Concat([]string{"build", "-o", path}, flags, []string{"./cmd/durablecheck"})
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("build the command: %v\n%s", err, out)
	}
	return path
}

// runCommand runs a command that must report findings, and returns its output.
func runCommand(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOPROXY=off")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("%s exits with 0, want a nonzero code:\n%s", name, out)
	}
	return string(out)
}

var position = regexp.MustCompile(`([a-z_]+\.go):(\d+):\d+: `)

// lines returns the file:line of every diagnostic in out, sorted.
func lines(out string) []string {
	var at []string
	for _, m := range position.FindAllStringSubmatch(out, -1) {
		at = append(at, m[1]+":"+m[2])
	}
	slices.Sort(at)
	return at
}

var (
	want    = regexp.MustCompile("// want (.*)$")
	message = regexp.MustCompile("(^| )`[^`]*`")
)

// wanted returns the file:line of every want comment of the app, sorted.
func wanted(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(app + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(app + "/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var at []string
	for _, file := range append(files, more...) {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(source), "\n") {
			if m := want.FindStringSubmatch(line); m != nil {
				for range message.FindAllString(m[1], -1) {
					at = append(at, filepath.Base(file)+":"+strconv.Itoa(i+1))
				}
			}
		}
	}
	slices.Sort(at)
	return at
}
