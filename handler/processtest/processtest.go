//go:build unix

// Package processtest helps tests of apps: it reserves ports for real processes, shortens
// their logs, and leaves long tests to the full run.
package processtest

import (
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// ReservePort returns a port of 127.0.0.1 on which no process listens.
//
// On Linux, the port stays reserved until the test ends: the system gives it to no process
// that asks for any free port. A program that asks for this port can listen on it, again and
// again. Other systems have no such reservation; there another process may get the port.
func ReservePort(tb testing.TB) int {
	tb.Helper()
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		tb.Fatalf("reserve a port: %v", err)
	}
	release := func() { _ = syscall.Close(fd) }
	if runtime.GOOS == "linux" {
		tb.Cleanup(release)
	} else {
		defer release()
	}
	// Two sockets share a port if both have this option and neither listens.
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var bound syscall.Sockaddr
	if err == nil {
		bound, err = syscall.Getsockname(fd)
	}
	if err != nil {
		tb.Fatalf("reserve a port: %v", err)
	}
	return bound.(*syscall.SockaddrInet4).Port
}

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
