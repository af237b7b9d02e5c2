package azuritetest

import "syscall"

// dataRoot returns the parent of the data folders: /dev/shm if it has at least 1 GiB of free
// memory, or else "" for the default temporary folder. Containers often have only 64 MB.
func dataRoot() string {
	const shm, enough = "/dev/shm", 1 << 30
	var fs syscall.Statfs_t
	if syscall.Statfs(shm, &fs) == nil && fs.Bavail*uint64(fs.Bsize) >= enough && syscall.Access(shm, 2) == nil {
		return shm
	}
	return ""
}
