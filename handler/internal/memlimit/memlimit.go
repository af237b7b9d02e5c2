// Package memlimit derives the soft memory limit of the Go runtime from the memory limit of the
// container. Without it, the garbage collector does not know the container's limit, and the system
// kills a process that collects too late.
package memlimit

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// noLimit is the smallest limit that means no limit, in bytes. Version 1 of cgroups reports a huge
// number.
const noLimit = 1 << 60

// ForGo returns 90 % of the container's memory limit in bytes, or 0 if it has no limit. The rest is for
// memory that Go does not manage. root is the root of the file system.
func ForGo(root fs.FS) int64 {
	least := int64(noLimit)
	for _, file := range limitFiles(root) {
		text, err := fs.ReadFile(root, file)
		if err != nil {
			continue // the container cannot read the limits of this group
		}
		limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && limit > 0 { // otherwise the text is "max"
			least = min(least, limit)
		}
	}
	if least == noLimit {
		return 0
	}
	return least / 10 * 9
}

// limitFiles returns the files with the memory limits of the process's control groups and of their
// parents, for both versions of cgroups. All the limits apply.
func limitFiles(root fs.FS) (files []string) {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // hierarchy, controllers, group
		if len(parts) < 3 {
			continue
		}
		folder, file := "sys/fs/cgroup", "memory.max"
		if parts[1] != "" {
			folder, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
			if !slices.Contains(strings.Split(parts[1], ","), "memory") {
				continue
			}
		}
		for group := path.Join("/", parts[2]); ; group = path.Dir(group) {
			files = append(files, path.Join(folder, group, file))
			if group == "/" {
				break
			}
		}
	}
	return files
}
