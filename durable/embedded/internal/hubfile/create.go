package hubfile

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	bolt "go.etcd.io/bbolt"
)

// createFile creates an empty hub at path unless a file exists. Its name becomes durable with the
// names of the journal files.
func createFile(path string, tables logstore.Tables) error {
	err := newFile(path, func(db *bolt.DB) error {
		return db.Update(func(tx *bolt.Tx) error { return layOut(tx, tables) })
	})
	if errors.Is(err, fs.ErrExist) { // another process may have created it meanwhile
		return nil
	}
	return err
}

// newFile creates a database at path with the content that fill writes. It fails with [fs.ErrExist]
// if the file exists. The file gets its name when it is complete, so that no process sees a partial
// file.
func newFile(path string, fill func(*bolt.DB) error) error {
	if _, err := os.Stat(path); err == nil {
		return &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	} else if !errors.Is(err, fs.ErrNotExist) {
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
	if err := errors.Join(fill(db), db.Close()); err != nil {
		return err
	}
	// Unlike a rename, a link does not replace the file of another process.
	err = os.Link(f.Name(), path)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return os.Rename(f.Name(), path) // a file system without links
	}
	return err
}

// layOut creates the buckets of a new hub.
func layOut(tx *bolt.Tx, tables logstore.Tables) error {
	for _, t := range tables {
		if _, err := tx.CreateBucket([]byte(t.Name)); err != nil {
			return err
		}
	}
	return putHub(tx, true, 0, 0)
}

// putHub creates the bucket of the hub's own values, with a new ID.
func putHub(tx *bolt.Tx, exact bool, opens, crashes uint64) error {
	hub, err := tx.CreateBucket([]byte(hubBucket))
	if err != nil {
		return err
	}
	id := make([]byte, 16)
	rand.Read(id) // never fails
	isExact := uint64(0)
	if exact {
		isExact = 1
	}
	return errors.Join(hub.Put(idKey, id), putNumber(hub, formatKey, FormatVersion), putNumber(hub, exactKey, isExact),
		putNumber(hub, opensKey, opens), putNumber(hub, crashesKey, crashes))
}
