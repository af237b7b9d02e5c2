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

func TestLayer_KnowsTheSizeOfItsLargestValue(t *testing.T) {
	t.Parallel()
	l, later := NewLayer(testTables, 0), NewLayer(testTables, 0)
	l.Set(plain, "a", make([]byte, 20))
	l.Set(plain, "a", make([]byte, 10))
	l.Set(transient, "message", make([]byte, 30))
	l.Set(transient, "message", nil)
	later.Set(plain, "b", make([]byte, 25))
	later.add(l)
	if got := l.copy().largest; got != 30 || later.largest != 25 {
		t.Errorf("got %d and %d, want 30 and 25", got, later.largest)
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
