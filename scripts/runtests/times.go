package main

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// timesFile contains the measured times of each part on two idle processors. A line has the part's name, the
// seconds and CPU seconds in the short command, and those in the full command. `go run ./scripts/runtests
// -record` rewrites it.
var timesFile = filepath.Join("scripts", "runtests", "times.tsv")

// measured is the duration of a part.
type measured struct{ wall, cpu time.Duration }

// times holds the measured times of all parts, by name.
type times struct {
	full  bool
	parts map[string][2]measured // short, full
}

// unmeasured is the assumed time of parts that are not in the file.
var unmeasured = measured{2 * time.Minute, time.Minute}

func readTimes() (times, error) {
	t := times{parts: map[string][2]measured{}}
	content, err := os.ReadFile(timesFile)
	if err != nil {
		return t, err
	}
	lines := bufio.NewScanner(bytes.NewReader(content))
	for n := 1; lines.Scan(); n++ {
		name, rest, _ := strings.Cut(lines.Text(), "\t")
		if strings.HasPrefix(name, "#") || name == "" {
			continue
		}
		var s [4]float64
		if _, err := fmt.Sscanf(rest, "%g\t%g\t%g\t%g", &s[0], &s[1], &s[2], &s[3]); err != nil {
			return t, fmt.Errorf("%s:%d: want a name and four numbers, separated by tabs: %w", timesFile, n, err)
		}
		t.parts[name] = [2]measured{{seconds(s[0]), seconds(s[1])}, {seconds(s[2]), seconds(s[3])}}
	}
	return t, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// of returns the measured time of a part.
func (t times) of(p part) measured {
	m := t.parts[p.name][b2i(t.full)]
	if p.build != nil { // the compiler uses every processor
		return measured{max(m.wall, time.Second), max(m.wall, time.Second) * time.Duration(runtime.NumCPU())}
	}
	if m.wall == 0 {
		return unmeasured
	}
	return m
}

// shareOf returns the average number of processors that a part keeps busy, at least 0.1. A simulation never
// waits, so it has a processor of its own, also if it had to share one in its measurement.
func (t times) shareOf(p part) float64 {
	if p.layer == bugs || slices.Contains(p.env, oneCPU[0]) {
		return 1
	}
	m := t.of(p)
	return max(0.1, m.cpu.Seconds()/m.wall.Seconds())
}

// limit is the time without progress after which a part has failed: five times the measured time of the whole
// part, at least ten minutes because a disk can be slow for minutes and a test waits up to four. It is half an
// hour for a part that was never measured, that compiles, or whose tests run many seeds each. A build has no
// limit, because the compiler may have nothing in its cache.
func (t times) limit(p part) time.Duration {
	if t.parts[p.name][b2i(t.full)].wall == 0 || p.layer == bugs || p.layer == simulations {
		return 30 * time.Minute
	}
	return max(10*time.Minute, 5*t.of(p).wall)
}

// order sorts builds before tests, and tests by time, longest first.
func (t times) order(a, b part) int {
	if c := cmp.Compare(b2i(a.build == nil), b2i(b.build == nil)); c != 0 || a.build != nil {
		return c
	}
	return cmp.Compare(t.of(b).wall, t.of(a).wall)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// left estimates the time until all parts have ended.
func (t times) left(pending []part, running map[string]part) time.Duration {
	var work, longest time.Duration
	for _, p := range pending {
		work += t.of(p).cpu
		longest = max(longest, t.of(p).wall)
	}
	for _, p := range running {
		work += t.of(p).cpu / 2
		longest = max(longest, t.of(p).wall/2)
	}
	return max(longest, work/time.Duration(runtime.NumCPU())).Round(10 * time.Second)
}

// record writes the results to the file and keeps the times of the other mode.
func (t times) record(results []result) error {
	recorded := map[string][2]measured{}
	for _, res := range results {
		m := t.parts[res.name]
		m[b2i(t.full)] = measured{res.wall, res.cpu}
		recorded[res.name] = m
	}
	for name, m := range t.parts {
		if _, ran := recorded[name]; !ran && (!t.full && m[1].wall > 0 || t.full && m[0].wall > 0) {
			m[b2i(t.full)] = measured{}
			recorded[name] = m
		}
	}
	var b strings.Builder
	b.WriteString("# part\tseconds\tCPU seconds\tseconds with --full\tCPU seconds with --full\n")
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		m := recorded[name]
		fmt.Fprintf(&b, "%s\t%.1f\t%.1f\t%.1f\t%.1f\n", name, m[0].wall.Seconds(), m[0].cpu.Seconds(), m[1].wall.Seconds(), m[1].cpu.Seconds())
	}
	return os.WriteFile(timesFile, []byte(b.String()), 0o644)
}
