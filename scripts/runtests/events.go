package main

import (
	"cmp"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"
)

// tests is the result of a test binary.
type tests struct {
	ran, passed int
	passes      map[string]bool    // names of the passed tests
	failed      []test             // in the order in which they failed
	unfinished  []test             // tests that were running when the process ended; the last active one first
	skipped     map[string]int     // number of tests by reason
	elapsed     map[string]float64 // seconds of each passed top-level test
	output      []string           // lines that belong to no test
}

// test is the name of a test and its output.
type test struct {
	name   string
	lines  []string
	paused bool // waits until it may run in parallel with others
	active int  // number of its last event
}

// event is a line of test2json's output.
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

var (
	frame      = regexp.MustCompile(`^\s*(=== (RUN|PAUSE|CONT|NAME)|--- PASS)`)
	skipReason = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)`)
)

// collect reads the events of a test binary until the end of the stream. It calls progress when a test starts
// or ends.
func collect(stream io.Reader, progress func()) *tests {
	t := &tests{passes: map[string]bool{}, skipped: map[string]int{}, elapsed: map[string]float64{}}
	open := map[string]*test{}
	decoder := json.NewDecoder(stream)
	for n := 0; ; n++ {
		var e event
		if err := decoder.Decode(&e); err != nil {
			break
		}
		if e.Action != "output" {
			progress()
		}
		current := open[e.Test]
		if current == nil && e.Test != "" {
			current = &test{name: e.Test}
			open[e.Test] = current
		}
		if current != nil {
			current.paused, current.active = e.Action == "pause", n
		}
		switch {
		case e.Action == "output" && frame.MatchString(e.Output):
		case e.Action == "output" && current != nil:
			current.lines = append(current.lines, e.Output)
		case e.Action == "output":
			t.output = append(t.output, e.Output)
		case current == nil:
		case e.Action == "run":
			t.ran++
		case e.Action == "pass":
			t.passed++
			t.passes[e.Test] = true
			if !strings.Contains(e.Test, "/") {
				t.elapsed[e.Test] = e.Elapsed
			}
			delete(open, e.Test)
		case e.Action == "fail":
			t.failed = append(t.failed, *current)
			delete(open, e.Test)
		case e.Action == "skip":
			t.skipped[reason(current.lines)]++
			delete(open, e.Test)
		}
	}
	for _, o := range open {
		if !o.paused {
			t.unfinished = append(t.unfinished, *o)
		}
	}
	slices.SortFunc(t.unfinished, func(a, b test) int { return cmp.Compare(b.active, a.active) })
	return t
}

// reason returns the text that a test passed to Skip.
func reason(lines []string) string {
	for _, line := range lines {
		if m := skipReason.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			return m[1]
		}
	}
	return "no reason given"
}
