package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	leftToFull  = "left to scripts/test --full" // skip reason of tests that the short command omits
	anotherPart = "runs in another part"        // prefix of the skip reasons of tests that another part runs

	firstLines     = 100 // printed lines at the start of a long output, which has the reason of a crash
	shownLines     = 300 // maximum number of further lines of each failed test
	shownTests     = 20  // maximum number of failed tests of a part that are printed with their output
	goroutineLines = 400 // maximum number of further lines that belong to no test
	messageLines   = 10  // lines at the start of a long output that are printed again at its end
	messageWidth   = 300 // maximum number of characters of such a line
)

// report returns a text that explains the failures and how to repeat them. It ends with one line about the
// layers that ran. The error is not nil if a part failed.
func report(r *run, results []result) (string, error) {
	w := &strings.Builder{}
	failedParts := 0
	for _, res := range results {
		if res.err == nil {
			continue
		}
		if failedParts++; !errors.Is(res.err, errBuildFailed) {
			explain(w, res)
		}
	}
	for _, t := range slowestTests(results, r.slowest) {
		fmt.Fprintf(w, "%6.1fs  %s\n", t.seconds, t.name)
	}
	w.WriteString(summary(r, results))
	if failedParts > 0 {
		return w.String(), fmt.Errorf("%d of %d parts failed", failedParts, len(results))
	}
	return w.String(), nil
}

// timed is a passed top-level test with its duration in seconds.
type timed struct {
	name    string
	seconds float64
}

// slowestTests returns the n tests that took longest.
func slowestTests(results []result, n int) (all []timed) {
	for _, res := range results {
		if res.tests == nil {
			continue
		}
		for name, seconds := range res.tests.elapsed {
			all = append(all, timed{res.name + " " + name, seconds})
		}
	}
	slices.SortFunc(all, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	return all[:min(n, len(all))]
}

// explain prints why a part failed.
func explain(w *strings.Builder, res result) {
	fmt.Fprintf(w, "\n==== %s failed: %v\n", res.name, res.err)
	if res.tests == nil {
		fmt.Fprintln(w, res.shown)
		return
	}
	fmt.Fprint(w, strings.Join(ends(packageOutput(res.tests.output), goroutineLines), ""))
	all := append(slices.Clone(res.tests.failed), res.tests.unfinished...)
	for i, t := range all {
		if i == shownTests {
			fmt.Fprintf(w, "... and %d more tests\n", len(all)-i)
			break
		}
		state := "failed"
		if i >= len(res.tests.failed) {
			state = "did not end"
		}
		fmt.Fprintf(w, "---- %s %s %s\n%s", res.dir, t.name, state, strings.Join(ends(packageOutput(t.lines), shownLines), ""))
	}
	if len(all) > 0 {
		repeatMessage(w, all[0])
	}
	fmt.Fprintf(w, "Repeat with: %s", res.command())
	if len(all) > 0 {
		fmt.Fprintf(w, " -run '%s'", strings.ReplaceAll(pattern(all[0].name), "'", `'\''`))
	}
	fmt.Fprintln(w)
}

// repeatMessage prints the first lines of a failed test again if many lines follow them. The message of a failure
// comes first, and then the logs. Someone who sees only the end of the report then sees the message.
func repeatMessage(w *strings.Builder, t test) {
	lines := packageOutput(t.lines)
	if len(lines) <= 2*messageLines {
		return
	}
	fmt.Fprintf(w, "---- %s failed with:\n", t.name)
	for _, line := range lines[:messageLines] {
		if runes := []rune(line); len(runes) > messageWidth {
			line = string(runes[:messageWidth]) + "...\n"
		}
		w.WriteString(line)
	}
}

// pattern returns the -run pattern that matches one test.
func pattern(name string) string {
	levels := strings.Split(name, "/")
	for i, l := range levels {
		levels[i] = "^" + regexp.QuoteMeta(l) + "$"
	}
	return strings.Join(levels, "/")
}

// ends returns the first firstLines lines and the last n lines.
func ends(lines []string, n int) []string {
	omitted := len(lines) - firstLines - n
	if omitted <= 0 {
		return lines
	}
	return slices.Concat(lines[:firstLines], []string{fmt.Sprintf("... %d lines omitted\n", omitted)}, lines[firstLines+omitted:])
}

// packageOutput removes goroutines that only wait for parallel tests.
func packageOutput(lines []string) []string {
	var kept []string
	for _, block := range blocks(lines) {
		if strings.HasPrefix(block[0], "goroutine ") && slices.ContainsFunc(block, func(l string) bool { return strings.Contains(l, "(*testState).waitParallel") }) {
			continue
		}
		kept = append(kept, block...)
	}
	return kept
}

// blocks splits lines after each empty line.
func blocks(lines []string) (all [][]string) {
	begin := 0
	for i, l := range lines {
		if strings.TrimSpace(l) == "" {
			all = append(all, lines[begin:i+1])
			begin = i + 1
		}
	}
	if begin < len(lines) {
		all = append(all, lines[begin:])
	}
	return all
}

// summary returns the last line of the output: the result, the layers that ran, the layers and tests that
// were left out with the reason, and the shuffle seed.
func summary(r *run, results []result) string {
	ran, left, failed := 0, 0, 0
	has := map[string]bool{}
	reasons := map[string]int{}
	for _, res := range results {
		if res.err != nil {
			failed++
		}
		if res.tests == nil {
			continue
		}
		has[res.layer] = true
		has["race detector"] = has["race detector"] || res.requires == "build: race"
		ran += res.tests.passed + len(res.tests.failed)
		for reason, n := range res.tests.skipped {
			switch {
			case strings.HasPrefix(reason, anotherPart), reason == leftToFull && r.full: // in a full run, the other part has no race detector
			case reason == leftToFull:
				left += n
			default:
				reasons[reason] += n
			}
		}
	}
	shown := slices.DeleteFunc(append(slices.Clone(layers), "race detector"), func(l string) bool { return !has[l] })
	shown = append(shown, r.tools...)
	out := slices.Clone(r.missing)
	if left > 0 {
		out = append(out, fmt.Sprintf("%d tests (%s)", left, leftToFull))
	}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		out = append(out, fmt.Sprintf("%d tests (%s)", reasons[reason], reason))
	}
	if len(out) == 0 {
		out = []string{"nothing"}
	}
	state := "PASS"
	if failed > 0 {
		state = fmt.Sprintf("FAIL (%d parts)", failed)
	}
	return fmt.Sprintf("%s: %d tests in %v. Layers: %s. Left out: %s. Shuffle seed: %d.", state, ran,
		time.Since(r.started).Round(time.Second), strings.Join(shown, ", "), strings.Join(out, "; "), r.shuffle)
}
