package logstore

import (
	"fmt"

	"github.com/tidwall/btree"
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
	// with the same number are a group, which [View.Group] reads.
	Grouped bool
	// Transient tables use a key once: a record is put, never changed, and
	// deleted. One that is deleted before it gets to the base leaves no trace.
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
type overlay = btree.Map[string, []byte]

// NewLayer returns a layer without changes.
func NewLayer(tables Tables, last uint64) *Layer {
	return &Layer{Last: last, tables: tables}
}

// Set puts a record, or deletes it if value is nil.
func (l *Layer) Set(table Table, key string, value []byte) {
	o := &l.overlays[table]
	old, was := o.Set(key, value)
	if value == nil && old != nil && l.tables[table].Transient {
		o.Delete(key) // nothing below has it
		l.size -= len(key) + len(old)
		return
	}
	l.size += len(value) - len(old)
	if !was {
		l.size += len(key)
	}
}

// copy returns a layer with the same changes. What is set in one of the two is not
// in the other.
func (l *Layer) copy() *Layer {
	c := &Layer{Last: l.Last, tables: l.tables, size: l.size}
	for table := range l.overlays {
		c.overlays[table] = *l.overlays[table].Copy()
	}
	return c
}

// add puts the changes of a later layer on top of l.
func (l *Layer) add(later *Layer) {
	for table := range later.overlays {
		later.overlays[table].Scan(func(key string, value []byte) bool {
			l.Set(Table(table), key, value)
			return true
		})
	}
	l.Last = later.Last
}

// Size returns how many bytes of keys and values the layer has.
func (l *Layer) Size() int { return l.size }

// Changes calls f with the records of a table that the layer changes, in the order
// of their keys, and nil for those that it deletes, until f returns false.
func (l *Layer) Changes(table Table, f func(key string, value []byte) bool) {
	l.overlays[table].Scan(f)
}

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
