package processtest

import (
	"syscall"
	"testing"
)

// ReservePort returns a port of 127.0.0.1 on which no process listens.
//
// The port stays reserved until the test ends: the system gives it to no process that asks
// for any free port. A program that asks for this port can listen on it, again and again.
// Only Linux has such a reservation. On other systems another process may get the port.
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
	tb.Cleanup(func() { _ = syscall.Close(fd) })
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
