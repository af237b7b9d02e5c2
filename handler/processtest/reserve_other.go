//go:build !linux

package processtest

import (
	"net"
	"testing"
)

// ReservePort returns a port of 127.0.0.1 on which no process listens. On this system
// another process may get the port.
func ReservePort(tb testing.TB) int {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("reserve a port: %v", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
