package hubfile

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"time"

	bolt "go.etcd.io/bbolt"
	boltErrors "go.etcd.io/bbolt/errors"
)

// openBolt opens a database. It converts errors to the types of this package.
func openBolt(path string, timeout time.Duration, o *bolt.Options) (db *bolt.DB, err error) {
	o.Timeout = max(timeout, time.Millisecond)
	o.FreelistType = bolt.FreelistMapType
	o.NoStatistics = true
	var file *os.File
	o.OpenFile = func(name string, flag int, perm os.FileMode) (*os.File, error) {
		f, err := os.OpenFile(name, flag, perm)
		file = f
		return f, err
	}
	err = guard(func() error {
		db, err = bolt.Open(path, 0o600, o)
		return err
	})
	if err == nil && !isAt(file, path) { // another process compacted or deleted it before this one got the lock
		if err := db.Close(); err != nil {
			return nil, err
		}
		if _, err := os.Stat(path); err != nil { // opening would create the file
			return nil, err
		}
		return openBolt(path, timeout, o)
	}
	switch {
	case err == nil:
		db.AllocSize = 32 << 10 // growth of the file beyond what is needed; a layer is written at once
		return db, nil
	case errors.Is(err, boltErrors.ErrTimeout):
		held := &HeldError{}
		if o, ok := readOwner(path); ok {
			held.Holder, held.Contact = o.String(), o.Contact
		}
		return nil, held
	case errors.As(err, new(*PanicError)):
		if file != nil {
			file.Close() // releases its lock
		}
		return nil, &CorruptError{err}
	case errors.Is(err, boltErrors.ErrInvalid), errors.Is(err, boltErrors.ErrChecksum), errors.Is(err, boltErrors.ErrVersionMismatch):
		return nil, &CorruptError{err}
	}
	return nil, err
}

// initialMapSize returns the size of a database's initial memory map. A database that outgrows its
// map waits for the end of all readers, and new readers wait, too. It is 0 on platforms where the
// file would become as large as the map, or where address space is scarce.
func initialMapSize() int {
	if runtime.GOOS == "windows" || strconv.IntSize < 64 {
		return 0
	}
	const size int64 = 4 << 30
	return int(size)
}

// isAt reports whether an open file is still the file at path.
func isAt(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(opened, named)
}
