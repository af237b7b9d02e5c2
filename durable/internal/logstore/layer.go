package logstore

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// Table is one of a store's tables, as its index in [Tables]. The log has it.
type Table byte

// Tables describes a store's tables, at most [MaxTables].
type Tables []TableInfo

// MaxTables is how many tables a store can have.
const MaxTables = 8

// TableInfo describes a table.
type TableInfo struct {
	Name string
	// Grouped tables have keys that begin with a number of 8 bytes. The records
	// with the same number are a group, which [View.Group] reads. A group grows at
	// its end and is deleted as a whole.
	Grouped bool
	// Transient tables use a key once: a record is put, never changed, and
	// deleted. One that is deleted before it gets to the base leaves no trace.
	// Changes of such records are allowed if nothing is deleted after them until
	// the store is closed.
	Transient bool
}

// Layer is changes on top of the base, in memory.
type Layer struct {
	// Last is the number of the last group in the layer.
	Last uint64

	tables   Tables
	overlays [MaxTables]overlay
	size     int // of keys and values, in bytes
}

// overlay is what a layer changes in one table: records by their keys, nil for
// those that are deleted.
type overlay struct {
	records map[string][]byte
	groups  map[uint64][]string // the keys of a grouped table, in order
}

// NewLayer returns a layer without changes.
func NewLayer(tables Tables, last uint64) *Layer {
	return &Layer{Last: last, tables: tables}
}

// Set puts a record, or deletes it if value is nil.
func (l *Layer) Set(table Table, key string, value []byte) {
	o, info := &l.overlays[table], &l.tables[table]
	if o.records == nil {
		o.records = make(map[string][]byte)
	}
	old, was := o.records[key]
	if value == nil && old != nil && info.Transient {
		delete(o.records, key) // nothing below has it
		l.size -= len(key) + len(old)
		return
	}
	o.records[key] = value
	l.size += len(value) - len(old)
	if was {
		return
	}
	l.size += len(key)
	if info.Grouped {
		if o.groups == nil {
			o.groups = make(map[uint64][]string)
		}
		group := groupOf(key)
		keys := o.groups[group]
		at, _ := slices.BinarySearch(keys, key)
		o.groups[group] = slices.Insert(keys, at, key)
	}
}

func groupOf[K string | []byte](key K) uint64 { return binary.BigEndian.Uint64([]byte(key[:8])) }

// add puts the changes of a later layer on top of l.
func (l *Layer) add(later *Layer) {
	for table := range later.overlays {
		for key, value := range later.overlays[table].records {
			l.Set(Table(table), key, value)
		}
	}
	l.Last = later.Last
}

// Keys returns the keys of a table that the layer changes, in order.
func (l *Layer) Keys(table Table) []string {
	return slices.Sorted(maps.Keys(l.overlays[table].records))
}

// Value returns a record that the layer changes, nil if it deletes it.
func (l *Layer) Value(table Table, key string) []byte { return l.overlays[table].records[key] }

// Replay adds the changes of a group that a log has.
func (l *Layer) Replay(number uint64, changes []byte) error {
	c := Coder{Buf: changes, Reading: true}
	for len(c.Buf) > 0 {
		var table Table
		var key, value []byte
		c.change(&table, &key, &value)
		if c.Err == nil && (int(table) >= len(l.tables) || l.tables[table].Grouped && len(key) < 8) {
			c.Fail(fmt.Errorf("there is no record %q in table %d", key, table))
		}
		if c.Err != nil {
			return fmt.Errorf("read group %d of the log: %w", number, c.Err)
		}
		l.Set(table, string(key), value)
	}
	l.Last = number
	return nil
}
