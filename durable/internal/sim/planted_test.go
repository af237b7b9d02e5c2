package sim_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// plantedRuns names the environment variable that says how many seeds a planted
// bug may take to be found, as in "500". Without it nothing is planted, since that
// means to build the module once for each bug. "500/7" plants one of seven bugs
// each day, so that all have been planted after seven.
const plantedRuns = "DURABLE_SIM_PLANTED"

// plantedToday returns those of patches that are planted today, and how many seeds
// each may take to be found.
func plantedToday(t *testing.T, setting string, patches []string) (today []string, runs string) {
	runs, part, sampled := strings.Cut(setting, "/")
	every, err := strconv.Atoi(part)
	if !sampled {
		return patches, runs
	}
	if err != nil || every < 1 {
		t.Fatalf("%s is %q; want a number of seeds, or one and a number of days as in 500/7", plantedRuns, setting)
	}
	day := int(time.Now().Unix() / (24 * 60 * 60))
	for i, patch := range patches {
		if (i+day)%every == 0 {
			today = append(today, patch)
		}
	}
	return today, runs
}

var failedSeed = regexp.MustCompile(`seed (\d+): (.*)`)

// A patch that does not fit the code any more plants nothing.
func TestPlanted_PatchesFitTheCode(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git, which applies patches, is not installed")
	}
	var patches []string
	for _, pattern := range []string{"testdata/planted/*.patch", "testdata/planted/*/*.patch"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		patches = append(patches, found...)
	}
	for _, patch := range patches {
		path, err := filepath.Abs(patch)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := command(t, "../../..", "git", "apply", "--recount", "--check", path).CombinedOutput(); err != nil {
			t.Errorf("the code has changed, make the patch anew: %v\n%s", err, out)
		}
	}
}

// Each patch in testdata/planted puts a bug into a copy of the module. The
// simulator must find it.
func TestPlanted_EachBugIsFound(t *testing.T) {
	findPlanted(t, "testdata/planted/*.patch", 18, "AppsEnd(As|ThoughRequests)")
}

// Those in testdata/planted/entities are bugs of entities.
func TestPlanted_EachBugOfEntitiesIsFound(t *testing.T) {
	findPlanted(t, "testdata/planted/entities/*.patch", 10, "AppsWithEntitiesEnd")
}

// Those in testdata/planted/endings are bugs of what ends without its code.
func TestPlanted_EachBugOfEndingsIsFound(t *testing.T) {
	findPlanted(t, "testdata/planted/endings/*.patch", 2, "AppsThatAreEndedEarly")
}

// Those in testdata/planted/disk are bugs of what a local hub tells the disk.
func TestPlanted_EachBugOfTheDiskIsFound(t *testing.T) {
	findPlanted(t, "testdata/planted/disk/*.patch", 4, "AppsEndAs", "-sim.provider=embedded")
}

// Those in testdata/planted/callers are bugs of what callers ask for at once, or go away
// from.
func TestPlanted_EachBugOfCallersIsFound(t *testing.T) {
	findPlanted(t, "testdata/planted/callers/*.patch", 4, "AppsEndThoughCallersGoAway")
}

// Those in testdata/planted/blobs are bugs of large payloads that are deleted too early,
// or never.
func TestPlanted_EachBugOfBlobsIsFound(t *testing.T) {
	findPlanted(t, "testdata/planted/blobs/*.patch", 7, "AppsWithLargePayloadsEnd")
}

// Those in testdata/planted/inuse are bugs of what is taken and not given back.
func TestPlanted_EachBugOfWhatIsInUseIsFound(t *testing.T) {
	findPlanted(t, "testdata/planted/inuse/*.patch", 6, "AppsWithLargePayloadsEnd")
}

// Those in testdata/planted/records are bugs of both kinds of a local hub.
func TestPlanted_EachBugOfRecordsIsFound(t *testing.T) {
	findPlanted(t, "testdata/planted/records/*.patch", 2, "AppsWithLargePayloadsEnd", "-sim.provider=embedded")
}

// Those in testdata/planted/order are bugs of the order of one sender's messages.
func TestPlanted_EachBugOfOrderIsFound(t *testing.T) {
	findPlanted(t, "testdata/planted/order/*.patch", 4, "EventsOfOneSender")
}

// Those in testdata/planted/copies are bugs of copying a hub to another provider.
func TestPlanted_EachBugOfCopiesIsFound(t *testing.T) {
	findPlanted(t, "testdata/planted/copies/*.patch", 3, "TheirHubIsCopied")
}

// findPlanted looks for each of the bugs that the patches are, of which there are
// so many at least, by the given test, which gets flags besides the seeds.
func findPlanted(t *testing.T, pattern string, least int, test string, flags ...string) {
	t.Helper()
	setting := os.Getenv(plantedRuns)
	if setting == "" {
		t.Skipf("the environment variable %s is not set", plantedRuns)
	}
	patches, err := filepath.Glob(pattern)
	if err != nil || len(patches) < least {
		t.Fatalf("%d patches, %v; want at least %d", len(patches), err, least)
	}
	patches, runs := plantedToday(t, setting, patches)
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
			binary := filepath.Join(t.TempDir(), "planted.test")
			if out, err := command(t, copied, "go", "test", "-c", "-trimpath", "-o", binary, "./durable/internal/sim").CombinedOutput(); err != nil {
				t.Fatalf("build: %v\n%s", err, out)
			}
			found := ""
			if seed, ok := foundBefore[filepath.Base(patch)]; ok {
				found = search(t, binary, seed, "1", append(flags, "-test.run="+test)...)
			}
			if found == "" {
				found = search(t, binary, 1, runs, append(flags, "-test.run="+test)...)
			}
			if found == "" {
				t.Fatalf("not found within %s seeds", runs)
			}
			t.Log(found)
		})
	}
}

// foundBefore has the seeds that found the bugs before. They are tried first.
var foundBefore = map[string]uint64{
	"01-skip-etag.patch":                     1,
	"02-delete-before-commit.patch":          25,
	"03-drop-renewal.patch":                  3,
	"04-forget-to-abandon.patch":             52,
	"05-forget-to-retract.patch":             10,
	"06-lost-answer-is-a-lost-race.patch":    7,
	"07-take-a-completion-twice.patch":       28,
	"08-purge-leaves-blobs.patch":            2,
	"09-send-once-and-hope.patch":            15,
	"10-delete-item-before-result.patch":     25,
	"11-hand-over-before-commit.patch":       1,
	"12-discard-early-completions.patch":     167,
	"13-swallow-a-failed-send.patch":         53,
	"14-leave-the-row-behind.patch":          45,
	"15-begin-anew-what-continued.patch":     3000189,
	"16-go-on-after-another.patch":           3274,
	"17-write-over-a-newer-row.patch":        4109415,
	"18-first-conflict-is-a-lost-race.patch": 1,

	"21-apply-twice.patch":                        7,
	"22-forget-a-release.patch":                   32,
	"23-reorder-a-sender.patch":                   1,
	"24-keep-signals-of-a-failed-operation.patch": 1,
	"25-lose-a-lock-request.patch":                594,
	"26-send-before-the-commit.patch":             60,
	"27-forget-the-outbox.patch":                  4,
	"28-take-an-execution-for-an-old-one.patch":   275,
	"29-let-the-lock-overtake.patch":              737,
	"30-lose-a-lock-request-in-a-batch.patch":     1,

	"41-run-what-was-terminated.patch": 6,
	"42-hold-back-a-termination.patch": 4,

	"51-row-before-message.patch":                17,
	"52-replace-whatever-is-there.patch":         1,
	"53-keep-what-has-lost-its-blob.patch":       14,
	"54-drop-the-blob-of-what-others-have.patch": 4,

	"61-forget-the-generation-before.patch":       6,
	"64-purge-the-row-first.patch":                8,
	"71-keep-the-place-of-what-has-no-blob.patch": 7,
	"72-hold-what-could-not-be-handed-back.patch": 4,
	"75-keep-the-place-of-an-entity.patch":        4,

	"61-carry-the-late-first.patch": 8,
	"62-carry-events-by-name.patch": 16,
	"63-order-a-fetch-by-id.patch":  2,
	"64-take-the-newest.patch":      1,

	"71-forget-timers-of-the-suspended.patch":      39,
	"73-leave-signals-of-the-running-behind.patch": 28,
	"74-leave-signals-behind.patch":                4,
}

// search simulates seeds until one fails, and returns what that one said.
func search(t *testing.T, binary string, first uint64, runs string, flags ...string) (found string) {
	t.Helper()
	flags = append(flags, "-test.timeout=1h", fmt.Sprintf("-sim.seed=%d", first), "-sim.runs="+runs, "-sim.stop=1")
	out, err := command(t, ".", binary, flags...).CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatal(err)
	}
	if match := failedSeed.FindSubmatch(out); match != nil {
		return fmt.Sprintf("found by seed %s: %.200s", match[1], match[2])
	}
	return ""
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
