//go:build !linux

package azuritetest

import "os"

// reservePort reserves nothing: the listener chooses a free port.
func reservePort() (address string, reservation *os.File, err error) {
	return "127.0.0.1:0", nil, nil
}
