//go:build unix

package azuritetest

import (
	"os"
	"os/exec"
	"syscall"
)

// inOwnGroup makes the process the leader of a new process group. Signals to the group of the test process do not
// reach it.
func inOwnGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

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
