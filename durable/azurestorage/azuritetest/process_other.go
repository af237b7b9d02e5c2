//go:build !unix

package azuritetest

import (
	"errors"
	"os/exec"
)

// inOwnGroup does nothing, because this system has no process groups.
func inOwnGroup(cmd *exec.Cmd) {}

// lock always fails, because this system has no file locks. Install Azurite manually.
func lock(path string) (unlock func(), err error) {
	return nil, errors.New("this system has no file locks: install Azurite with scripts/azurite --install")
}
