package hubfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/disk"
	bolt "go.etcd.io/bbolt"
)

// Open compacts a file if at least minFree bytes are free, and more bytes are free than used. It does
// not if more than maxUsed bytes are used, because that would take long.
const (
	minFree = 16 << 20
	maxUsed = 256 << 20
)

// compactTxn is the number of bytes that are copied in one transaction.
const compactTxn = 1 << 20

// errNoCompaction is the error on Windows. There an open file cannot be renamed, and another
// process could open the file while it is closed.
var errNoCompaction = errors.New("a task hub's file cannot be compacted on Windows")

func compactPath(path string) string { return path + ".compact" }

// compact replaces the file of an open database with a copy without free space, if always is set or
// enough space is free. It returns the database that is open afterwards, even if there is an error.
// The file does not change until the copy is complete and synced. compact deletes an incomplete
// copy of an earlier process.
//
// Call compact before any other change of a locked hub. It syncs the folder before it returns:
// after a power loss the path may refer to either file, and both have the same content.
func compact(db *bolt.DB, path string, always bool, log *slog.Logger) (*bolt.DB, error) {
	path, err := filepath.EvalSymlinks(path) // a rename would replace the link
	if err != nil {
		return db, err
	}
	if err := os.Remove(compactPath(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return db, err
	}
	free, used, err := spaceOf(path)
	if err != nil {
		return db, err
	}
	if !always && (free < minFree || free <= used || runtime.GOOS == "windows") {
		return db, nil
	}
	if !always && used > maxUsed {
		log.Info("most of the task hub's file is free space; compacting it takes a while: stop the app and run `hub compact`",
			"freeBytes", free, "usedBytes", used)
		return db, nil
	}
	compacted, err := replaceCompact(db, path)
	if err != nil && always {
		return db, fmt.Errorf("compact: %w", err)
	}
	if err != nil {
		log.Warn("cannot compact the task hub's file; it is unchanged", "error", err)
		return db, nil
	}
	if err := errors.Join(disk.Of(path).SyncDir(filepath.Dir(path)), db.Close()); err != nil {
		return compacted, fmt.Errorf("compact: %w", err)
	}
	log.Info("compacted the task hub's file", "freeBytes", free, "usedBytes", used)
	return compacted, nil
}

// replaceCompact renames a compact copy of a database to the path of the database, and returns the
// copy, locked.
func replaceCompact(old *bolt.DB, path string) (_ *bolt.DB, err error) {
	if runtime.GOOS == "windows" {
		return nil, errNoCompaction
	}
	was, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	d, name := disk.Of(path), compactPath(path)
	db, err := openBolt(name, time.Second, &bolt.Options{NoSync: true, InitialMmapSize: initialMapSize()})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = errors.Join(db.Close(), os.Remove(name)) // err is returned instead
		}
	}()
	if err := errors.Join(copyOwner(name, was), os.Chmod(name, was.Mode().Perm())); err != nil {
		return nil, err
	}
	if err := guard(func() error { return bolt.Compact(db, old, compactTxn) }); err != nil {
		return nil, err
	}
	written, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(written.Sync(), written.Close()); err != nil {
		return nil, err
	}
	db.NoSync = false
	return db, d.Rename(name, path)
}

// spaceOf returns the free and the used bytes of a database.
func spaceOf(path string) (free, used int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	h, err := readHeader(f, info.Size())
	if err != nil {
		return 0, 0, &CorruptError{err}
	}
	if h.freelist == ^uint64(0) { // not kept in the file
		return 0, info.Size(), nil
	}
	var b [pageHead + 8]byte
	if _, err := f.ReadAt(b[:], int64(h.freelist)*h.pageSize); err != nil {
		return 0, 0, &CorruptError{fmt.Errorf("read the list of free pages: %w", err)}
	}
	pages := uint64(binary.NativeEndian.Uint16(b[10:]))
	if pages == 0xFFFF { // the first entry is the count
		pages = binary.NativeEndian.Uint64(b[pageHead:])
	}
	used = int64(h.highWater-min(pages, h.highWater)) * h.pageSize
	return info.Size() - used, used, nil
}
