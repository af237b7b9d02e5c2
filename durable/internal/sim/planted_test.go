package sim_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// plantedRuns names the environment variable that says how many seeds a planted
// bug may take to be found. Without it nothing is planted, since that means to
// build the module once for each bug.
const plantedRuns = "DURABLE_SIM_PLANTED"

var failedSeed = regexp.MustCompile(`seed (\d+): (.*)`)

// Each patch in testdata/planted puts a bug into a copy of the module. The
// simulator must find it.
func TestPlanted_EachBugIsFound(t *testing.T) {
	runs := os.Getenv(plantedRuns)
	if runs == "" {
		t.Skipf("the environment variable %s is not set", plantedRuns)
	}
	patches, err := filepath.Glob("testdata/planted/*.patch")
	if err != nil || len(patches) < 10 {
		t.Fatalf("%d patches, %v; want at least 10", len(patches), err)
	}
	copied := copyModule(t)
	for _, patch := range patches {
		t.Run(strings.TrimSuffix(filepath.Base(patch), ".patch"), func(t *testing.T) {
			path, err := filepath.Abs(patch)
			if err != nil {
				t.Fatal(err)
			}
			if out, err := command(t, copied, "git", "apply", "--recount", path).CombinedOutput(); err != nil {
				t.Fatalf("the code has changed, make the patch anew: %v\n%s", err, out)
			}
			defer func() {
				if out, err := command(t, copied, "git", "apply", "--recount", "-R", path).CombinedOutput(); err != nil {
					t.Fatalf("take the bug out again: %v\n%s", err, out)
				}
			}()
			out, err := command(t, copied, "go", "test", "./durable/internal/sim", "-run", "AppsEnd", "-count=1", "-sim.runs="+runs, "-sim.stop=1").CombinedOutput()
			if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
				t.Fatal(err)
			}
			found := failedSeed.FindSubmatch(out)
			if found == nil {
				t.Fatalf("not found within %s seeds\n%s", runs, out)
			}
			t.Logf("found by seed %s: %.200s", found[1], found[2])
		})
	}
}

func command(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	return cmd
}

// copyModule copies what the simulator is built of.
func copyModule(t *testing.T) string {
	t.Helper()
	const root = "../../.."
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	source := os.DirFS(filepath.Join(root, "durable"))
	err := fs.WalkDir(source, ".", func(path string, entry fs.DirEntry, err error) error {
		to := filepath.Join(dir, "durable", path)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "testdata":
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(to, 0o700)
		case filepath.Ext(path) != ".go":
			return nil
		}
		content, err := fs.ReadFile(source, path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, content, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
