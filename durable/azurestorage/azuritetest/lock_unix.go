//go:build unix

package azuritetest

import (
	"os"
	"syscall"
)

// lock locks path and waits until no other process holds the lock. The kernel releases the lock of
// a process that dies.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}
