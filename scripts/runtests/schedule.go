package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"
)

// result is the outcome of a part.
type result struct {
	part
	err       error
	wall, cpu time.Duration
	tests     *tests
	shown     string // output of a build
}

var errBuildFailed = errors.New("not run, because its build failed")

// schedule runs the parts: builds first, then the longest parts. It starts a part only if the processors have
// room for its share, and runs at most two parts per processor: with more, parts that wait for a server on the
// same machine take many times as long.
func schedule(ctx context.Context, r *run, parts []part) []result {
	var (
		pending  = slices.Clone(parts)
		running  = map[string]part{}
		built    = map[string]bool{}
		failed   = map[string]bool{}
		results  []result
		finished = make(chan result)
		capacity = float64(runtime.NumCPU()) + 0.5
	)
	slices.SortStableFunc(pending, r.times.order)
	for len(pending)+len(running) > 0 {
		if i := next(r.times, pending, running, built, failed, capacity); i >= 0 && ctx.Err() == nil {
			p := pending[i]
			pending = slices.Delete(pending, i, i+1)
			if failed[p.requires] {
				results = append(results, result{part: p, err: errBuildFailed})
				continue
			}
			running[p.name] = p
			go func() { finished <- runPart(ctx, r, p) }()
			continue
		}
		if len(running) == 0 { // the run was interrupted
			break
		}
		done := <-finished
		delete(running, done.name)
		if done.build != nil {
			built[done.name], failed[done.name] = done.err == nil, done.err != nil
		}
		results = append(results, done)
		progress(done, len(results), len(parts), r.times.left(pending, running))
	}
	return results
}

// next returns the index of the pending part to start, or -1 if a running part must end first.
func next(t times, pending []part, running map[string]part, built, failed map[string]bool, capacity float64) int {
	if len(running) >= 2*runtime.NumCPU() {
		return -1
	}
	used := 0.0
	for _, p := range running {
		used += t.shareOf(p)
	}
	for i, p := range pending {
		if p.requires != "" && !built[p.requires] && !failed[p.requires] {
			continue
		}
		if len(running) == 0 || failed[p.requires] || used+t.shareOf(p) <= capacity {
			return i
		}
	}
	return -1
}

// progress prints one line for a part that has ended.
func progress(done result, n, of int, left time.Duration) {
	state := "ok  "
	if done.err != nil {
		state = "FAIL"
	}
	rest := ""
	if info, err := os.Stdout.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		rest = fmt.Sprintf(", about %v left", left)
	}
	fmt.Printf("%s %6.1fs  CPU %6.1fs  %s (%d of %d%s)\n", state, done.wall.Seconds(), done.cpu.Seconds(), done.name, n, of, rest)
}
