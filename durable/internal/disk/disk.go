// Package disk is through which a local hub writes what must be on the disk before it
// is acknowledged. A test can put a disk in the place of the operating system's that
// loses what was not synced, see package powerloss.
package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
)

// A File is open for reading and writing.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Stat() (fs.FileInfo, error)
	// Sync returns when what was written to the file is on the disk. It does without
	// the times that the file was changed.
	Sync() error
}

// A Disk has files.
type Disk interface {
	// Open opens a file for reading and writing, and makes it if there is none.
	Open(path string) (File, error)
	// Rename replaces the file to with the file from. That is durable once the folder is
	// synced.
	Rename(from, to string) error
	// SyncDir makes the names of new files in a folder durable, where folders can be
	// synced.
	SyncDir(dir string) error
}

// replaced holds the disks that tests have put in the place of the operating system's,
// by folder.
var replaced sync.Map

// Of returns the disk that the folder of a file is on.
func Of(path string) Disk {
	if d, ok := replaced.Load(filepath.Dir(path)); ok {
		return d.(Disk)
	}
	return System{}
}

// Replace puts a disk under a folder, until restore is called.
func Replace(dir string, d Disk) (restore func()) {
	replaced.Store(dir, d)
	return func() { replaced.Delete(dir) }
}

// System is the operating system's disk.
type System struct{}

// Open implements [Disk].
func (System) Open(path string) (File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return systemFile{f}, nil
}

// Rename implements [Disk].
func (System) Rename(from, to string) error { return os.Rename(from, to) }

// SyncDir implements [Disk].
func (System) SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrInvalid) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

type systemFile struct{ *os.File }

func (f systemFile) Sync() error { return dataSync(f.File) }
