package hubfile

import (
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
)

func TestBucket_DetectsDamagedAndMissingPieces(t *testing.T) {
	t.Parallel()
	s := newStore(t, filepath.Join(t.TempDir(), "hub.db"))
	defer func() { _ = s.Close() }()
	key := []byte("key")
	value := make([]byte, 3*maxPiece)
	for _, harm := range []struct {
		name string
		do   func(b bucket) error
	}{
		{"a changed byte", func(b bucket) error {
			v := append([]byte(nil), b.Get(pieceKey(key, 1))...)
			v[100] ^= 1
			return b.Put(pieceKey(key, 1), v)
		}},
		{"a missing piece", func(b bucket) error { return b.Delete(pieceKey(key, 2)) }},
		{"a piece in another's place", func(b bucket) error { return b.Put(pieceKey(key, 1), b.Get(pieceKey(key, 2))) }},
		{"a truncated piece", func(b bucket) error { return b.Put(pieceKey(key, 0), []byte{1, 2}) }},
	} {
		err := s.file.db.Update(func(tx *bolt.Tx) error {
			b, err := newReader(tx, testTables).bucket(instancesTable)
			if err != nil {
				return err
			}
			if err := b.put(key, value); err != nil {
				return err
			}
			if got, err := b.get(key); err != nil || len(got) != len(value) {
				t.Fatalf("read before the damage: %d bytes, %v", len(got), err)
			}
			if err := b.removeFrom(key, maxPieces); err != nil {
				return err
			}
			if got, err := b.get(key); err != nil || len(got) != len(value) {
				t.Fatalf("after no piece was removed: %d bytes, %v", len(got), err)
			}
			if err := harm.do(b); err != nil {
				return err
			}
			if got, err := b.get(key); err == nil {
				t.Errorf("%s: got %d bytes and no error", harm.name, len(got))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
