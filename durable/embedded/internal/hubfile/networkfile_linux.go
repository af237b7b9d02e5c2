package hubfile

import "syscall"

// fileSystemOf returns the type of the file system of a folder.
func fileSystemOf(folder string) (magic uint32, known bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil {
		return 0, false
	}
	return uint32(s.Type), true
}
