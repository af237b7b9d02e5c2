package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// chanceFile lists the tests that once failed by chance. A line has the folder of the package, the test or one
// of its subtests, and perhaps a flag, for example if the short command omits the test.
var chanceFile = filepath.Join("scripts", "runtests", "chance.tsv")

// suspect is a line of chanceFile.
type suspect struct {
	dir, test string // test is a full name such as TestX/area/a_case
	flags     []string
}

// readSuspects reads chanceFile.
func readSuspects() (all []suspect, err error) {
	content, err := os.ReadFile(chanceFile)
	if err != nil {
		return nil, err
	}
	for i, line := range strings.Split(strings.TrimSpace(string(content)), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) < 2 {
			return nil, fmt.Errorf("%s:%d: want a package, a test and perhaps flags, separated by tabs", chanceFile, i+1)
		}
		all = append(all, suspect{dir: strings.TrimPrefix(fields[0], "./"), test: fields[1], flags: fields[2:]})
	}
	return all, nil
}

// repetitions returns the builds, and two parts for each suspect: one repeats it n times in one process, the
// other in n processes.
func repetitions(parts []part, suspects []suspect, n int) (all []part, err error) {
	for _, p := range parts {
		if p.build != nil {
			all = append(all, p)
		}
	}
	for _, s := range suspects {
		i := slices.IndexFunc(parts, func(p part) bool { return p.dir == s.dir })
		if i < 0 {
			return nil, fmt.Errorf("%s: the package %s has no tests", chanceFile, s.dir)
		}
		name := s.dir + " " + s.test
		flags := append([]string{"-test.run=" + pattern(s.test), "-test.timeout=0", "-test.failfast"}, s.flags...)
		one := parts[i].named(name+" in one process", append(flags, "-test.count="+strconv.Itoa(n))...)
		one.repeated, one.processes = s.test, 1
		many := parts[i].named(fmt.Sprintf("%s in %d processes", name, n), flags...)
		many.repeated, many.processes = s.test, n
		all = append(all, one, many)
	}
	return all, nil
}
