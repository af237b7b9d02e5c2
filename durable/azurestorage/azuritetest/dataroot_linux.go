package azuritetest

import "syscall"

// dataRoot is where data folders go: memory, if it is a gigabyte or more
// (containers often have 64 MB), else the usual place for temporary files.
func dataRoot() string {
	const shm, enough = "/dev/shm", 1 << 30
	var fs syscall.Statfs_t
	if syscall.Statfs(shm, &fs) == nil && fs.Bavail*uint64(fs.Bsize) >= enough && syscall.Access(shm, 2) == nil {
		return shm
	}
	return ""
}
