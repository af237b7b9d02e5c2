package embedded

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/disk/powerloss"
)

var quiet = Config{Logger: slog.New(slog.DiscardHandler)}.WithDefaults()

func newStore(t *testing.T, path string) *store {
	t.Helper()
	s, _, err := openStore(path, quiet)
	if err != nil {
		t.Fatal(err)
	}
	s.pause = 10 * time.Millisecond
	s.startFlusher()
	return s
}

// A model is what a store should hold: records by table and key.
type model [tableCount]map[string][]byte

// change makes random changes in a store, as one group, and in its model.
func (m *model) change(t *testing.T, s *store, r *rand.Rand, next *uint64) {
	t.Helper()
	staged, journal := &layer{}, writing(nil)
	set := func(id tableID, key string, value []byte) {
		k := []byte(key)
		journal.change(&id, &k, &value)
		staged.set(id, key, value)
		if value == nil {
			delete(m[id], key)
		} else {
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
	for range r.IntN(20) + 1 {
		id := tableID(r.IntN(int(tableCount)))
		keys := slices.Sorted(maps.Keys(m[id]))
		switch {
		case len(keys) > 0 && r.IntN(3) == 0:
			key := keys[r.IntN(len(keys))]
			if !id.grouped() {
				set(id, key, nil)
				break
			}
			for _, k := range keys { // groups go as a whole
				if groupOf(k) == groupOf(key) {
					set(id, k, nil)
				}
			}
		case id.passing():
			*next++
			set(id, string(numberKey(*next)), value())
		case id == historyTable:
			set(id, m.grown(r, next), value())
		case id == payloadsTable:
			set(id, string(payloadKey(uint64(r.IntN(8)+1), byte(r.IntN(3)))), value())
		default:
			set(id, fmt.Sprintf("id-%d%s", r.IntN(20), strings.Repeat("\x00", r.IntN(3))), value())
		}
	}
	if err := s.commit(staged, journal.b); err != nil {
		t.Fatal(err)
	}
}

// grown returns a key at the end of a group of the history, or of a new group.
func (m *model) grown(r *rand.Rand, next *uint64) string {
	keys := slices.Sorted(maps.Keys(m[historyTable]))
	if len(keys) == 0 || r.IntN(4) == 0 {
		*next++
		return string(eventKey(*next, 0))
	}
	group, index := groupOf(keys[r.IntN(len(keys))]), 0
	for _, k := range keys {
		if groupOf(k) == group {
			index = int(binary.BigEndian.Uint32([]byte(k[8:])))
		}
	}
	return string(eventKey(group, index+1+r.IntN(3)))
}

// check compares all ways of reading a store with its model.
func (m *model) check(t *testing.T, s *store) {
	t.Helper()
	err := s.view(nil, func(tables *tables) error {
		for id := range tableCount {
			for key, want := range m[id] {
				got, err := tables.get(id, []byte(key))
				if err != nil {
					return err
				}
				if string(got) != string(want) {
					t.Errorf("record %q of %s has %d bytes, want %d", key, tableNames[id], len(got), len(want))
				}
			}
		}
		for _, id := range []tableID{historyTable, payloadsTable} {
			groups, greatest := make(map[uint64][]record), uint64(0)
			for _, key := range slices.Sorted(maps.Keys(m[id])) {
				greatest = groupOf(key)
				groups[greatest] = append(groups[greatest], record{key, m[id][key]})
			}
			for group := range greatest + 2 {
				want := groups[group]
				got, err := tables.group(id, group)
				if err != nil {
					return err
				}
				if diff := cmp.Diff(want, got, cmp.AllowUnexported(record{}), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("group %d of %s (-want +got):\n%s", group, tableNames[id], diff)
				}
				if id == payloadsTable {
					continue
				}
				last, err := tables.last(id, group)
				if err != nil {
					return err
				}
				if len(want) == 0 && last != nil || len(want) > 0 && string(last) != want[len(want)-1].key {
					t.Errorf("last of group %d is %q, want that of %v", group, last, want)
				}
			}
		}
		for id := range tableCount {
			for _, from := range []string{"", "id-1", "id-15\x00", "z"} {
				want := slices.Sorted(maps.Keys(m[id]))
				at, _ := slices.BinarySearch(want, from)
				var got []string
				err := tables.scan(id, from, func(key string, value []byte) (bool, error) {
					got = append(got, key)
					if string(value) != string(m[id][key]) {
						t.Errorf("record %q of %s is another", key, tableNames[id])
					}
					return false, nil
				})
				if err != nil {
					return err
				}
				if !slices.Equal(got, want[at:]) {
					t.Errorf("%s from %q are %q, want %q", tableNames[id], from, got, want[at:])
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// settle waits until no layer is on its way into the database.
func (s *store) settle() {
	for {
		s.mu.RLock()
		busy := s.flushing != nil
		s.mu.RUnlock()
		if !busy {
			return
		}
		<-s.flushed
	}
}

func TestStore_HoldsWhatAModelHolds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			path := filepath.Join(t.TempDir(), "hub.db")
			s := newStore(t, path)
			s.flushAt = 20_000
			var m model
			for id := range m {
				m[id] = make(map[string][]byte)
			}
			next := uint64(0)
			for step := range 120 {
				m.change(t, s, r, &next)
				switch r.IntN(25) {
				case 0:
					if err := s.close(); err != nil {
						t.Fatal(err)
					}
					s = newStore(t, path)
				case 1:
					s.settle() // or the copy of the database would not be of one time
					copied := filepath.Join(t.TempDir(), "hub.db")
					copyHub(t, path, copied)
					if err := s.close(); err != nil {
						t.Fatal(err)
					}
					path = copied
					s = newStore(t, path)
				}
				s.flushAt = 20_000
				if step%30 == 0 {
					m.check(t, s)
				}
			}
			m.check(t, s)
			if err := s.close(); err != nil {
				t.Fatal(err)
			}
			if left, err := filepath.Glob(path + ".journal*"); err != nil || len(left) > 0 {
				t.Errorf("a closed store leaves %v, %v", left, err)
			}
			s = newStore(t, path)
			m.check(t, s)
			if err := s.close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// copyHub copies the files of an open hub, as a process that dies leaves them.
func copyHub(t *testing.T, from, to string) {
	t.Helper()
	for _, suffix := range []string{".journal-0", ".journal-1", ""} {
		if err := powerloss.CopyFile(from+suffix, to+suffix); err != nil {
			t.Fatal(err)
		}
	}
}
