//go:build unix

package hubfile

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a file the owner of another one, so that whoever could open that can
// open this.
func keepOwner(path string, of fs.FileInfo) error {
	s, ok := of.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return os.Chown(path, int(s.Uid), int(s.Gid))
}
