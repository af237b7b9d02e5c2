package sim_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

var (
	plantedFlag = flag.String("sim.planted", "", "bugs to plant: fixed (three fixed bugs and those in the files of -sim.changed), all, or a share such as 1/14; the default is none, because each bug builds the module")
	changed     = flag.String("sim.changed", "", "comma-separated files that differ from the merge base, for -sim.planted=fixed")
	plantedRuns = flag.Int("sim.plantedruns", 500, "maximum number of seeds to find a planted bug")
)

// fixedBugs are planted with -sim.planted=fixed: one bug each in a codec, an engine and a simulation.
var fixedBugs = []string{"entities/forget-quiet-senders", "disk/sync-every-other-group", "episodes/delete-before-commit"}

// moduleRoot is the directory to which the paths in patches are relative.
const moduleRoot = "../../.."

// planted is a bug: a patch in testdata/planted. Its first lines describe the bug and name the test that
// finds it.
type planted struct {
	name, patch string
	packageDir  string // package of the test
	run         string // the test's -run pattern
	seed        string // the seed of the simulation that finds it
}

var foundBy = regexp.MustCompile(`(?m)^Found by: go test \./(\S+) -run (\S+)(?: -sim\.seed=(\d+))?$`)

// plantedBugs returns all planted bugs.
func plantedBugs(t *testing.T) (all []planted) {
	t.Helper()
	files, err := filepath.Glob("testdata/planted/*/*.patch")
	if err != nil || len(files) < 90 {
		t.Fatalf("%d patches, %v; want more", len(files), err)
	}
	for _, file := range files {
		patch, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		by := foundBy.FindSubmatch(patch)
		if by == nil {
			t.Fatalf("%s does not name the test that finds the bug; want a line that matches %s", file, foundBy)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(file), "testdata/planted/"), ".patch")
		all = append(all, planted{name, string(patch), string(by[1]), string(by[2]), string(by[3])})
	}
	return all
}

// selectBugs returns the bugs that the flags select.
func selectBugs(setting, changed string, all []planted) (selected []planted, err error) {
	if setting == "all" {
		return all, nil
	}
	var part testshare.Share
	if setting != "fixed" {
		if err := part.Set(setting); err != nil {
			return nil, fmt.Errorf("-sim.planted: want fixed, all or a share: %w", err)
		}
	}
	files := strings.Split(changed, ",")
	for i, bug := range all {
		isChanged := func(file string) bool { return slices.Contains(files, file) }
		switch {
		case setting != "fixed":
			if part.Has(i) {
				selected = append(selected, bug)
			}
		case slices.Contains(fixedBugs, bug.name), slices.ContainsFunc(bug.files(), isChanged):
			selected = append(selected, bug)
		}
	}
	return selected, nil
}

func TestPlanted_FlagsSelectBugs(t *testing.T) {
	testshare.SkipInShortRaceRuns(t)
	all := plantedBugs(t)
	number := func(setting, changed string) int {
		selected, err := selectBugs(setting, changed, all)
		if err != nil {
			t.Error(err)
		}
		return len(selected)
	}
	if got := number("all", ""); got != len(all) {
		t.Errorf("all selects %d bugs, want %d", got, len(all))
	}
	if got := number("1/2", "") + number("2/2", ""); got != len(all) {
		t.Errorf("two halves have %d bugs, want %d", got, len(all))
	}
	if got := number("fixed", ""); got != len(fixedBugs) {
		t.Errorf("fixed selects %d bugs, want %d", got, len(fixedBugs))
	}
	if got := number("fixed", "README.md,"+all[0].files()[0]); got <= len(fixedBugs) {
		t.Errorf("fixed selects %d bugs with a changed file, want more than %d", got, len(fixedBugs))
	}
	for _, wrong := range []string{"some", "0/2", "500"} {
		if selected, err := selectBugs(wrong, "", all); err == nil {
			t.Errorf("%s selects %d bugs, want an error", wrong, len(selected))
		}
	}
}

// Every patch must apply to the code and compile, and the test that it names must exist.
func TestPlanted_PatchesFitTheCode(t *testing.T) {
	testshare.SkipInShortRaceRuns(t)
	testshare.SkipOtherShares(t)
	skipWithoutGit(t)
	bugs := plantedBugs(t)
	build := builder(t, bugs)
	for _, bug := range bugs {
		dir := t.TempDir()
		if _, err := bug.plant(dir); err != nil {
			t.Errorf("%s: the code has changed; regenerate the patch: %v", bug.name, err)
		} else if err := build(bug, dir); err != nil {
			t.Errorf("%s: does not compile: %v", bug.name, err)
		}
		if test, _, _ := strings.Cut(bug.run, "/"); !bug.hasTest(t, test) {
			t.Errorf("%s: %s has no %s", bug.name, bug.packageDir, test)
		}
	}
}

// builder returns a function that type-checks the packages of a bug with its patched files from dir.
func builder(t *testing.T, bugs []planted) func(bug planted, dir string) error {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,Export"}
	for _, bug := range bugs {
		for _, file := range bug.files() {
			args = append(args, "./"+path.Dir(file))
		}
	}
	list := exec.CommandContext(t.Context(), "go", args...)
	list.Dir = moduleRoot
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	type listed struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
	}
	byDir, exports := map[string]listed{}, map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p listed
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		byDir[p.Dir], exports[p.ImportPath] = p, p.Export
	}
	files := token.NewFileSet()
	checker := types.Config{Importer: importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	return func(bug planted, dir string) error {
		packages := map[string]map[string]string{} // by directory: original file to patched file
		for _, file := range bug.files() {
			original, err := filepath.Abs(filepath.Join(moduleRoot, file))
			if err != nil {
				return err
			}
			of := filepath.Dir(original)
			if packages[of] == nil {
				packages[of] = map[string]string{}
			}
			packages[of][original] = filepath.Join(dir, file)
		}
		for of, instead := range packages {
			var parsed []*ast.File
			for _, name := range byDir[of].GoFiles {
				file := filepath.Join(of, name)
				f, err := parser.ParseFile(files, cmp.Or(instead[file], file), nil, parser.SkipObjectResolution)
				if err != nil {
					return err
				}
				parsed = append(parsed, f)
			}
			if _, err := checker.Check(byDir[of].ImportPath, files, parsed, nil); err != nil {
				return err
			}
		}
		return nil
	}
}

// Each patch in testdata/planted adds a bug to the code. The test that it names must find the bug: a
// simulation within -sim.plantedruns seeds, another test at once.
func TestPlanted_EachBugIsFound(t *testing.T) {
	if *plantedFlag == "" {
		t.Skip("runs in another part: with -sim.planted")
	}
	skipWithoutGit(t)
	bugs, err := selectBugs(*plantedFlag, *changed, plantedBugs(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, bug := range bugs {
		t.Run(bug.name, func(t *testing.T) {
			testshare.SkipOtherShares(t)
			overlay, err := bug.plant(t.TempDir())
			if err != nil {
				t.Fatalf("the code has changed; regenerate the patch: %v", err)
			}
			found := ""
			if bug.seed == "" {
				if found = bug.test(t); found != "" {
					t.Fatalf("the test also fails without the bug: %s", found)
				}
				found = bug.test(t, "-overlay", overlay)
			} else {
				for _, seeds := range [][2]string{{bug.seed, "1"}, {"1", strconv.Itoa(*plantedRuns)}} {
					if found = bug.test(t, "-overlay", overlay, "-sim.stop=1", "-sim.seed="+seeds[0], "-sim.runs="+seeds[1]); found != "" {
						break
					}
				}
			}
			if found == "" {
				t.Fatal("not found")
			}
			t.Log(found)
		})
	}
}

func skipWithoutGit(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git, which applies patches, is not installed")
	}
}

var patched = regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)`)

// files returns the names of the files that the patch changes.
func (p planted) files() (names []string) {
	for _, match := range patched.FindAllStringSubmatch(p.patch, -1) {
		names = append(names, match[1])
	}
	return names
}

// plant copies the patch's files to dir and applies the patch there. It returns the overlay file that makes
// the go command use the copies.
func (p planted) plant(dir string) (overlay string, err error) {
	instead := struct{ Replace map[string]string }{map[string]string{}}
	for _, name := range p.files() {
		file, err := filepath.Abs(filepath.Join(moduleRoot, name))
		if err != nil {
			return "", err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		copied := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(copied), 0o700), os.WriteFile(copied, content, 0o600)); err != nil {
			return "", err
		}
		instead.Replace[file] = copied
	}
	apply := exec.Command("git", "apply", "--recount")
	apply.Dir, apply.Stdin = dir, strings.NewReader(p.patch)
	if out, err := apply.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	content, err := json.Marshal(instead)
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, content, 0o600)
}

// hasTest reports whether the package has a test whose name contains name.
func (p planted) hasTest(t *testing.T, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(moduleRoot, p.packageDir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	function := regexp.MustCompile(`(?m)^func \w*` + name + `\w*\(t \*testing\.T\)`)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if function.Match(content) {
			return true
		}
	}
	return false
}

// failure matches the output of a failed test, including the panic of a simulation.
var failure = regexp.MustCompile(`(?s)(--- FAIL: |panic: seed \d+: ).{1,600}`)

// test runs the test that must find the bug. It returns the output of its failure, "" if the test passes. A
// compile error or a panic is not a find and ends the test.
func (p planted) test(t *testing.T, flags ...string) string {
	t.Helper()
	args := append([]string{"test", "-vet=off", "-timeout=1h", "-run=" + p.run, "./" + p.packageDir}, flags...)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = moduleRoot
	out, err := cmd.CombinedOutput()
	said := failure.Find(out)
	switch {
	case bytes.Contains(out, []byte("no tests to run")):
		t.Fatalf("no test of %s matches %s", p.packageDir, p.run)
	case bytes.Contains(out, []byte("\npanic: deadlock: all goroutines in bubble are blocked")):
		return string(said)
	case err != nil && (said == nil || bytes.Contains(out, []byte("\npanic: ")) && said[0] == '-'):
		t.Fatalf("%v\n%s", err, out)
	case err != nil:
		return string(said)
	}
	return ""
}
