package logstore

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	plain Table = iota
	grouped
	transient
)

var testTables = Tables{plain: {Name: "plain"}, grouped: {Name: "grouped", Grouped: true}, transient: {Name: "transient", Transient: true}}

func TestLayer_ReplayRestoresTheChangesOfAGroup(t *testing.T) {
	t.Parallel()
	var c Coder
	want := NewLayer(testTables, 9)
	change := func(table Table, key string, value []byte) {
		k := []byte(key)
		c.change(&table, &k, &value)
		want.Set(table, key, value)
	}
	change(plain, "", []byte{})
	change(plain, "ü", []byte("row"))
	change(grouped, "12345678rest", bytes.Repeat([]byte("x"), 300))
	change(grouped, "12345678", nil)
	change(transient, "12345678", []byte("message"))
	change(transient, "12345678", nil)
	got := NewLayer(testTables, 0)
	if err := got.Replay(9, c.Buf); err != nil {
		t.Fatal(err)
	}
	if got.Last != want.Last || got.size != want.size {
		t.Errorf("got group %d and %d bytes, want %d and %d", got.Last, got.size, want.Last, want.size)
	}
	for table := range testTables {
		if diff := cmp.Diff(changesOf(want, Table(table)), changesOf(got, Table(table))); diff != "" {
			t.Errorf("table %d (-want +got):\n%s", table, diff)
		}
	}
}

func changesOf(l *Layer, table Table) (all []Record) {
	l.Changes(table, func(key string, value []byte) bool {
		all = append(all, Record{key, value})
		return true
	})
	return all
}

func FuzzReplay(f *testing.F) {
	var c Coder
	for table := range testTables {
		id, key, value := Table(table), []byte("12345678"), []byte("value")
		c.change(&id, &key, &value)
		value = nil
		c.change(&id, &key, &value)
	}
	f.Add(c.Buf)
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = NewLayer(testTables, 0).Replay(1, b) // must not panic
	})
}
