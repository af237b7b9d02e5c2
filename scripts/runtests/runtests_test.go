package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// failingPart builds testdata/failing. It returns the part that runs it, and a run whose only tool is the
// Functions host.
func failingPart(t *testing.T) (*run, part) {
	t.Helper()
	t.Setenv("DURABLE_TEST_REQUIRE", "func")
	t.Chdir(filepath.Join("..", ".."))
	r := &run{out: t.TempDir(), started: time.Now(), shuffle: 7, times: times{parts: map[string][2]measured{}}}
	if err := r.findTools(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.race = false
	const dir = "scripts/runtests/testdata/failing"
	if res := runPart(t.Context(), r, testBuild(r, "plain", false, dir)); res.err != nil {
		t.Fatal(res.err, res.shown)
	}
	return r, testPart(r, dir, "plain", false)
}

func TestReport_ExplainsEachFailureAndSaysHowToRepeatIt(t *testing.T) {
	r, p := failingPart(t)
	res := runPart(t.Context(), r, p)
	text, err := report(r, []result{res})
	if err == nil {
		t.Error("the report of a failed part returned no error")
	}
	for _, want := range []string{
		"---- scripts/runtests/testdata/failing TestFails/case_one failed",
		"got 1; want 2",
		"Repeat with: scripts/test -shuffle=7 ./scripts/runtests/testdata/failing -test.short -run '^TestFails$/^case_one$'",
		"FAIL (1 parts): 5 tests",
		"1 tests (left to scripts/test --full); 1 tests (no such tool); 2 tests (only on request)",
		"Layers: unit, Functions host. Left out: ",
		"Chromium (no Chromium is installed)",
		"Shuffle seed: 7.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not contain %q:\n%s", want, text)
		}
	}
	if _, again, _ := strings.Cut(text, "TestFails/case_one failed with:\n"); !strings.Contains(again, "got 1; want 2") {
		t.Errorf("the report does not repeat the message after the log:\n%s", text)
	}
	if strings.Contains(text, anotherPart) {
		t.Errorf("the report counts a test of another part as left out:\n%s", text)
	}
	if strings.Contains(text, "a line of a test that passes") {
		t.Errorf("the report contains the output of a test that passed:\n%s", text)
	}
	r.full = true
	if text := summary(r, []result{res}); strings.Contains(text, leftToFull) {
		t.Errorf("the summary of a full run counts tests as left to it:\n%s", text)
	}
}

func TestReport_ShowsTheGoroutinesOfATestThatDoesNotEnd(t *testing.T) {
	r, p := failingPart(t)
	p.env, p.flags = append(p.env, "FAILING_HANGS=yes"), append(p.flags, "-test.run=^TestHangs$")
	res := result{part: p}
	res.tests, _, res.err = runTests(t.Context(), r, p, 5*time.Second)
	text, err := report(r, []result{res})
	if err == nil {
		t.Error("the report of a part that did not end returned no error")
	}
	for _, want := range []string{"no test started or ended for 5s", "about to wait", "goroutine ", "failing.TestHangs", "-run '^TestHangs$'"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not contain %q:\n%s", want, text)
		}
	}
	if res.tests.passed != 6 {
		t.Errorf("%d subtests passed, want 6: a part with progress may take longer than its limit", res.tests.passed)
	}
}

func TestReport_ShowsTheReasonOfACrashAndTheTestThatRan(t *testing.T) {
	r, p := failingPart(t)
	p.env, p.flags = append(p.env, "FAILING_CRASHES=yes"), append(p.flags, "-test.run=^TestCrashes$")
	text, err := report(r, []result{runPart(t.Context(), r, p)})
	if err == nil {
		t.Error("the report of a crash returned no error")
	}
	for _, want := range []string{"panic: the reason of the crash", "lines omitted", "---- " + p.dir + " TestCrashes/crashing did not end", "-run '^TestCrashes$/^crashing$'"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not contain %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "TestCrashes/paused") {
		t.Errorf("the report contains a paused test:\n%s", text)
	}
}

// The command that repeats a test has the environment and the flags of its part.
func TestPart_IsRepeatedWithItsEnvironmentAndFlags(t *testing.T) {
	p := testPart(&run{shuffle: 7}, "durable/internal/sim", "plain", false).named("x", "-test.run=Seeds", "-sim.share=1/2", "-test.short=false")
	p.env = append(p.env, oneCPU...)
	if want := "GOMAXPROCS=1 GOGC=400 scripts/test -shuffle=7 ./durable/internal/sim -test.short -sim.share=1/2 -test.short=false"; p.command() != want {
		t.Errorf("the command is\n%s\nwant\n%s", p.command(), want)
	}
}

// Tests that once failed by chance are repeated in one process, and in new ones. A skipped test is a failure, because
// nothing was repeated.
func TestRepetitions_CountAndFailLikeTheirTest(t *testing.T) {
	r, p := failingPart(t)
	run := func(test string, flags ...string) []result {
		parts, err := repetitions([]part{p}, []suspect{{p.dir, test, flags}}, 3)
		if err != nil || len(parts) != 2 {
			t.Fatalf("%d parts, error %v; want 2 parts", len(parts), err)
		}
		return []result{runPart(t.Context(), r, parts[0]), runPart(t.Context(), r, parts[1])}
	}
	for i, res := range run("TestSkipsInShortMode", "-test.short=false") {
		if want := []int{1, 3}[i]; res.err != nil || res.tests.passed != 3 || res.processes != want {
			t.Errorf("%s: %d passed in %d processes, error %v; want 3 in %d", res.name, res.tests.passed, res.processes, res.err, want)
		}
	}
	for _, res := range run("TestSkipsInShortMode") {
		if res.err == nil || !strings.Contains(res.err.Error(), "the test was skipped or does not exist: [left to scripts/test --full]") {
			t.Errorf("%s returned the error %v; want one with the reason of the skip", res.name, res.err)
		}
	}
	for _, res := range run("TestFails/case_two") {
		if res.err != nil || res.tests.passed != 6 { // the subtest and its test
			t.Errorf("%s: %d passed, error %v; want 6", res.name, res.tests.passed, res.err)
		}
	}
	for _, res := range run("TestPasses/no_such_case") {
		if res.err == nil || !strings.Contains(res.err.Error(), "does not exist") {
			t.Errorf("%s returned the error %v; want one, because only the parent of the test ran", res.name, res.err)
		}
	}
	for _, res := range run("TestFails") {
		if res.err == nil || len(res.tests.failed) != 2 { // the subtest and its test, once
			t.Errorf("%s: %d failures, error %v; want 2, because it ends at the first failure", res.name, len(res.tests.failed), res.err)
		}
	}
	if _, err := repetitions(nil, []suspect{{dir: "gone", test: "TestX"}}, 3); err == nil {
		t.Error("a package without tests is not an error")
	}
}

// A renamed test must be renamed in chance.tsv, too.
func TestSuspects_NameExistingTests(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	suspects, err := readSuspects()
	if err != nil || len(suspects) == 0 {
		t.Fatalf("%d suspects, error %v", len(suspects), err)
	}
	for _, s := range suspects {
		files, err := filepath.Glob(filepath.Join(s.dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		hasTest := func(file string) bool {
			content, err := os.ReadFile(file)
			name, _, _ := strings.Cut(s.test, "/")
			return err == nil && strings.Contains(string(content), "func "+name+"(")
		}
		if !slices.ContainsFunc(files, hasTest) {
			t.Errorf("%s has no test %s", s.dir, s.test)
		}
	}
}

// One processor has room for one part that computes and for parts that wait. A third part with a full share
// waits until the first has ended.
func TestNext_StartsTheLongestPartThatTheProcessorsHaveRoomFor(t *testing.T) {
	m := times{parts: map[string][2]measured{
		"waits":    {{100 * time.Second, 10 * time.Second}},
		"computes": {{60 * time.Second, 60 * time.Second}},
		"short":    {{10 * time.Second, 10 * time.Second}},
	}}
	build := part{name: "build: plain", build: []string{"true"}}
	pending := []part{{name: "short", requires: build.name}, {name: "computes", requires: build.name}, {name: "waits", requires: build.name}, build}
	slices.SortStableFunc(pending, m.order)
	running, built := map[string]part{}, map[string]bool{}
	start := func() (started []string) {
		for {
			i := next(m, pending, running, built, nil, 1.5)
			if i < 0 {
				return started
			}
			running[pending[i].name] = pending[i]
			started = append(started, pending[i].name)
			pending = slices.Delete(pending, i, i+1)
		}
	}
	if got := start(); !slices.Equal(got, []string{"build: plain"}) {
		t.Fatalf("started %v; want only the build", got)
	}
	delete(running, build.name)
	built[build.name] = true
	if got := start(); !slices.Equal(got, []string{"waits", "computes"}) {
		t.Fatalf("started %v; want the two longest, which share the processor", got)
	}
	delete(running, "computes")
	if got := start(); !slices.Equal(got, []string{"short"}) {
		t.Errorf("started %v; want the rest", got)
	}
}

// A simulation has a processor of its own, also if it was measured while others ran. At most two parts per
// processor run at the same time, also if each of them only waits.
func TestNext_LimitsTheNumberOfParts(t *testing.T) {
	m := times{parts: map[string][2]measured{}}
	running, built := map[string]part{}, map[string]bool{}
	seeds := func(name string) part { return part{name: name, env: oneCPU} }
	m.parts["seeds"] = [2]measured{{100 * time.Second, 20 * time.Second}}
	running["seeds"] = seeds("seeds")
	if i := next(m, []part{seeds("more seeds")}, running, built, nil, 1.5); i >= 0 {
		t.Error("two simulations share a processor")
	}
	for n := range 2*runtime.NumCPU() - 1 {
		name := fmt.Sprint("waits ", n)
		m.parts[name] = [2]measured{{time.Hour, time.Second}}
		if i := next(m, []part{{name: name}}, running, built, nil, 100); i < 0 {
			t.Errorf("%s is not started beside %d others", name, len(running))
		}
		running[name] = part{name: name}
	}
	if i := next(m, []part{{name: "waits 0"}}, running, built, nil, 100); i >= 0 {
		t.Errorf("a part is started beside %d others", len(running))
	}
}

func TestLimit_IsFiveTimesTheMeasuredTimeAndAtLeastTenMinutes(t *testing.T) {
	m := times{parts: map[string][2]measured{"quick": {{time.Second, time.Second}}, "slow": {{3 * time.Minute, time.Second}}}}
	for name, want := range map[string]time.Duration{"quick": 10 * time.Minute, "slow": 15 * time.Minute, "new": 30 * time.Minute} {
		if got := m.limit(part{name: name}); got != want {
			t.Errorf("limit of %s: %v; want %v", name, got, want)
		}
	}
	if got := m.limit(part{name: "quick", layer: bugs}); got != 30*time.Minute {
		t.Errorf("limit of a part that compiles: %v; want 30 minutes", got)
	}
}

// Recording a short run keeps the times of the full run and removes parts that no longer exist.
func TestTimes_RecordReplacesTheTimesOfOneMode(t *testing.T) {
	t.Chdir(t.TempDir())
	content := "# comment\nboth\t1\t2\t3\t4\ngone\t1\t2\t0\t0\nonly full\t0\t0\t5\t6\n"
	if err := errors.Join(os.MkdirAll(filepath.Dir(timesFile), 0o755), os.WriteFile(timesFile, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
	read, err := readTimes()
	if err != nil {
		t.Fatal(err)
	}
	if err := read.record([]result{{part: part{name: "both"}, wall: 10 * time.Second, cpu: 20 * time.Second}}); err != nil {
		t.Fatal(err)
	}
	again, err := readTimes()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][2]measured{
		"both":      {{10 * time.Second, 20 * time.Second}, {3 * time.Second, 4 * time.Second}},
		"only full": {{}, {5 * time.Second, 6 * time.Second}},
	}
	if !maps.Equal(again.parts, want) {
		t.Errorf("read %v; want %v", again.parts, want)
	}
}

func TestLogLine_HasOneLineForEachResult(t *testing.T) {
	failed := errors.New("2 of 90 parts failed")
	for _, c := range []struct {
		err  error
		want string
	}{{nil, "ok"}, {failed, failed.Error()}, {errors.Join(failed, context.Canceled), "interrupted"}} {
		line := (&run{version: "v1", shuffle: 7, started: time.Now()}).logLine(c.err)
		if fields := strings.Split(line, "\t"); fields[len(fields)-1] != c.want+"\n" {
			t.Errorf("the line of the error %v is %q; want one that ends with %q", c.err, line, c.want)
		}
	}
}
