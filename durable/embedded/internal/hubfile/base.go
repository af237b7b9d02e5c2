package hubfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	bolt "go.etcd.io/bbolt"
	boltErrors "go.etcd.io/bbolt/errors"
)

// In the database a record consists of one or more pieces. The key of a piece is the record's key
// followed by the piece number in two bytes. bbolt rewrites whole pages, so large values must not
// share pages with values that change.
//
// A piece starts with a checksum, because the database does not check its data. The checksum covers
// the key and the rest of the piece. A flag byte follows, which is 1 if the record has more pieces.

const (
	maxPiece   = 16 << 10 // maximum record bytes in a piece
	pieceHead  = 5        // checksum and flags
	flagMore   = 1
	maxPieces  = 1 << 16
	keyNumbers = 2 // size of the piece number in a key
)

// maxRecord limits the size of a record to 1 GiB.
const maxRecord = maxPiece * maxPieces

var checksums = crc32.MakeTable(crc32.Castagnoli)

var errChecksum = errors.New("checksum does not match")

func checksum(key, rest []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, checksums), checksums, rest)
}

// bucket is a table of the database in a transaction.
type bucket struct {
	*bolt.Bucket
	name string
}

// put stores a record and replaces an existing one.
func (b bucket) put(key, value []byte) error {
	if len(value) >= maxRecord {
		return fmt.Errorf("a record of %d bytes is too large; the limit is %d", len(value), maxRecord)
	}
	for n := 0; ; n++ {
		rest := value
		if len(rest) > maxPiece {
			rest = rest[:maxPiece]
		}
		value = value[len(rest):]
		k := pieceKey(key, n)
		v := make([]byte, pieceHead, pieceHead+len(rest))
		if len(value) > 0 {
			v[4] = flagMore
		}
		v = append(v, rest...)
		binary.BigEndian.PutUint32(v, checksum(k, v[4:]))
		if err := b.Put(k, v); err != nil {
			return fmt.Errorf("put record in %s: %w", b.name, err)
		}
		if len(value) == 0 {
			return b.removeFrom(key, n+1)
		}
	}
}

// remove deletes a record if it exists.
func (b bucket) remove(key []byte) error { return b.removeFrom(key, 0) }

// removeFrom deletes the pieces of a record from piece n on.
func (b bucket) removeFrom(key []byte, n int) error {
	for ; n < maxPieces; n++ { // the key of the piece with the number maxPieces would be the one of piece 0
		k := pieceKey(key, n)
		if b.Get(k) == nil {
			return nil
		}
		if err := b.Delete(k); err != nil {
			return fmt.Errorf("delete record from %s: %w", b.name, err)
		}
	}
	return nil
}

// get returns a record, or nil if it does not exist. The record must not be modified and is valid
// until the transaction ends.
func (b bucket) get(key []byte) ([]byte, error) {
	k := pieceKey(key, 0)
	v := b.Get(k)
	if v == nil {
		return nil, nil
	}
	return b.whole(key, k, v)
}

// whole returns a record, given its first piece.
func (b bucket) whole(key, k, v []byte) ([]byte, error) {
	value, more, err := b.open(k, v)
	if err != nil || !more {
		return value, err
	}
	pieces := [][]byte{value}
	for n := 1; more; n++ {
		k := pieceKey(key, n)
		v := b.Get(k)
		if v == nil {
			return nil, &logstore.DamageError{Table: b.name, Key: k, Cause: logstore.ErrMissing}
		}
		var next []byte
		if next, more, err = b.open(k, v); err != nil {
			return nil, err
		}
		pieces = append(pieces, next)
	}
	return bytes.Join(pieces, nil), nil
}

// open verifies a piece and returns its content.
func (b bucket) open(k, v []byte) (value []byte, more bool, err error) {
	if len(v) < pieceHead || binary.BigEndian.Uint32(v) != checksum(k, v[4:]) {
		return nil, false, &logstore.DamageError{Table: b.name, Key: bytes.Clone(k), Cause: errChecksum}
	}
	return v[pieceHead:], v[4]&flagMore != 0, nil
}

// scan calls f for each record from key from on, in order, until f returns true or an error. Keys
// and values are valid until the transaction ends.
func (b bucket) scan(from []byte, f func(key []byte, value func() ([]byte, error)) (stop bool, err error)) error {
	c := b.Cursor()
	for k, v := c.Seek(pieceKey(from, 0)); k != nil; k, v = c.Next() {
		key, n := splitPieceKey(k)
		if n != 0 {
			continue // read with the record's first piece
		}
		stop, err := f(key, func() ([]byte, error) { return b.whole(key, k, v) })
		if stop || err != nil {
			return err
		}
	}
	return nil
}

// last returns the key of the last record that starts with prefix, or nil.
func (b bucket) last(prefix []byte) []byte {
	c := b.Cursor()
	k, _ := c.Seek(after(prefix))
	if k == nil {
		k, _ = c.Last()
	} else {
		k, _ = c.Prev()
	}
	if !bytes.HasPrefix(k, prefix) {
		return nil
	}
	key, _ := splitPieceKey(k)
	return key
}

// after returns the first key after all keys with the prefix. The prefix is a group number, never
// the maximum.
func after(prefix []byte) []byte {
	return binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(prefix)+1)
}

func pieceKey(key []byte, n int) []byte {
	k := make([]byte, len(key)+keyNumbers)
	copy(k, key)
	binary.BigEndian.PutUint16(k[len(key):], uint16(n))
	return k
}

func splitPieceKey(k []byte) (key []byte, n int) {
	if len(k) < keyNumbers {
		return k, 0 // not a valid key: its checksum will not match
	}
	key = k[:len(k)-keyNumbers]
	return key, int(binary.BigEndian.Uint16(k[len(key):]))
}

// reader is a [logstore.LateReader] of a transaction.
type reader struct {
	db      *bolt.DB
	tx      *bolt.Tx // nil until Begin
	tables  logstore.Tables
	buckets [logstore.MaxTables]*bolt.Bucket // opened on demand
}

func newReader(tx *bolt.Tx, tables logstore.Tables) *reader {
	return &reader{tx: tx, tables: tables}
}

// Begin implements [logstore.LateReader].
func (r *reader) Begin() (err error) {
	if r.tx != nil {
		return nil
	}
	r.tx, err = r.db.Begin(false)
	if errors.Is(err, boltErrors.ErrDatabaseNotOpen) {
		return logstore.ErrClosed
	}
	return err
}

// end ends a read-only transaction.
func (r *reader) end() {
	if r.tx != nil {
		_ = r.tx.Rollback() // fails only if it has ended
	}
}

// bucket returns the bucket of a table.
func (r *reader) bucket(t logstore.Table) (bucket, error) {
	if err := r.Begin(); err != nil {
		return bucket{}, err
	}
	name := r.tables[t].Name
	if r.buckets[t] == nil {
		if r.buckets[t] = r.tx.Bucket([]byte(name)); r.buckets[t] == nil {
			return bucket{}, &logstore.DamageError{Table: name, Cause: logstore.ErrMissing}
		}
	}
	return bucket{r.buckets[t], name}, nil
}

// Get implements [logstore.Reader].
func (r *reader) Get(t logstore.Table, key []byte) ([]byte, error) {
	b, err := r.bucket(t)
	if err != nil {
		return nil, err
	}
	return b.get(key)
}

// Scan implements [logstore.Reader].
func (r *reader) Scan(t logstore.Table, from []byte, f func(key []byte, value func() ([]byte, error)) (stop bool, err error)) error {
	b, err := r.bucket(t)
	if err != nil {
		return err
	}
	return b.scan(from, f)
}

// Group implements [logstore.Reader].
func (r *reader) Group(t logstore.Table, group uint64, f func(key []byte, value func() ([]byte, error)) error) error {
	prefix := logstore.NumberKey(group)
	return r.Scan(t, prefix, func(key []byte, value func() ([]byte, error)) (bool, error) {
		if !bytes.HasPrefix(key, prefix) {
			return true, nil
		}
		return false, f(key, value)
	})
}

// Last implements [logstore.Reader].
func (r *reader) Last(t logstore.Table, group uint64) ([]byte, error) {
	b, err := r.bucket(t)
	if err != nil {
		return nil, err
	}
	return b.last(logstore.NumberKey(group)), nil
}

// store writes the changes of a layer to the transaction, in key order.
func (r *reader) store(l *logstore.Layer) error {
	for id := range r.tables {
		b, err := r.bucket(logstore.Table(id))
		if err != nil {
			return err
		}
		l.Changes(logstore.Table(id), func(key string, value []byte) bool {
			if value == nil {
				err = b.remove([]byte(key))
			} else {
				err = b.put([]byte(key), value)
			}
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
