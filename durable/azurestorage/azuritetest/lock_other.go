//go:build !unix

package azuritetest

import "errors"

// lock has nothing to lock with here; install Azurite by hand.
func lock(path string) (unlock func(), err error) {
	return nil, errors.New("no file locks on this system: install it with scripts/azurite --install")
}
