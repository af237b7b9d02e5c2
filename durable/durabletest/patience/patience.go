// Package patience limits how long tests wait for events that must happen.
//
// The limit is generous, because a slow machine must not fail a test. It ends before
// go test kills the process, so that the test can still report what is missing.
// It says nothing about speed: a test of durations runs in a testing/synctest bubble.
package patience

import (
	"context"
	"flag"
	"testing"
	"time"
)

// MaxWait is the longest time that a test waits for one event.
const MaxWait = 4 * time.Minute

// reserve is the time that a failed test needs to print its message and to clean up.
const reserve = 10 * time.Second

// maxInterval is the longest time between two calls of a condition.
const maxInterval = 50 * time.Millisecond

// started is the time at which the process started, without the monotonic clock, which
// has another origin in a bubble.
var started = time.Now().Round(0)

// Limit returns how long a test may wait for one event from now: [MaxWait], or less if
// go test kills the process earlier. It is never negative.
func Limit() time.Duration {
	var killed time.Duration
	if f := flag.Lookup("test.timeout"); f != nil { // in a test
		killed = f.Value.(flag.Getter).Get().(time.Duration)
	}
	return limit(time.Now(), killed)
}

// limit returns the limit of a wait that starts now in a process that go test kills
// after the given time; 0 means never.
func limit(now time.Time, killed time.Duration) time.Duration {
	if killed == 0 {
		return MaxWait
	}
	left := started.Add(killed - reserve).Sub(now) // in a bubble, many years
	return max(min(MaxWait, left), 0)
}

// Context returns a context for one event. It ends after [Limit], or when the test ends.
func Context(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), Limit())
	tb.Cleanup(cancel)
	return ctx
}

// Until calls condition until it returns true. It fails the test after [Limit] and
// reports what did not happen.
func Until(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	limit, interval := Limit(), time.Millisecond
	for began := time.Now(); !condition(); interval = min(2*interval, maxInterval) {
		if time.Since(began) > limit {
			if limit < MaxWait {
				what += " (the process has used up its -test.timeout)"
			}
			tb.Fatalf("did not happen within %v: %s", limit.Round(time.Second), what)
		}
		time.Sleep(interval)
	}
}
