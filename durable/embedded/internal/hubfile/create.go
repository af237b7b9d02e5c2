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

// createFile creates an empty hub at path unless there is a file. The file gets its
// name when it is complete, so that no process sees half of it. The name becomes
// durable with those of the journal's files.
func createFile(path string, tables logstore.Tables) error {
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
	err = errors.Join(db.Update(func(tx *bolt.Tx) error { return layOut(tx, tables) }), db.Close())
	if err != nil {
		return err
	}
	// Unlike a rename, a link does not replace a file of another process.
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		if err := os.Rename(f.Name(), path); err != nil { // a file system without links
			return err
		}
	}
	return nil
}

// layOut creates the buckets of a new hub.
func layOut(tx *bolt.Tx, tables logstore.Tables) error {
	hub, err := tx.CreateBucket([]byte(hubBucket))
	if err != nil {
		return err
	}
	for _, t := range tables {
		if _, err := tx.CreateBucket([]byte(t.Name)); err != nil {
			return err
		}
	}
	id := make([]byte, 16)
	rand.Read(id) // never fails
	return errors.Join(hub.Put(idKey, id), putNumber(hub, formatKey, FormatVersion), putNumber(hub, exactKey, 1))
}
