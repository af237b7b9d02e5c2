//go:build unix

package replay_test

import (
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
)

// This test is not parallel: it measures the CPU time of the process. In linear time, four
// times as many activities take about four times as long. In quadratic time they would take
// sixteen times as long.
func TestExecution_ReplaysALongHistoryInLinearTime(t *testing.T) {
	measure := func(n int) time.Duration {
		past, best := fanOutHistory(n), time.Duration(math.MaxInt64)
		for range 3 {
			start := cpuTime(t)
			run(t, fanOut(n), past, replaytest.Done(n-1, ""))
			best = min(best, cpuTime(t)-start)
		}
		return best
	}
	var ratios []float64
	for range 5 {
		ratio := float64(measure(40_000)) / float64(measure(10_000))
		if ratio < 8 {
			return
		}
		ratios = append(ratios, ratio)
	}
	t.Errorf("40,000 activities take this many times the CPU time of 10,000: %.1f", ratios)
}

// cpuTime returns the CPU time that this process has used.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
