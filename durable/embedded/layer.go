package embedded

import (
	"encoding/binary"
	"maps"
	"slices"
)

// A tableID names one of the tables that a hub's records are in. The numbers
// are in the journal.
type tableID byte

// The tables, and the keys of their records. Numbers in keys are big-endian, so
// that they sort.
//
//	instances   instance ID                            row
//	payloads    execution number, which payload        its text
//	history     execution number, index of an event    episode: that event and those that follow
//	messages    message number                         message
//	timers      due time, message number               message
//	activities  message number                         activity
//
// Messages, timers and activities are what is pending: few, and numbered in the
// order in which they came, so that what changes at the same time stands
// together. The same holds for history, since executions are numbered.
const (
	instancesTable tableID = iota
	payloadsTable
	historyTable
	messagesTable
	timersTable
	activitiesTable
	tableCount
)

var tableNames = [tableCount]string{"instances", "payloads", "history", "messages", "timers", "activities"}

// grouped reports whether a table's records belong together that have the same
// first number in their keys.
func (t tableID) grouped() bool { return t == payloadsTable || t == historyTable }

// passing reports whether a table's keys are never used again once their record
// is deleted, and never changed while it is there, but by Hub.Close, after which
// nothing is deleted.
func (t tableID) passing() bool {
	return t == messagesTable || t == timersTable || t == activitiesTable
}

// A layer is changes that are on top of the database, in memory.
type layer struct {
	tables [tableCount]overlay
	// last is the number of the last group of changes that is in the layer.
	last uint64
	size int // of keys and values
}

// An overlay is what a layer changes in one table: records by their keys, nil
// for those that are deleted.
type overlay struct {
	records map[string][]byte
	groups  map[uint64][]string // the keys of a grouped table, in order
}

func groupOf[K string | []byte](key K) uint64 { return binary.BigEndian.Uint64([]byte(key[:8])) }

// set puts a record, or deletes it if value is nil.
func (l *layer) set(id tableID, key string, value []byte) {
	t := &l.tables[id]
	if t.records == nil {
		t.records = make(map[string][]byte)
	}
	old, was := t.records[key]
	if value == nil && old != nil && id.passing() {
		delete(t.records, key) // nothing below knows it
		l.size -= len(key) + len(old)
		return
	}
	t.records[key] = value
	l.size += len(value) - len(old)
	if was {
		return
	}
	l.size += len(key)
	if id.grouped() {
		if t.groups == nil {
			t.groups = make(map[uint64][]string)
		}
		group := groupOf(key)
		keys := t.groups[group]
		at, _ := slices.BinarySearch(keys, key)
		t.groups[group] = slices.Insert(keys, at, key)
	}
}

// add makes the changes of a later layer in l.
func (l *layer) add(later *layer) {
	for id := range later.tables {
		for key, value := range later.tables[id].records {
			l.set(tableID(id), key, value)
		}
	}
	l.last = later.last
}

// sorted returns the keys of a table that the layer changes, in order.
func (l *layer) sorted(id tableID) []string {
	return slices.Sorted(maps.Keys(l.tables[id].records))
}
