package hubfile

import (
	"context"
	"os"
	"path/filepath"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/disk"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	bolt "go.etcd.io/bbolt"
)

// backupFill is how full a backup fills pages that get their records in the order of the keys.
const backupFill = 0.9

// Backup writes the records of a view of the hub into a new file at path, and returns its size
// in bytes. The new hub has an ID of its own, so a journal of another hub does not count as its
// journal. The file gets its name when it is complete and on the disk. The bucket that makes it a hub comes
// last, so [Open] refuses an incomplete file under any name. Backup fails with
// [fs.ErrExist] if there is a file at path.
func (f *File) Backup(ctx context.Context, path string, v *logstore.View) (size int64, err error) {
	err = newFile(path, func(db *bolt.DB) error {
		db.NoSync = true // the last transaction syncs all of them
		for t, table := range f.tables {
			if err := copyTable(ctx, db, v, logstore.Table(t), table.Name); err != nil {
				return err
			}
		}
		db.NoSync = false
		return db.Update(func(tx *bolt.Tx) error { return putHub(tx, f.IsExact(), f.Opens, f.Crashes) })
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

// copyTable writes the records of a table into a new bucket, in transactions of compactTxn bytes.
func copyTable(ctx context.Context, db *bolt.DB, v *logstore.View, t logstore.Table, name string) error {
	for next, more := "", true; more; {
		more = false
		err := db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte(name))
			if err != nil {
				return err
			}
			b.FillPercent = backupFill
			size := 0
			return v.Scan(t, next, func(key string, value []byte) (stop bool, err error) {
				if size >= compactTxn {
					next, more = key, true
					return true, nil
				}
				size += len(key) + len(value)
				if err := ctx.Err(); err != nil {
					return false, err
				}
				return false, bucket{b, name}.put([]byte(key), value)
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}
