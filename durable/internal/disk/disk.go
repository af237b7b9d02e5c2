// Package disk provides the durable file writes of a local hub. A test can replace the
// operating system's disk by one that loses unsynced writes (see package powerloss).
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

// File is a file that is open for reading and writing.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Stat() (fs.FileInfo, error)
	// Sync waits until the written data is on the disk. It need not write the file's
	// modification time.
	Sync() error
}

// Disk is a file system.
type Disk interface {
	// Open opens a file for reading and writing. It creates the file if it does not exist.
	Open(path string) (File, error)
	// Rename renames the file from to the name to, replacing the file to. The rename is durable
	// after SyncDir of the folder.
	Rename(from, to string) error
	// SyncDir makes the names of new files in a folder durable. It does nothing on systems that
	// cannot sync folders.
	SyncDir(dir string) error
	// Free returns the number of bytes that this process can still write to the file system of a
	// folder. The error is [errors.ErrUnsupported] on systems that do not report it.
	Free(dir string) (int64, error)
}

// replaced holds the disks that replace the operating system's, by folder.
var replaced sync.Map

// Of returns the disk that holds the file at path.
func Of(path string) Disk {
	if d, ok := replaced.Load(filepath.Dir(path)); ok {
		return d.(Disk)
	}
	return System{}
}

// Replace makes d the disk of a folder until restore is called.
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

// Free implements [Disk].
func (System) Free(dir string) (int64, error) { return free(dir) }

type systemFile struct{ *os.File }

func (f systemFile) Sync() error { return dataSync(f.File) }
