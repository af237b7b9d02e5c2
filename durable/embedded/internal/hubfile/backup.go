package hubfile

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	bolt "go.etcd.io/bbolt"
)

// backupFill is the share of a page that a backup fills. It can be high because records are written
// in key order.
const backupFill = 0.9

// copyTable writes the records of a table to a new bucket, in transactions of compactTxn bytes.
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
