package hubfile

import (
	"fmt"
	"path/filepath"
)

// networkFileSystems maps the f_type values of statfs(2) to the names of network file systems.
// Their locks and memory maps do not protect bbolt: another machine may open the same file.
var networkFileSystems = map[uint32]string{
	0x6969:     "NFS",
	0x517B:     "SMB",
	0xFE534D42: "SMB2",
	0xFF534D42: "CIFS",
}

// NetworkError is the error of a file on a network file system.
type NetworkError struct{ FileSystem string }

// Error names the file system.
func (e *NetworkError) Error() string {
	return fmt.Sprintf("the file is on a network file system (%s), whose locks and memory maps are not safe", e.FileSystem)
}

// refuseNetwork returns a *[NetworkError] if magic is the type of a network file system.
func refuseNetwork(magic uint32) error {
	if name, ok := networkFileSystems[magic]; ok {
		return &NetworkError{FileSystem: name}
	}
	return nil
}

// checkLocal returns a *[NetworkError] if the file's folder is on a network file system. It returns
// nil if the platform does not report the type.
func checkLocal(path string, statfs func(folder string) (magic uint32, known bool)) error {
	magic, known := statfs(filepath.Dir(path))
	if !known {
		return nil
	}
	return refuseNetwork(magic)
}
