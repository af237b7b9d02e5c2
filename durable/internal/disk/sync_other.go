//go:build !linux

package disk

import "os"

// dataSync waits until the data written to f is on the disk.
func dataSync(f *os.File) error { return f.Sync() }
