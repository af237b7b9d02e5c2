package hubfile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/disk/powerloss"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const (
	instancesTable logstore.Table = iota
	payloadsTable
	historyTable
	messagesTable
	tableCount
)

var testTables = logstore.Tables{
	instancesTable: {Name: "instances"},
	payloadsTable:  {Name: "payloads", Grouped: true},
	historyTable:   {Name: "history", Grouped: true},
	messagesTable:  {Name: "messages", Transient: true},
}

// inGroup returns a key of a group.
func inGroup(group uint64, index int) string {
	return string(binary.BigEndian.AppendUint32(logstore.NumberKey(group), uint32(index)))
}

func groupOf(key string) uint64 { return binary.BigEndian.Uint64([]byte(key[:8])) }

var quiet = Options{Tables: testTables, LockTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)}

// opened is a store with its file and its writer.
type opened struct {
	*logstore.Store
	file *File
	w    *logstore.Writer[*logstore.Txn]
}

// openStore opens a store. It does not flush until the flusher is started.
func openStore(t *testing.T, path string, o Options) *opened {
	t.Helper()
	f, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	s := &opened{Store: f.Store(), file: f}
	s.w = logstore.NewWriter(s.Store, logstore.WriterConfig[*logstore.Txn]{
		Begin:   func(t *logstore.Txn) *logstore.Txn { return t },
		Effects: new(sync.Mutex),
		Failed:  func(err error) error { return err },
	})
	return s
}

func newStore(t *testing.T, path string) *opened {
	t.Helper()
	s := openStore(t, path, quiet)
	s.Limits.RetryInterval = 10 * time.Millisecond
	s.Start()
	return s
}

// change makes changes durable as one group.
func (s *opened) change(f func(t *logstore.Txn)) error {
	return s.w.Do(context.Background(), func(t *logstore.Txn) error {
		f(t)
		return nil
	})
}

// endWriter closes the writer, whose last group is empty.
func (s *opened) endWriter() {
	_ = s.w.Close(func(*logstore.Txn) error { return nil }) // fails if the file is closed
}

// Close closes the store and writes everything to the database.
func (s *opened) Close() error {
	s.endWriter()
	return s.Store.Close()
}

// die leaves a store as a killed process does.
func (s *opened) die() {
	s.endWriter()
	s.file.Abandon()
}

// A model is the expected content of a store: records by table and key.
type model [tableCount]map[string][]byte

// change makes random changes to a store, as one group, and to its model.
func (m *model) change(t *testing.T, s *opened, r *rand.Rand, next *uint64) {
	t.Helper()
	var txn *logstore.Txn
	set := func(id logstore.Table, key string, value []byte) {
		if value == nil {
			txn.Remove(id, []byte(key))
			delete(m[id], key)
		} else {
			txn.Put(id, []byte(key), value)
			m[id][key] = value
		}
	}
	value := func() []byte {
		size := r.IntN(100)
		switch r.IntN(30) {
		case 0:
			size = r.IntN(5 * maxPiece)
		case 1:
			size = maxPiece
		}
		return binary.BigEndian.AppendUint64(make([]byte, size), r.Uint64())
	}
	err := s.change(func(t *logstore.Txn) {
		txn = t
		for range r.IntN(20) + 1 {
			id := logstore.Table(r.IntN(int(tableCount)))
			keys := slices.Sorted(maps.Keys(m[id]))
			switch {
			case len(keys) > 0 && r.IntN(3) == 0:
				key := keys[r.IntN(len(keys))]
				if !testTables[id].Grouped {
					set(id, key, nil)
					break
				}
				for _, k := range keys { // deletes a whole group
					if groupOf(k) == groupOf(key) {
						set(id, k, nil)
					}
				}
			case testTables[id].Transient:
				*next++
				set(id, string(logstore.NumberKey(*next)), value())
			case id == historyTable:
				set(id, m.grown(r, next), value())
			case id == payloadsTable:
				set(id, inGroup(uint64(r.IntN(8)+1), r.IntN(3)), value())
			default:
				set(id, fmt.Sprintf("id-%d%s", r.IntN(20), strings.Repeat("\x00", r.IntN(3))), value())
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// grown returns a key at the end of a history group, or of a new group.
func (m *model) grown(r *rand.Rand, next *uint64) string {
	keys := slices.Sorted(maps.Keys(m[historyTable]))
	if len(keys) == 0 || r.IntN(4) == 0 {
		*next++
		return inGroup(*next, 0)
	}
	group, index := groupOf(keys[r.IntN(len(keys))]), 0
	for _, k := range keys {
		if groupOf(k) == group {
			index = int(binary.BigEndian.Uint32([]byte(k[8:])))
		}
	}
	return inGroup(group, index+1+r.IntN(3))
}

// check compares all ways of reading a store with its model.
func (m *model) check(t *testing.T, s *opened) {
	t.Helper()
	err := s.View(func(tables *logstore.View) error {
		for id := range tableCount {
			for key, want := range m[id] {
				got, err := tables.Get(id, []byte(key))
				if err != nil {
					return err
				}
				if string(got) != string(want) {
					t.Errorf("record %q of %s has %d bytes, want %d", key, testTables[id].Name, len(got), len(want))
				}
			}
		}
		for _, id := range []logstore.Table{historyTable, payloadsTable} {
			groups, greatest := make(map[uint64][]logstore.Record), uint64(0)
			for _, key := range slices.Sorted(maps.Keys(m[id])) {
				greatest = groupOf(key)
				groups[greatest] = append(groups[greatest], logstore.Record{Key: key, Value: m[id][key]})
			}
			for group := range greatest + 2 {
				want := groups[group]
				got, err := tables.Group(id, group)
				if err != nil {
					return err
				}
				if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("group %d of %s (-want +got):\n%s", group, testTables[id].Name, diff)
				}
				if id == payloadsTable {
					continue
				}
				last, err := tables.Last(id, group)
				if err != nil {
					return err
				}
				if len(want) == 0 && last != nil || len(want) > 0 && string(last) != want[len(want)-1].Key {
					t.Errorf("last key of group %d is %q, want the last of %v", group, last, want)
				}
			}
		}
		for id := range tableCount {
			for _, from := range []string{"", "id-1", "id-15\x00", "z"} {
				want := slices.Sorted(maps.Keys(m[id]))
				at, _ := slices.BinarySearch(want, from)
				var got []string
				err := tables.Scan(id, from, func(key string, value []byte) (bool, error) {
					got = append(got, key)
					if string(value) != string(m[id][key]) {
						t.Errorf("record %q of %s has a wrong value", key, testTables[id].Name)
					}
					return false, nil
				})
				if err != nil {
					return err
				}
				if !slices.Equal(got, want[at:]) {
					t.Errorf("%s from %q are %q, want %q", testTables[id].Name, from, got, want[at:])
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestStore_MatchesAModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testshare.Amount(6, 2)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			path := filepath.Join(t.TempDir(), "hub.db")
			s := newStore(t, path)
			s.Limits.FlushSize = 20_000
			var m model
			for id := range m {
				m[id] = make(map[string][]byte)
			}
			next := uint64(0)
			for step := range testshare.Amount(120, 60) {
				m.change(t, s, r, &next)
				switch r.IntN(25) {
				case 0:
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = newStore(t, path)
				case 1:
					s.await(t, "the flush ends", func(flushing bool, _ error) bool { return !flushing }) // else the copy of the database would not be consistent
					copied := filepath.Join(t.TempDir(), "hub.db")
					copyHub(t, path, copied)
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					path = copied
					s = newStore(t, path)
				}
				s.Limits.FlushSize = 20_000
				if step%30 == 0 {
					m.check(t, s)
				}
			}
			m.check(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if left, err := filepath.Glob(path + ".journal*"); err != nil || len(left) > 0 {
				t.Errorf("files beside a closed store: %v, %v", left, err)
			}
			s = newStore(t, path)
			m.check(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// copyHub copies the files of an open hub, as a dead process leaves them.
func copyHub(t *testing.T, from, to string) {
	t.Helper()
	for _, suffix := range []string{".journal-0", ".journal-1", ""} {
		if err := powerloss.CopyFile(from+suffix, to+suffix); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStore_APanicFailsOnlyItsOperation(t *testing.T) {
	t.Parallel()
	s := newStore(t, filepath.Join(t.TempDir(), "hub.db"))
	if err := s.change(func(*logstore.Txn) { panic("a bug") }); !errors.As(err, new(*PanicError)) {
		t.Errorf("got %v, want a *PanicError", err)
	}
	if err := s.put(instancesTable, "a", nil); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A snapshot does not contain later writes, even if they reach the database before the snapshot
// reads there.
func TestStore_ASnapshotDoesNotSeeLaterWrites(t *testing.T) {
	t.Parallel()
	s := newStore(t, filepath.Join(t.TempDir(), "hub.db"))
	defer func() { _ = s.Close() }()
	s.Limits.FlushSize = 10_000
	if err := s.put(instancesTable, "a", []byte("before")); err != nil {
		t.Fatal(err)
	}
	err := s.Snapshot(func(v *logstore.View) error {
		for n := range 30 {
			if err := errors.Join(s.put(instancesTable, "a", make([]byte, 1000)), s.put(instancesTable, fmt.Sprint("new ", n), []byte("new"))); err != nil {
				return err
			}
		}
		s.await(t, "the flush ends", func(flushing bool, _ error) bool { return !flushing })
		return v.Scan(instancesTable, "", func(key string, value []byte) (bool, error) {
			if key != "a" || string(value) != "before" {
				t.Errorf("the snapshot contains %s with %d bytes", key, len(value))
			}
			return false, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Records in memory are read without a database transaction.
func TestStore_ReadsFromMemoryWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	s := newStore(t, filepath.Join(t.TempDir(), "hub.db"))
	if err := errors.Join(s.put(instancesTable, "a", []byte("in memory")), s.file.db.Close()); err != nil {
		t.Fatal(err)
	}
	read := func(key string) (value []byte, err error) {
		err = s.View(func(v *logstore.View) error {
			value, err = v.Get(instancesTable, []byte(key))
			return err
		})
		return value, err
	}
	if value, err := read("a"); err != nil || string(value) != "in memory" {
		t.Errorf("get of a record in memory: %q, %v", value, err)
	}
	if value, err := read("b"); !errors.Is(err, logstore.ErrClosed) {
		t.Errorf("get of a record that is not in memory: %q, %v; want %v", value, err, logstore.ErrClosed)
	}
	s.die()
	if value, err := read("a"); !errors.Is(err, logstore.ErrClosed) {
		t.Errorf("get after the file was closed: %q, %v; want %v", value, err, logstore.ErrClosed)
	}
	s.Stop()
}
