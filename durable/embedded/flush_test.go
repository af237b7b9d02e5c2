package embedded

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// put stores a record as a group of its own.
func (s *store) put(id tableID, key string, value []byte) error {
	staged, journal := &layer{}, writing(nil)
	k := []byte(key)
	journal.change(&id, &k, &value)
	staged.set(id, key, value)
	return s.commit(staged, journal.b)
}

func TestStore_GoesOnWhileTheDatabaseIsFull(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hub.db")
	s := newStore(t, path)
	s.flushAt = 100_000
	s.limit(t, 64<<10) // the database: what is in the journal stays there
	value := make([]byte, 10_000)
	n := 0
	put := func() error { return s.put(instancesTable, fmt.Sprintf("instance %d", n), value) }
	for ; n < 100; n++ {
		if err := put(); err != nil {
			t.Fatalf("put %d: %v", n, err)
		}
	}
	for s.lastFailure() == nil {
		<-s.flushed
	}
	s.mu.RLock()
	behind := s.flushing != nil
	s.mu.RUnlock()
	if !behind {
		t.Error("the layer that could not be flushed is gone")
	}
	s.limit(t, 0)
	for s.lastFailure() != nil { // it is tried again
		<-s.flushed
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	s = newStore(t, path)
	defer func() { _ = s.close() }()
	err := s.view(nil, func(tables *tables) error {
		for i := range n {
			if b, err := tables.get(instancesTable, []byte(fmt.Sprintf("instance %d", i))); err != nil || len(b) != len(value) {
				return fmt.Errorf("instance %d has %d bytes: %w", i, len(b), err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// limit sets how large the database may get, as a full disk does; 0 lifts it.
func (s *store) limit(t *testing.T, size int) {
	t.Helper()
	tx, err := s.db.Begin(true) // no other may be under way
	if err != nil {
		t.Fatal(err)
	}
	s.db.MaxSize = size
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
}

func (s *store) lastFailure() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.failure
}

func TestStore_RefusesWritesWhenTheDatabaseIsFullForLong(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hub.db")
	s := newStore(t, path)
	s.flushAt, s.limitAt = 100_000, 500_000
	s.limit(t, 64<<10)
	value := make([]byte, 20_000)
	var err error
	for n := 0; err == nil && n < 200; n++ {
		err = s.put(instancesTable, fmt.Sprintf("instance %d", n), value)
	}
	if err == nil || !strings.Contains(err.Error(), "write database") {
		t.Fatalf("got %v, want an error of the database", err)
	}
	s.limit(t, 0)
	for s.lastFailure() != nil {
		<-s.flushed
	}
	if err := s.put(instancesTable, "one more", value); err != nil {
		t.Errorf("put after there was room again: %v", err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}

func TestStore_ThatCannotBeClosedInOrderKeepsItsJournal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hub.db")
	s := newStore(t, path)
	s.limit(t, 64<<10)
	value := make([]byte, 100_000)
	if err := s.put(instancesTable, "a", value); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err == nil {
		t.Fatal("close returned no error although the database is full")
	}
	s = newStore(t, path)
	defer func() { _ = s.close() }()
	err := s.view(nil, func(tables *tables) error {
		b, err := tables.get(instancesTable, []byte("a"))
		if len(b) != len(value) {
			t.Errorf("the record has %d bytes, want %d", len(b), len(value))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
