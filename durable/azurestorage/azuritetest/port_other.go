//go:build !linux

package azuritetest

import (
	"net"
	"os"
)

// ReservePort returns a loopback port on which no process listens. This system cannot reserve the
// port, so another process may use it; reservation is nil.
func ReservePort() (address string, reservation *os.File, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	defer l.Close()
	return l.Addr().String(), nil, nil
}
