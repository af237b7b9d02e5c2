// Package processtest helps tests that start apps as processes: it reserves ports, shortens logs, and
// skips long tests in short runs.
package processtest

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
)

// ReservePort returns a port of 127.0.0.1 on which no process listens.
//
// The port stays reserved until the test ends. The system assigns it to no process that asks for any
// free port, but a program that asks for this port can listen on it repeatedly. Only Linux supports
// this reservation. On other systems another process may get the port.
func ReservePort(tb testing.TB) int {
	tb.Helper()
	address, reservation, err := azuritetest.ReservePort()
	if err != nil {
		tb.Fatalf("reserve a port: %v", err)
	}
	tb.Cleanup(func() { _ = reservation.Close() }) // a nil file returns an error
	_, text, _ := net.SplitHostPort(address)
	port, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatalf("reserve a port: %v", err)
	}
	return port
}

// maxLines is the number of lines that [LastLines] returns.
const maxLines = 100

// LastLines returns the last 100 lines of a log, to be shown by a failed test.
func LastLines(log string) string {
	lines := strings.SplitAfter(log, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return strings.Join(lines[max(0, len(lines)-maxLines):], "")
}

// SkipInShortRuns skips a test under -short. Another test of the same layer covers it in short runs.
func SkipInShortRuns(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("left to scripts/test --full")
	}
}
