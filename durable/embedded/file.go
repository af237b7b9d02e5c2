package embedded

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	boltErrors "go.etcd.io/bbolt/errors"
)

// formatVersion is the version of the layout of the file and its journal. A
// file of a newer one is refused.
const formatVersion = 1

// hubBucket is the database's bucket beside those of records. Its values are
// numbers as varints, but for the ID.
const hubBucket = "hub"

var (
	formatKey  = []byte("format")
	idKey      = []byte("id")      // random, to tell which journal belongs to the file
	appliedKey = []byte("applied") // the last group of the journal that is in the database
	opensKey   = []byte("opens")   // how often it was opened
	openKey    = []byte("open")    // 1 while a process has it, so that the next sees that it died
	crashesKey = []byte("crashes") // how often one died
)

// A generation is what sets one opening of a hub apart from others.
type generation struct {
	opens   uint64
	crashes uint64 // how often a process died that had the hub
}

// openStore opens a hub's files, which it makes if there are none, brings what
// is left in the journal into the database, and marks the hub as open. Nothing
// is changed in files that are not a sound hub of a known format.
func openStore(path string, cfg Config) (_ *store, g generation, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, g, err
	}
	if err := createFile(path); err != nil {
		return nil, g, err
	}
	if err := inspectFile(path, cfg.LockTimeout); err != nil {
		return nil, g, err
	}
	db, err := openBolt(path, cfg.LockTimeout, &bolt.Options{})
	if err != nil {
		return nil, g, err
	}
	s := &store{
		path: path, log: cfg.Logger, db: db, active: &layer{}, flushAt: flushSize, limitAt: maxLayer, pause: flushPause,
		full: make(chan struct{}, 1), flushed: make(chan struct{}, 1), closing: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			_ = db.Close() // the file is given up for a better reason
			if s.journal != nil {
				_ = s.journal.close()
			}
		}
	}()
	if s.file, err = os.Stat(path); err != nil {
		return nil, g, err
	}
	id, applied, err := s.checkFormat()
	if err != nil {
		return nil, g, err
	}
	if err := thisOwner(cfg.Contact).write(path); err != nil {
		return nil, g, err
	}
	defer func() {
		if err != nil {
			_ = removeOwner(path) // what went wrong is more to the point
		}
	}()
	if s.journal, err = openJournal(path, id, cfg.Relaxed); err != nil {
		return nil, g, err
	}
	if err := s.recover(applied); err != nil {
		return nil, g, err
	}
	err = s.flush(s.active, func(tx *bolt.Tx) error {
		var err error
		g, err = markOpened(tx)
		return err
	})
	if err != nil {
		return nil, g, err
	}
	s.active = &layer{last: s.last}
	return s, g, nil
}

// recover reads what is in the journal and not in the database into the active
// layer.
//
// If groups were lost, those that came after them are still in the files. The
// layer counts them as if they were in it, so that the flush that follows makes
// them old in the same transaction: nothing is numbered like one of them again,
// or they would pass for the continuation of what is new.
func (s *store) recover(applied uint64) error {
	groups, lost, err := s.journal.recover(applied)
	for _, g := range groups {
		err = errors.Join(err, g.replay(s.active))
	}
	if err != nil {
		return &CorruptError{Path: s.path, Cause: err}
	}
	last := applied + uint64(len(groups))
	if lost > 0 {
		s.log.Warn("some of what the task hub was last told did not reach the disk", "path", s.path, "lastGroup", last)
	}
	if len(groups) > 0 {
		s.log.Info("recovered from the journal what was not in the database yet", "path", s.path, "groups", len(groups))
	}
	s.last = max(last, lost)
	s.active.last = s.last
	return nil
}

// createFile makes an empty hub at path unless there is a file. The hub gets
// its name only when it is whole, so that no process ever sees half of one. The name
// is made durable with those of the journal's files.
func createFile(path string) error {
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir, name := filepath.Split(path)
	f, err := os.CreateTemp(dir, name+".new-*")
	if err != nil {
		return err
	}
	f.Close()
	defer func() { _ = os.Remove(f.Name()) }()
	db, err := openBolt(f.Name(), time.Second, &bolt.Options{})
	if err != nil {
		return err
	}
	err = errors.Join(db.Update(layOut), db.Close())
	if err != nil {
		return err
	}
	// Unlike a rename, a link does not replace what another process made.
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		if err := os.Rename(f.Name(), path); err != nil { // a file system without links
			return err
		}
	}
	return nil
}

// layOut makes the buckets of a new hub.
func layOut(tx *bolt.Tx) error {
	hub, err := tx.CreateBucket([]byte(hubBucket))
	if err != nil {
		return err
	}
	for _, name := range tableNames {
		if _, err := tx.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	id := make([]byte, 16)
	rand.Read(id) // never fails
	return errors.Join(hub.Put(idKey, id), putNumber(hub, formatKey, formatVersion))
}

// inspectFile checks an existing file while no other process can write it.
func inspectFile(path string, patience time.Duration) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%s is a directory", path)
	}
	if info.Size() == 0 {
		return &CorruptError{Path: path, Cause: errors.New("the file is empty; delete it to begin a new task hub")}
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	db, err := openBolt(path, patience, &bolt.Options{ReadOnly: true}) // for its lock
	if err == nil {
		defer func() { _ = db.Close() }()
		if err := inspect(f); err != nil {
			return &CorruptError{Path: path, Cause: err}
		}
		return nil
	}
	if _, damage := readHeader(f, info.Size()); damage != nil && !errors.As(err, new(*HeldError)) {
		return &CorruptError{Path: path, Cause: damage} // in better words
	}
	return err
}

// openBolt opens a database and says in our terms why it cannot.
func openBolt(path string, patience time.Duration, o *bolt.Options) (db *bolt.DB, err error) {
	o.Timeout = max(patience, time.Millisecond)
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
	var panicked *panicError
	switch {
	case err == nil:
		return db, nil
	case errors.Is(err, boltErrors.ErrTimeout):
		held := &HeldError{Path: path}
		if o, ok := readOwner(path); ok {
			held.Holder, held.Contact = o.String(), o.Contact
		}
		return nil, held
	case errors.As(err, &panicked):
		if file != nil {
			file.Close() // with its lock
		}
		return nil, &CorruptError{Path: path, Cause: err}
	case errors.Is(err, boltErrors.ErrInvalid), errors.Is(err, boltErrors.ErrChecksum), errors.Is(err, boltErrors.ErrVersionMismatch):
		return nil, &CorruptError{Path: path, Cause: err}
	}
	return nil, err
}

// checkFormat checks that the database is a hub of a format that is known, and
// returns its ID and which group of the journal it has.
func (s *store) checkFormat() (id []byte, applied uint64, err error) {
	var format uint64
	err = guard(func() error {
		return s.db.View(func(tx *bolt.Tx) error {
			hub := tx.Bucket([]byte(hubBucket))
			if hub == nil {
				return errors.New("it is a database of another program")
			}
			var err error
			if format, err = number(hub, formatKey); err != nil || format > formatVersion {
				return err
			}
			open, err := number(hub, openKey)
			if err != nil {
				return err
			}
			if open != 0 && !hasJournal(s.path) {
				return fmt.Errorf("its process died, and the journal it left, %s and the like, is not there", journalPath(s.path, 0))
			}
			t := tables{tx: tx}
			for id := range tableCount {
				if _, err := t.base(id); err != nil {
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
	case format > formatVersion:
		return nil, 0, &FormatError{Path: s.path, Version: format, Supported: formatVersion}
	case format == 0 || len(id) == 0:
		err = errors.New("it does not say its format and its ID")
	}
	if err != nil {
		return nil, 0, &CorruptError{Path: s.path, Cause: err}
	}
	return id, applied, nil
}

// markOpened notes that a process has the hub.
func markOpened(tx *bolt.Tx) (g generation, err error) {
	hub := tx.Bucket([]byte(hubBucket))
	var errs [3]error
	var open uint64
	open, errs[0] = number(hub, openKey)
	g.opens, errs[1] = number(hub, opensKey)
	g.crashes, errs[2] = number(hub, crashesKey)
	if err := errors.Join(errs[:]...); err != nil {
		return g, err
	}
	g.opens++
	if open != 0 {
		g.crashes++
	}
	return g, errors.Join(putNumber(hub, opensKey, g.opens), putNumber(hub, crashesKey, g.crashes), putNumber(hub, openKey, 1))
}

func markClosed(tx *bolt.Tx) error {
	return putNumber(tx.Bucket([]byte(hubBucket)), openKey, 0)
}

// number returns a number of the hub bucket, 0 if it is not there.
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
