package settings

import (
	"os"
	"path/filepath"
)

// HostJSONFile is the file that marks an app's root folder.
const HostJSONFile = "host.json"

// FindAppRoot returns the folder that host.json is in: the one the host or
// Core Tools names, else the nearest one above the working directory or, last,
// above the program's own file. If there is none it returns the working
// directory.
func FindAppRoot(named ...string) string {
	for _, dir := range named {
		if dir != "" {
			return dir
		}
	}
	here, err := os.Getwd()
	if err != nil {
		here = "."
	}
	if dir, ok := hostJSONAbove(here); ok {
		return dir
	}
	if program, err := os.Executable(); err == nil {
		if dir, ok := hostJSONAbove(filepath.Dir(program)); ok {
			return dir
		}
	}
	return here
}

// hostJSONAbove returns the nearest of dir and the folders above it that has a
// host.json.
func hostJSONAbove(dir string) (string, bool) {
	for {
		if info, err := os.Stat(filepath.Join(dir, HostJSONFile)); err == nil && info.Mode().IsRegular() {
			return dir, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}
