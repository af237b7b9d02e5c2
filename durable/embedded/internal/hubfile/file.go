package hubfile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/disk"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	bolt "go.etcd.io/bbolt"
)

// FormatVersion is the version of the layout of the file and its journal. Files with a newer
// version are refused.
const FormatVersion = 1

// hubBucket is the bucket of the hub's own values. They are varints, except for the ID. The other
// buckets contain records.
const hubBucket = "hub"

var (
	formatKey  = []byte("format")
	idKey      = []byte("id")      // random; part of the journal's checksums
	appliedKey = []byte("applied") // last journal group in the database
	opensKey   = []byte("opens")   // number of opens
	openKey    = []byte("open")    // 1 while a process has the file open, and after a crash
	crashesKey = []byte("crashes") // number of processes that did not close the file
	exactKey   = []byte("exact")   // 1 if nothing was imported; older versions did not set it
)

// Options configure [Open].
type Options struct {
	// Tables are the tables of the hub. Their names are stored in the file.
	Tables logstore.Tables
	// LockTimeout limits how long Open waits for another process to close the file.
	LockTimeout time.Duration
	// Relaxed lets the journal acknowledge groups that may not be on the disk yet.
	Relaxed bool
	// Compact rewrites the file without its free space even if little of it is free. By default
	// Open does so only if most of it is free.
	Compact bool
	// AllowNetwork permits a file on a network file system.
	AllowNetwork bool
	// Contact is an address at which other processes can reach this one.
	Contact string
	// Logger is also the logger of the store. It should include the hub's path.
	Logger *slog.Logger

	statfs func(folder string) (magic uint32, known bool) // nil for the function of the platform
}

// File is the file of a hub, open in this process. It is the [logstore.Base] of the hub's store.
// The journal beside it is the [logstore.Log].
type File struct {
	// OpenCount is the number of times the hub was opened, including this one.
	OpenCount uint64
	// CrashCount is the number of processes that died while they had the hub open.
	CrashCount uint64

	path    string
	tables  logstore.Tables
	log     *slog.Logger
	db      *bolt.DB
	info    os.FileInfo // of the database when it was opened
	journal *journal
	last    uint64       // last group in the database when it was opened
	seen    atomic.Int64 // when the file was last found at its path, in Unix nanoseconds
	closed  atomic.Bool
	exact   atomic.Bool
}

// Open opens a hub's files and creates them if they do not exist. It writes groups that are only in
// the journal to the database and marks the hub as open. It does not change files that are not a
// valid hub of a known format. The error can be a *[HeldError], *[VersionError], *[CorruptError] or
// *[NetworkError].
func Open(path string, o Options) (_ *File, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if o.statfs == nil {
		o.statfs = fileSystemOf
	}
	if err := checkLocal(path, o.statfs); err != nil && !o.AllowNetwork {
		return nil, err
	}
	if err := createFile(path, o.Tables); err != nil {
		return nil, err
	}
	if err := inspectFile(path, o.LockTimeout); err != nil {
		return nil, err
	}
	db, err := openBolt(path, o.LockTimeout, &bolt.Options{InitialMmapSize: initialMapSize()})
	if err != nil {
		return nil, err
	}
	f := &File{path: path, tables: o.Tables, log: o.Logger, db: db}
	defer func() {
		if err != nil {
			_ = f.db.Close() // err is returned instead
			if f.journal != nil {
				_ = f.journal.close()
			}
		}
	}()
	id, applied, err := f.checkFormat()
	if err != nil {
		return nil, err
	}
	if f.db, err = compact(f.db, path, o.Compact, o.Logger); err != nil {
		return nil, err
	}
	if f.info, err = os.Stat(path); err != nil {
		return nil, err
	}
	if err := thisOwner(o.Contact).write(path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = removeOwner(path) // err is more important
		}
	}()
	if f.journal, err = openJournal(path, id, o.Relaxed); err != nil {
		return nil, err
	}
	f.journal.check = f.CheckPath
	recovered, err := f.recover(applied)
	if err != nil {
		return nil, err
	}
	f.last = recovered.Last
	return f, f.write(recovered, f.markOpened)
}

// Store returns the hub's store.
func (f *File) Store() *logstore.Store {
	return logstore.New(f, f.journal, logstore.NewLayer(f.tables, f.last), f.log)
}

// recover returns the changes that are in the journal but not in the database.
//
// If groups were lost, the journal can still contain later groups. If their numbers were used
// again, they would look like the continuation of new groups. So the layer ends with the highest of
// their numbers.
func (f *File) recover(applied uint64) (*logstore.Layer, error) {
	l := logstore.NewLayer(f.tables, applied)
	groups, lost, err := f.journal.recover(applied)
	for _, g := range groups {
		err = errors.Join(err, l.Replay(g.number, g.payload))
	}
	if err != nil {
		return nil, &CorruptError{err}
	}
	if lost > 0 {
		f.log.Warn("the last changes of the task hub did not reach the disk and are lost", "lastGroup", l.Last)
	}
	if len(groups) > 0 {
		f.log.Info("recovered changes from the journal", "groups", len(groups))
	}
	l.Last = max(l.Last, lost)
	return l, nil
}

// View implements [logstore.Base]. A view that finds everything in memory opens no transaction.
func (f *File) View(see func(logstore.Reader) error) error {
	if f.closed.Load() {
		return logstore.ErrClosed
	}
	r := &reader{db: f.db, tables: f.tables}
	defer r.end()
	return guard(func() error { return see(r) })
}

// Write implements [logstore.Base].
func (f *File) Write(l *logstore.Layer, closing bool) error {
	if closing {
		return f.write(l, markClosed)
	}
	return f.write(l, func(*bolt.Bucket) error { return nil })
}

// write stores a layer and the change that mark makes to the hub's own bucket.
func (f *File) write(l *logstore.Layer, mark func(hub *bolt.Bucket) error) error {
	var txid int
	err := guard(func() error {
		return f.db.Update(func(tx *bolt.Tx) error {
			txid = tx.ID()
			if err := newReader(tx, f.tables).store(l); err != nil {
				return err
			}
			hub := tx.Bucket([]byte(hubBucket))
			if err := mark(hub); err != nil {
				return err
			}
			return putNumber(hub, appliedKey, l.Last)
		})
	})
	if err != nil {
		return fmt.Errorf("write database: %w", f.commitError(txid, err))
	}
	return nil
}

// commitError returns the error of a failed transaction. It is a *[logstore.UncertainError] if the
// transaction is visible nevertheless, or if that is unknown. Another transaction could then
// overwrite pages that are still in use.
func (f *File) commitError(txid int, cause error) error {
	var seen int
	err := guard(func() error {
		return f.db.View(func(tx *bolt.Tx) error {
			seen = tx.ID()
			return nil
		})
	})
	if panicked := errors.As(cause, new(*PanicError)); panicked || err != nil || seen >= txid {
		return &logstore.UncertainError{Cause: cause}
	}
	return cause
}

// Backup writes the records of a view to a new file at path and returns the file's size in bytes.
// The new hub has its own ID, so it ignores the journal of another hub. The file gets its name when
// it is complete and on the disk. The bucket that makes it a hub is written last, so [Open] refuses
// an incomplete file under any name. Backup fails with [fs.ErrExist] if there is a file at path.
func (f *File) Backup(ctx context.Context, path string, v *logstore.View) (size int64, err error) {
	err = newFile(path, func(db *bolt.DB) error {
		db.NoSync = true // the last transaction syncs all of them
		for t, table := range f.tables {
			if err := copyTable(ctx, db, v, logstore.Table(t), table.Name); err != nil {
				return err
			}
		}
		db.NoSync = false
		return db.Update(func(tx *bolt.Tx) error { return putHub(tx, f.IsExactlyOnce(), f.OpenCount, f.CrashCount) })
	})
	if err != nil {
		return 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), disk.Of(path).SyncDir(filepath.Dir(path))
}

// Close implements [logstore.Base].
func (f *File) Close() error {
	f.closed.Store(true)
	return f.db.Close()
}

// IsExactlyOnce reports whether nothing was ever imported into the hub.
func (f *File) IsExactlyOnce() bool { return f.exact.Load() }

// SetInexact records permanently that data was imported into the hub.
func (f *File) SetInexact() error {
	f.exact.Store(false)
	return guard(func() error {
		return f.db.Update(func(tx *bolt.Tx) error { return putNumber(tx.Bucket([]byte(hubBucket)), exactKey, 0) })
	})
}

// Abandon closes the files without writing pending changes. Open can recover from them.
func (f *File) Abandon() { _ = errors.Join(f.journal.close(), f.Close()) }

// RemoveOwner deletes the file that identifies the process using the hub.
func (f *File) RemoveOwner() error { return removeOwner(f.path) }

// pathCheckInterval is the time for which [File.CheckPathAtInterval] trusts the last check.
const pathCheckInterval = time.Second

// CheckPathAtInterval is CheckPath, but does nothing if the last check succeeded within
// pathCheckInterval.
func (f *File) CheckPathAtInterval() error {
	if time.Since(time.Unix(0, f.seen.Load())) < pathCheckInterval {
		return nil
	}
	return f.CheckPath()
}

// CheckPath returns an error if the file was deleted or renamed. Writes to it would be lost.
func (f *File) CheckPath() error {
	now, err := os.Stat(f.path)
	if err == nil && !os.SameFile(f.info, now) {
		err = &fs.PathError{Op: "find", Path: f.path, Err: errors.New("there is another file in its place")}
	}
	if err != nil {
		f.seen.Store(0)
		return fmt.Errorf("the task hub's file was deleted or moved while it was open; put it back, or restart the app: %w", err)
	}
	f.seen.Store(time.Now().UnixNano())
	return nil
}

// inspectFile verifies an existing file while it is locked against writes of other processes.
func inspectFile(path string, timeout time.Duration) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%s is a directory", path)
	}
	if info.Size() == 0 {
		return &CorruptError{errors.New("the file is empty; delete it to create a new task hub")}
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	db, err := openBolt(path, timeout, &bolt.Options{ReadOnly: true}) // takes the lock
	if err == nil {
		defer func() { _ = db.Close() }()
		if err := inspect(f); err != nil {
			return &CorruptError{err}
		}
		return nil
	}
	if _, damage := readHeader(f, info.Size()); damage != nil && !errors.As(err, new(*HeldError)) {
		return &CorruptError{damage} // it is clearer than err
	}
	return err
}

// checkFormat verifies that the database is a hub of a known format. It returns the hub's ID and
// the last group in the database.
func (f *File) checkFormat() (id []byte, applied uint64, err error) {
	var format uint64
	err = guard(func() error {
		return f.db.View(func(tx *bolt.Tx) error {
			hub := tx.Bucket([]byte(hubBucket))
			if hub == nil {
				return errors.New("it is a database of another program")
			}
			var err error
			if format, err = number(hub, formatKey); err != nil || format > FormatVersion {
				return err
			}
			open, err := number(hub, openKey)
			if err != nil {
				return err
			}
			if open != 0 && !hasJournal(f.path) {
				return fmt.Errorf("its process crashed and a journal file is missing (%s or -1); restore it", journalPath(f.path, 0))
			}
			r := newReader(tx, f.tables)
			for t := range f.tables {
				if _, err := r.bucket(logstore.Table(t)); err != nil {
					return err
				}
			}
			id = append(id, hub.Get(idKey)...)
			applied, err = number(hub, appliedKey)
			return err
		})
	})
	switch {
	case err != nil:
	case format > FormatVersion:
		return nil, 0, &VersionError{Version: format, Supported: FormatVersion}
	case format == 0 || len(id) == 0:
		err = errors.New("it has no format version or no ID")
	}
	if err != nil {
		return nil, 0, &CorruptError{err}
	}
	return id, applied, nil
}

// markOpened records that a process has the hub open.
func (f *File) markOpened(hub *bolt.Bucket) error {
	var errs [4]error
	var open, exact uint64
	open, errs[0] = number(hub, openKey)
	f.OpenCount, errs[1] = number(hub, opensKey)
	f.CrashCount, errs[2] = number(hub, crashesKey)
	exact, errs[3] = number(hub, exactKey)
	f.exact.Store(exact == 1)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	f.OpenCount++
	if open != 0 {
		f.CrashCount++
	}
	return errors.Join(putNumber(hub, opensKey, f.OpenCount), putNumber(hub, crashesKey, f.CrashCount), putNumber(hub, openKey, 1))
}

func markClosed(hub *bolt.Bucket) error { return putNumber(hub, openKey, 0) }

// number returns a number of the hub bucket. A missing number is 0.
func number(hub *bolt.Bucket, key []byte) (uint64, error) {
	b := hub.Get(key)
	if b == nil {
		return 0, nil
	}
	n, size := binary.Uvarint(b)
	if size != len(b) || size == 0 {
		return 0, fmt.Errorf("%s is not a number: %x", key, b)
	}
	return n, nil
}

func putNumber(hub *bolt.Bucket, key []byte, n uint64) error {
	return hub.Put(key, binary.AppendUvarint(nil, n))
}

// Delete deletes the files of the hub at path without verifying them. It fails with a *[HeldError]
// if a process has the hub open, and with [fs.ErrNotExist] if the file does not exist.
func Delete(path string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	db, err := openBolt(path, 10*time.Millisecond, &bolt.Options{ReadOnly: true}) // takes the lock
	if errors.As(err, new(*HeldError)) {
		return err
	}
	if db != nil {
		defer func() { _ = db.Close() }() // it was only read
	}
	// Delete the journal first. Without it, an unclosed file cannot be opened in an older state.
	for _, name := range []string{journalPath(path, 0), journalPath(path, 1), ownerPath(path), compactPath(path), path} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
