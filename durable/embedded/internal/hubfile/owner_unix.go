//go:build unix

package hubfile

import (
	"io/fs"
	"os"
	"syscall"
)

// copyOwner copies the user and group of another file to a file, so that the same users can open
// it.
func copyOwner(path string, of fs.FileInfo) error {
	s, ok := of.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return os.Chown(path, int(s.Uid), int(s.Gid))
}
