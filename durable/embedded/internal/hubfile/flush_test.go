package hubfile

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// put stores a record in a group of its own.
func (s *opened) put(id logstore.Table, key string, value []byte) error {
	return s.change(func(t *logstore.Txn) { t.Put(id, []byte(key), value) })
}

func TestStore_ContinuesWhileTheDatabaseIsFull(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hub.db")
	s := newStore(t, path)
	s.Limits.FlushSize = 100_000
	s.limit(t, 64<<10) // limits the database; groups stay in the journal
	value := make([]byte, 10_000)
	n := 0
	put := func() error { return s.put(instancesTable, fmt.Sprintf("instance %d", n), value) }
	for ; n < 100; n++ {
		if err := put(); err != nil {
			t.Fatalf("put %d: %v", n, err)
		}
	}
	s.await(t, "a flush fails", func(_ bool, failure error) bool { return failure != nil })
	if flushing, _ := s.Flushing(); !flushing {
		t.Error("the unflushed layer is missing")
	}
	s.limit(t, 0)
	s.await(t, "the store retries the flush", func(_ bool, failure error) bool { return failure == nil })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = newStore(t, path)
	defer func() { _ = s.Close() }()
	err := s.View(func(tables *logstore.View) error {
		for i := range n {
			if b, err := tables.Get(instancesTable, []byte(fmt.Sprintf("instance %d", i))); err != nil || len(b) != len(value) {
				return fmt.Errorf("instance %d has %d bytes: %w", i, len(b), err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// limit limits the size of the database, as a full disk does. 0 removes the limit.
func (s *opened) limit(t *testing.T, size int) {
	t.Helper()
	tx, err := s.file.db.Begin(true) // waits for other write transactions
	if err != nil {
		t.Fatal(err)
	}
	s.file.db.MaxSize = size
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
}

// await waits for a state of the flush.
func (s *opened) await(t *testing.T, what string, is func(flushing bool, failure error) bool) {
	t.Helper()
	patience.Until(t, what, func() bool { return is(s.Flushing()) })
}

func TestStore_RefusesWritesWhenTheDatabaseIsFullForLong(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hub.db")
	s := newStore(t, path)
	s.Limits.FlushSize, s.Limits.WaitSize = 100_000, 500_000
	s.limit(t, 64<<10)
	value := make([]byte, 20_000)
	var err error
	for n := 0; err == nil && n < 200; n++ {
		err = s.put(instancesTable, fmt.Sprintf("instance %d", n), value)
	}
	if err == nil || !strings.Contains(err.Error(), "write database") {
		t.Fatalf("got %v, want a database error", err)
	}
	s.limit(t, 0)
	s.await(t, "the store retries the flush", func(_ bool, failure error) bool { return failure == nil })
	if err := s.put(instancesTable, "one more", value); err != nil {
		t.Errorf("put with free space again: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestStore_KeepsItsJournalIfCloseFails(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hub.db")
	s := newStore(t, path)
	s.limit(t, 64<<10)
	value := make([]byte, 100_000)
	if err := s.put(instancesTable, "a", value); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err == nil {
		t.Fatal("Close with a full database returned no error")
	}
	s = newStore(t, path)
	defer func() { _ = s.Close() }()
	err := s.View(func(tables *logstore.View) error {
		b, err := tables.Get(instancesTable, []byte("a"))
		if len(b) != len(value) {
			t.Errorf("the record has %d bytes, want %d", len(b), len(value))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
