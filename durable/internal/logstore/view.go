package logstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/tidwall/btree"
)

// View is a store's records at one time: the base with the changes of the layers above it.
type View struct {
	base   Reader
	tables Tables
	layers []*Layer // newest first
	room   [3]*Layer
	key    []byte // copies of the callers' keys, so that those do not escape to the heap
}

// Has reports whether the store has a table.
func (v *View) Has(table Table) bool { return int(table) < len(v.tables) }

// Damage returns a DamageError for a record.
func (v *View) Damage(table Table, key []byte, cause error) error {
	return &DamageError{v.tables[table].Name, bytes.Clone(key), cause}
}

// Get returns a record, or nil if it does not exist. The record must not be changed and is
// valid until the view ends.
func (v *View) Get(table Table, key []byte) ([]byte, error) {
	for _, l := range v.layers {
		if value, ok := l.overlays[table].Get(string(key)); ok {
			return value, nil
		}
	}
	v.key = append(v.key[:0], key...)
	return v.base.Get(table, v.key)
}

// Must returns a record that must exist. If it does not, Must returns a *[DamageError] with the
// cause [ErrMissing].
func (v *View) Must(table Table, key []byte) ([]byte, error) {
	value, err := v.Get(table, key)
	if err == nil && value == nil {
		return nil, v.Damage(table, key, ErrMissing)
	}
	return value, err
}

// Record is a key and its value.
type Record struct {
	Key   string
	Value []byte
}

// Group returns the records of a group, in the order of their keys.
func (v *View) Group(table Table, group uint64) ([]Record, error) {
	var all []Record
	prefix := string(NumberKey(group))
	err := v.base.Group(table, group, func(key []byte, read func() ([]byte, error)) error {
		value, err := read()
		all = append(all, Record{string(key), value})
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, l := range slices.Backward(v.layers) {
		l.overlays[table].Ascend(prefix, func(key string, value []byte) bool {
			if !strings.HasPrefix(key, prefix) {
				return false
			}
			all = apply(all, Record{key, value})
			return true
		})
	}
	return all, nil
}

// apply applies one change to sorted records.
func apply(all []Record, r Record) []Record {
	if n := len(all); r.Value != nil && (n == 0 || all[n-1].Key < r.Key) {
		return append(all, r) // groups usually grow at the end
	}
	at, found := slices.BinarySearchFunc(all, r.Key, func(o Record, key string) int { return strings.Compare(o.Key, key) })
	switch {
	case found && r.Value == nil:
		return slices.Delete(all, at, at+1)
	case found:
		all[at] = r
	case r.Value != nil:
		return slices.Insert(all, at, r)
	}
	return all
}

// Last returns the key of the last record of a group, or nil if the group is empty.
func (v *View) Last(table Table, group uint64) ([]byte, error) {
	prefix := string(NumberKey(group))
	for _, l := range v.layers {
		var last string
		var value []byte
		l.overlays[table].Descend(prefix+afterAll, func(k string, changed []byte) bool {
			last, value = k, changed
			return false
		})
		switch {
		case !strings.HasPrefix(last, prefix):
		case value == nil:
			return nil, nil // only whole groups are deleted
		default:
			return []byte(last), nil
		}
	}
	return v.base.Last(table, group)
}

// afterAll sorts after the rest of any key of a group.
const afterAll = "\xff\xff\xff\xff\xff\xff\xff\xff\xff"

// Scan calls f with each record of a table in the order of the keys, starting at from. It stops
// when f returns true or an error. f must not change the store. Records that cannot be read end
// the scan with a *[RangeError], unless f returned the error.
func (v *View) Scan(table Table, from string, f func(key string, value []byte) (stop bool, err error)) error {
	changes := v.changes(table, from)
	// pass calls f with the changed records for whose keys before returns true.
	stopped := false
	call := f
	var failed error // the last error of f
	f = func(key string, value []byte) (stop bool, err error) {
		stop, failed = call(key, value)
		return stop, failed
	}
	pass := func(before func(key string) bool) (err error) {
		for !stopped && err == nil && changes.ok && before(changes.key) {
			if changes.value != nil {
				stopped, err = f(changes.key, changes.value)
			}
			changes.next()
		}
		return err
	}
	err := v.base.Scan(table, []byte(from), func(k []byte, read func() ([]byte, error)) (bool, error) {
		key := string(k)
		if err := pass(func(other string) bool { return other < key }); err != nil || stopped {
			return true, err
		}
		if changes.ok && changes.key == key {
			return false, nil // pass handles it
		}
		value, err := read()
		if err == nil {
			stopped, err = f(key, value)
		}
		return stopped, err
	})
	if gap, is := errors.AsType[*RangeError](err); is && failed == nil && !stopped {
		if err := pass(func(key string) bool { return key < string(gap.From) }); err != nil || stopped {
			return err
		}
		return gap
	}
	if err != nil || stopped {
		return err
	}
	return pass(func(string) bool { return true })
}

// changes iterates over the changes that layers make in a table, in the order of the keys.
type changes struct {
	layers []btree.MapIter[string, []byte] // the layers with further changes, newest first

	ok    bool // key and value are valid
	key   string
	value []byte // nil if the record is deleted
}

// changes returns an iterator over the changes from a key.
func (v *View) changes(table Table, from string) *changes {
	c := &changes{}
	for _, l := range v.layers {
		if i := l.overlays[table].Iter(); i.Seek(from) {
			c.layers = append(c.layers, i)
		}
	}
	c.next()
	return c
}

// next advances to the next change. If several layers change a record, the newest layer counts.
func (c *changes) next() {
	if c.ok = len(c.layers) > 0; !c.ok {
		return
	}
	first := 0
	for i := range c.layers {
		if c.layers[i].Key() < c.layers[first].Key() {
			first = i
		}
	}
	c.key, c.value = c.layers[first].Key(), c.layers[first].Value()
	more := c.layers[:0]
	for _, i := range c.layers {
		if i.Key() != c.key || i.Next() {
			more = append(more, i)
		}
	}
	c.layers = more
}

// NumberKey returns a number as a big-endian key, which sorts by number.
func NumberKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
