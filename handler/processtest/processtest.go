// Package processtest helps tests of apps: it reserves ports for real processes, shortens
// their logs, and leaves long tests to the full run.
package processtest

import (
	"strings"
	"testing"
)

// maxLines is the number of lines that [Last] keeps.
const maxLines = 100

// Last returns the last 100 lines of a log. A failed test shows them.
func Last(log string) string {
	lines := strings.SplitAfter(log, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return strings.Join(lines[max(0, len(lines)-maxLines):], "")
}

// LeaveToFull skips a test under -short. Another test of the same layer runs in its place.
func LeaveToFull(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("left to scripts/test --full")
	}
}
