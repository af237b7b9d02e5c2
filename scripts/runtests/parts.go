package main

import (
	"context"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// part is one process: a build, or a test binary with its flags.
type part struct {
	name     string // unique; the key in times.tsv
	layer    string // layer of the tests, for the last line of the output
	build    []string
	requires string // name of the build that must succeed first

	dir    string // folder of the tested package, relative to the module's root
	binary string
	flags  []string
	env    []string
	repeat string // command that repeats the part, without its environment and flags

	repeated  string // test that the part repeats; empty for a part that runs a package
	processes int    // number of processes that repeat it, one after another
}

const (
	module        = "github.com/durablefunctions-go/durablefunctions"
	simulator     = "durable/internal/sim"
	endToEnd      = "functions/internal/e2e"
	soak          = "functions/internal/soak"
	simulated     = "durable/azurestorage/simulated"
	partitionLogs = "durable/azurestorage/partitionlog"
)

// slowUnderRace matches tests that a full run omits with the race detector, because they take a large part of their
// package's time with it. The package's other tests run the same code with it, and the nightly job runs all.
var slowUnderRace = map[string]string{
	simulated:     "^Test(Congestion|HeldBack_VerbsAct|JumpStart_NoStart|Overload|RejectedStart|Takeover|TaskHub_FulfillsTheProviderContract)", // package conformance runs the contract
	partitionLogs: "^Test(ExportRunning_Contains|Owner_WritesTheBaseAlthoughEachOwnerWritesLittle|Instances_ListsAllButTheRangeOfADamagedBlock)",
}

// The layers, in the order of the last line of the output.
const (
	unit        = "unit"
	conformance = "conformance on each store"
	simulations = "simulations"
	bugs        = "planted bugs"
	app         = "the app end to end"
)

var layers = []string{unit, conformance, simulations, bugs, app}

// oneCPU is the environment of simulations. A seed repeats exactly only with one processor.
var oneCPU = []string{"GOMAXPROCS=1", "GOGC=400"}

// plainPackages start no goroutines, so the race detector is not needed for them.
var plainPackages = map[string]bool{
	simulator: true, // covered by the part "seeds with the race detector"
	"durable/azurestorage/internal/disposition":        true,
	"durable/azurestorage/internal/hubcopy":            true,
	"durable/azurestorage/internal/tracking":           true,
	"durable/azurestorage/internal/wire":               true,
	"durable/azurestorage/partitionlog/internal/chain": true,
	"durable/durablecheck":                             true, // type-checks the standard library, which takes long
	"durable/durablecheck/golangci":                    true,
	"durable/durabletest/boundary":                     true,
	"durable/durabletest/docblock":                     true,
	"durable/durabletest/hostile":                      true,
	"durable/durabletest/pagetable":                    true,
	"durable/durabletest/scattered":                    true,
	"durable/history":                                  true,
	"durable/internal/chance":                          true,
	"durable/internal/entity":                          true,
	"durable/internal/eventjson":                       true,
	"durable/internal/explain":                         true,
	"durable/internal/inuse":                           true,
	"durable/internal/matrix":                          true, // the other tests of the hubs run with the race detector
	"durable/internal/metering":                        true,
	"durable/internal/storageop":                       true,
	"durable/internal/testshare":                       true,
	"durable/provider":                                 true,
	"handler/internal/apppackage":                      true,
	"handler/internal/memlimit":                        true,
	"handler/internal/newapp":                          true,
	"handler/internal/otelenv":                         true,
	"handler/internal/secrets":                         true,
	"handler/internal/settings":                        true,
	"scripts/prose":                                    true,
	"scripts/releasebuild":                             true,
	"scripts/structure":                                true,
	"scripts/texts":                                    true,
}

// plainInShort are packages without the race detector in the short command. They start goroutines
// but have many cases, which take four times as long with it; in a full run they have it.
var plainInShort = map[string]bool{
	partitionLogs:                         true,
	"durable/internal/formats":            true,
	"durable/internal/metering/incidents": true,
	simulated:                             true,
}

// twice are packages that a full run also tests without the race detector. With the race detector, some of
// their tests run only a sample of their cases (durable/internal/testshare).
var twice = map[string]bool{
	"durable":                       true,
	"durable/azurestorage/handover": true,
	simulated:                       true,
	partitionLogs:                   true,
	"durable/azurestorage/partitionlog/internal/bloblog": true,
	"durable/azurestorage/partitionlog/internal/mailbox": true,
	"durable/azurestorage/partitionlog/internal/runs":    true,
	"durable/embedded":                  true,
	"durable/embedded/internal/hubfile": true,
	"durable/internal/dispatch":         true,
}

// partsOf returns all parts of a run.
func partsOf(ctx context.Context, r *run) ([]part, error) {
	list, err := output(ctx, "go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}", "./...")
	if err != nil {
		return nil, err
	}
	var suspects []suspect
	if r.chance > 0 {
		if suspects, err = readSuspects(); err != nil {
			return nil, err
		}
	}
	var packages []string
	binaries := map[string]string{}
	for _, p := range strings.Fields(list) {
		p = strings.TrimPrefix(p, module+"/")
		if other, ok := binaries[path.Base(p)]; ok {
			return nil, fmt.Errorf("the packages %s and %s have test binaries of the same name; rename one", other, p)
		}
		binaries[path.Base(p)] = p
		if r.chance == 0 || slices.ContainsFunc(suspects, func(s suspect) bool { return s.dir == p }) {
			packages = append(packages, p)
		}
	}

	// The end-to-end tests take longest and mostly wait, so they are built and started first.
	parts := []part{}
	var plain, race []string
	for _, p := range packages {
		switch {
		case p == endToEnd:
			// With the race detector they cost three times as much CPU. The nightly job runs them with it.
			parts = append(parts, testBuild(r, "end to end", false, p), testPart(r, p, "end to end", false))
		case plainPackages[p] || plainInShort[p] && !r.full || !r.race:
			plain = append(plain, p)
		default:
			race = append(race, p)
			if twice[p] && r.full {
				plain = append(plain, p)
			}
		}
		if p == simulator && r.race {
			race = append(race, p)
		}
	}
	parts = append(parts, testBuild(r, "plain", false, plain...))
	for _, p := range plain {
		if p == simulator {
			parts = append(parts, simulatorParts(ctx, r)...)
		} else {
			t := testPart(r, p, "plain", false)
			if twice[p] && r.race {
				t = t.named(p + " without the race detector")
				t.env = append(t.env, oneCPU...)
			}
			parts = append(parts, t)
		}
	}
	if r.race {
		parts = append(parts, testBuild(r, "race", true, race...))
	}
	for _, p := range race {
		t := testPart(r, p, "race", true)
		if p == simulator {
			t = t.named("seeds with the race detector", "-test.run=AppsEnd")
			t.env = append(t.env, oneCPU...)
		}
		if slow := slowUnderRace[p]; slow != "" {
			t.flags = append(t.flags, "-test.skip="+slow)
		}
		if plainInShort[p] && twice[p] {
			t.flags = append(t.flags, "-test.short") // the other cases run without the race detector
		}
		parts = append(parts, t)
	}
	switch {
	case r.chance > 0:
		return repetitions(parts, suspects, r.chance)
	case r.full:
		parts = append(parts, fullOnly(r)...)
	}
	return parts, nil
}

// fullOnly returns the parts of the full run that the short run omits.
func fullOnly(r *run) []part {
	// Without inlining, as in a debugger, functions must have the same names.
	noInlining := testBuild(r, "no inlining", false, "durable", "durable/durabletest")
	noInlining.build = append(noInlining.build[:2:2], append([]string{"-gcflags=-l"}, noInlining.build[2:]...)...)
	parts := []part{noInlining}
	for _, p := range []string{"durable", "durable/durabletest"} {
		t := testPart(r, p, "no inlining", false).named(p+" without inlining", "-test.run=Registry|Replay")
		t.repeat += " -gcflags=-l"
		parts = append(parts, t)
	}
	return parts
}

// testBuild builds the test binaries of packages.
func testBuild(r *run, name string, race bool, packages ...string) part {
	args := []string{"go", "test", "-c", "-vet=off", "-ldflags=-s", "-o", filepath.Join(r.out, name) + string(filepath.Separator)}
	var env []string
	if race {
		args, env = append(args, "-race"), []string{"CGO_ENABLED=1"} // scripts/test turns cgo off
	}
	for _, p := range packages {
		args = append(args, "./"+p)
	}
	return part{name: "build: " + name, build: args, env: env}
}

// testPart runs all tests of a package.
func testPart(r *run, p, build string, race bool) part {
	t := part{
		name:     p,
		layer:    layerOf(p),
		requires: "build: " + build,
		dir:      p,
		binary:   filepath.Join(r.out, build, path.Base(p)+".test"),
		repeat:   fmt.Sprintf("scripts/test -shuffle=%d ./%s", r.shuffle, p),
		env:      []string{"GORACE=atexit_sleep_ms=0"}, // otherwise a program with the race detector sleeps for a second before it exits
	}
	if !race && r.race {
		t.repeat = fmt.Sprintf("scripts/test -race=false -shuffle=%d ./%s", r.shuffle, p)
	}
	if !r.full {
		t.flags = append(t.flags, "-test.short")
	}
	return t
}

// command returns the command that repeats one test of the part, without the test's name.
func (p part) command() string {
	all := []string{p.repeat}
	for _, f := range p.flags {
		if !strings.HasPrefix(f, "-test.") || strings.HasPrefix(f, "-test.short") {
			all = append(all, f)
		}
	}
	env := slices.DeleteFunc(slices.Clone(p.env), func(e string) bool { return strings.HasPrefix(e, "GORACE=") })
	return strings.Join(append(env, all...), " ")
}

// layerOf returns the layer that the tests of a package belong to.
func layerOf(p string) string {
	switch p {
	case "durable/azurestorage/conformance", partitionLogs, "durable/embedded":
		return conformance
	case simulator, simulated:
		return simulations
	case endToEnd, soak:
		return app
	}
	return unit
}

// in returns the part with another layer.
func (p part) in(layer string) part {
	p.layer = layer
	return p
}

// named returns the part with another name and further flags.
func (p part) named(name string, flags ...string) part {
	p.name = name
	p.flags = append(p.flags[:len(p.flags):len(p.flags)], flags...)
	return p
}

// simulatorParts returns the parts of the simulator: two processes that share the seeds, and the planted
// bugs.
func simulatorParts(ctx context.Context, r *run) []part {
	t := testPart(r, simulator, "plain", false)
	t.env = append(t.env, oneCPU...)
	planted := []string{"-test.run=TestPlanted_EachBugIsFound"}
	if r.full {
		planted = append(planted, "-sim.planted=10/80") // the nightly job plants all bugs
	} else {
		planted = append(planted, "-sim.planted=fixed", "-sim.changed="+strings.Join(changedFiles(ctx), ","))
	}
	parts := []part{
		t.named("simulations 1/2", "-sim.share=1/2"),
		t.named("simulations 2/2", "-sim.share=2/2"),
		t.named("planted bugs", planted...).in(bugs),
	}
	if r.full {
		parts = append(parts, t.named("300 simulated hubs", "-test.run=TestSim_AppsEndAsTheOracleSays/^varied$/^azure$", "-sim.seed=1001", "-sim.runs=300"))
	}
	return parts
}

// changedFiles returns the files that differ from the branch's origin: uncommitted changes,
// and commits that are not on origin/main. It returns none outside a repository.
func changedFiles(ctx context.Context) []string {
	base := "HEAD"
	if out, err := exec.CommandContext(ctx, "git", "merge-base", "HEAD", "origin/main").Output(); err == nil {
		base = strings.TrimSpace(string(out))
	}
	out, err := exec.CommandContext(ctx, "git", "diff", "--name-only", base, "--", "*.go").Output()
	if err != nil {
		return nil
	}
	return strings.Fields(string(out))
}
