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

func TestLayer_ReplaysAGroupAsItWasChanged(t *testing.T) {
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
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Layer{}, overlay{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
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
