// Command runtests runs the tests of the repository. scripts/test calls it.
//
//	go run ./scripts/runtests [-full | -chance N] [-repeat N] [-record] [-shuffle SEED] [-slowest N]
//
// It builds the test binaries, runs them as parts (parts.go) in the scheduler's order (schedule.go), and
// prints failures last (report.go).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

func main() {
	full := flag.Bool("full", false, "run every test, in full amounts; by default each layer is represented")
	chance := flag.Int("chance", 0, "run only the tests that once failed by chance: each this many times in one process, and in as many processes")
	repeat := flag.Int("repeat", 1, "run the command this many times and stop at the first failure")
	record := flag.Bool("record", false, "write the time of each part to scripts/runtests/times.tsv if all tests pass")
	shuffle := flag.Uint64("shuffle", 0, "the seed of the tests' order; 0 chooses one")
	slowest := flag.Int("slowest", 0, "print this many of the tests that took longest")
	flag.Parse()
	_ = os.Unsetenv("GOMAXPROCS") // each part chooses its number of processors
	if flag.NArg() > 0 || *chance > 0 && (*full || *record) {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for n := range *repeat {
		if *repeat > 1 {
			fmt.Printf("== run %d of %d\n", n+1, *repeat)
		}
		r := run{full: *full, chance: *chance, record: *record, shuffle: *shuffle, slowest: *slowest, out: filepath.Join("bin", "tests"), started: time.Now()}
		if r.shuffle == 0 {
			r.shuffle = rand.Uint64N(1 << 32)
		}
		err := r.run(ctx)
		if err := appendLog(filepath.Join("bin", "test-runs.log"), r.logLine(err)); err != nil {
			fmt.Fprintln(os.Stderr, "runtests:", err)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "runtests:", err)
			os.Exit(1)
		}
	}
}

// run is one run of the test command.
type run struct {
	full, record bool
	chance       int // repetitions of the tests that once failed by chance; 0 runs all tests
	shuffle      uint64
	slowest      int
	out          string // folder of the test binaries
	started      time.Time
	race         bool // the race detector is available
	version      string
	tools        []string // storage emulator, host and browser of the tests, with versions
	missing      []string // layers that cannot run on this machine, with the reason
	test2json    string
	times        times
}

// run builds and runs all parts. It returns an error if a test failed or could not run.
func (r *run) run(ctx context.Context) error {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	parts, err := partsOf(ctx, r)
	if err != nil {
		return err
	}
	results := schedule(ctx, r, parts)
	text, err := report(r, results)
	fmt.Println(text)
	if err = errors.Join(err, ctx.Err()); err != nil || !r.record {
		return err
	}
	return r.times.record(results)
}

// prepare reads the measured times and finds the tools.
func (r *run) prepare(ctx context.Context) (err error) {
	if r.times, err = readTimes(); err != nil {
		return err
	}
	r.times.full = r.full
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	return r.findTools(ctx)
}

// findTools finds the tools that decide which layers run.
func (r *run) findTools(ctx context.Context) error {
	path, err := output(ctx, "go", "tool", "-n", "test2json")
	if err != nil {
		return err
	}
	r.test2json = path
	r.version, _ = output(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12") // a source export has no history
	compiler, err := output(ctx, "go", "env", "CC")
	if err != nil {
		return err
	}
	if _, err := exec.LookPath(strings.Fields(compiler + " cc")[0]); err == nil {
		r.race = true
	} else {
		r.missing = append(r.missing, "race detector (no C compiler)")
	}
	required := os.Getenv("DURABLE_TEST_REQUIRE")
	for _, tool := range []struct{ name, title, absent string }{
		{"azurite", "Azurite", "Azurite is not installed"},
		{"func", "Functions host", "func is not on PATH"},
		{"chromium", "Chromium", "no Chromium is installed"},
		{"prometheus", "Prometheus", "prometheus and promtool are not on PATH"},
	} {
		if strings.Contains(required, tool.name) {
			r.tools = append(r.tools, tool.title)
		} else {
			r.missing = append(r.missing, fmt.Sprintf("%s (%s)", tool.title, tool.absent))
		}
	}
	return nil
}

// output returns what a command prints to standard output, without the final newline.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", cmd, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// logLine describes the result of a run: date, commit, mode, seed, result and duration.
func (r *run) logLine(err error) string {
	result := "ok"
	switch {
	case errors.Is(err, context.Canceled):
		result = "interrupted"
	case err != nil:
		result = err.Error()
	}
	mode := "short"
	switch {
	case r.chance > 0:
		mode = fmt.Sprintf("chance %d", r.chance)
	case r.full:
		mode = "full"
	}
	return fmt.Sprintf("%s\t%s\t%s\tshuffle %d\t%d CPUs\t%v\t%s\n", r.started.UTC().Format(time.RFC3339), r.version, mode, r.shuffle,
		runtime.NumCPU(), time.Since(r.started).Round(time.Second), result)
}

func appendLog(file, line string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(line)
	return err
}
