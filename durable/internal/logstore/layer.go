package logstore

import (
	"fmt"

	"github.com/tidwall/btree"
)

// Table is the index of a table in [Tables]. The log contains it.
type Table byte

// Tables describes a store's tables, at most [MaxTables].
type Tables []TableInfo

// MaxTables is the maximum number of tables of a store.
const MaxTables = 8

// TableInfo describes a table.
type TableInfo struct {
	Name string
	// Grouped means that each key starts with an 8-byte group number. [View.Group] reads the
	// records of a group.
	Grouped bool
	// Transient means that a key is used once: its record is put, never changed, then deleted.
	// A record that is deleted before it reaches the base leaves no trace.
	Transient bool
}

// Layer is a set of changes to the base, in memory.
type Layer struct {
	// Last is the number of the last group in the layer.
	Last uint64

	tables   Tables
	overlays [MaxTables]overlay
	size     int // of keys and values, in bytes
	largest  int // size of the largest value so far, in bytes
}

// overlay maps the keys of changed records to their values, nil for deleted records.
type overlay = btree.Map[string, []byte]

// NewLayer returns an empty layer. last is the number of the group that precedes it.
func NewLayer(tables Tables, last uint64) *Layer {
	return &Layer{Last: last, tables: tables}
}

// Set puts a record. A nil value deletes the record.
func (l *Layer) Set(table Table, key string, value []byte) {
	o := &l.overlays[table]
	old, was := o.Set(key, value)
	l.largest = max(l.largest, len(value))
	if value == nil && old != nil && l.tables[table].Transient {
		o.Delete(key) // no lower layer has the record
		l.size -= len(key) + len(old)
		return
	}
	l.size += len(value) - len(old)
	if !was {
		l.size += len(key)
	}
}

// copy returns an independent layer with the same changes.
func (l *Layer) copy() *Layer {
	c := &Layer{Last: l.Last, tables: l.tables, size: l.size, largest: l.largest}
	for table := range l.overlays {
		c.overlays[table] = *l.overlays[table].Copy()
	}
	return c
}

// add applies the changes of a later layer to l.
func (l *Layer) add(later *Layer) {
	for table := range later.overlays {
		later.overlays[table].Scan(func(key string, value []byte) bool {
			l.Set(Table(table), key, value)
			return true
		})
	}
	l.Last = later.Last
}

// Size returns the size of the keys and values, in bytes.
func (l *Layer) Size() int { return l.size }

// Changes calls f with each changed record of a table, in the order of the keys, until f
// returns false. The value is nil for a deleted record.
func (l *Layer) Changes(table Table, f func(key string, value []byte) bool) {
	l.overlays[table].Scan(f)
}

// Replay applies a group of a log.
func (l *Layer) Replay(number uint64, changes []byte) error {
	c := Coder{Buf: changes, Reading: true}
	for len(c.Buf) > 0 {
		var table Table
		var key, value []byte
		c.change(&table, &key, &value)
		if c.Err == nil && (int(table) >= len(l.tables) || l.tables[table].Grouped && len(key) < 8) {
			c.Fail(fmt.Errorf("table %d has no record %q", key, table))
		}
		if c.Err != nil {
			return fmt.Errorf("read group %d of the log: %w", number, c.Err)
		}
		l.Set(table, string(key), value)
	}
	l.Last = number
	return nil
}
