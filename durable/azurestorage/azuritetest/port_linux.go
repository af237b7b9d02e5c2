package azuritetest

import (
	"net"
	"os"
	"syscall"
)

// ReservePort reserves a free loopback port until the returned file is closed. A program that knows
// the port can listen on it. Linux does not assign the port to another process that asks for a free
// one.
func ReservePort() (address string, reservation *os.File, err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, os.NewSyscallError("socket", err)
	}
	reservation = os.NewFile(uintptr(fd), "reserved port")
	// A listener sets this option too. Both sockets need it to share the port.
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		reservation.Close()
		return "", nil, os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		reservation.Close()
		return "", nil, os.NewSyscallError("bind", err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		reservation.Close()
		return "", nil, os.NewSyscallError("getsockname", err)
	}
	local := bound.(*syscall.SockaddrInet4)
	return (&net.TCPAddr{IP: local.Addr[:], Port: local.Port}).String(), reservation, nil
}
