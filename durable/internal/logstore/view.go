package logstore

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
)

// View is a store's records at one time: those of the base with the changes of
// layers on top.
type View struct {
	base   Reader
	tables Tables
	layers []*Layer // the newest first
	room   [3]*Layer
	key    []byte // of the base, so that callers' keys do not escape to the heap
}

// Damage returns the error of a record that is not what was written.
func (v *View) Damage(table Table, key []byte, cause error) error {
	return &DamageError{v.tables[table].Name, bytes.Clone(key), cause}
}

// Get returns a record, nil if there is none. It must not be changed, and is
// valid until the view ends.
func (v *View) Get(table Table, key []byte) ([]byte, error) {
	for _, l := range v.layers {
		if value, ok := l.overlays[table].records[string(key)]; ok {
			return value, nil
		}
	}
	v.key = append(v.key[:0], key...)
	return v.base.Get(table, v.key)
}

// Must returns a record that has to be there.
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
	prefix := NumberKey(group)
	err := v.base.Scan(table, prefix, func(key []byte, read func() ([]byte, error)) (bool, error) {
		if !bytes.HasPrefix(key, prefix) {
			return true, nil
		}
		value, err := read()
		all = append(all, Record{string(key), value})
		return false, err
	})
	if err != nil {
		return nil, err
	}
	for _, l := range slices.Backward(v.layers) {
		for _, key := range l.overlays[table].groups[group] {
			all = apply(all, Record{key, l.overlays[table].records[key]})
		}
	}
	return all, nil
}

// apply makes one change in records that are in the order of their keys.
func apply(all []Record, r Record) []Record {
	if n := len(all); r.Value != nil && (n == 0 || all[n-1].Key < r.Key) {
		return append(all, r) // as groups grow
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

// Last returns the key of the last record of a group, nil if there is none.
func (v *View) Last(table Table, group uint64) ([]byte, error) {
	for _, l := range v.layers {
		if keys := l.overlays[table].groups[group]; len(keys) > 0 {
			key := keys[len(keys)-1]
			if l.overlays[table].records[key] == nil {
				return nil, nil
			}
			return []byte(key), nil
		}
	}
	return v.base.Last(table, group)
}

// Scan calls f with each record of a table, in the order of the keys and
// beginning with from, until f returns true or an error.
func (v *View) Scan(table Table, from string, f func(key string, value []byte) (stop bool, err error)) error {
	changed := v.changed(table, from)
	// pass calls f with the changed records whose keys come before the given one.
	stopped := false
	pass := func(before func(key string) bool) error {
		for len(changed) > 0 && before(changed[0]) && !stopped {
			key := changed[0]
			changed = changed[1:]
			value, err := v.Get(table, []byte(key))
			if err != nil {
				return err
			}
			if value == nil {
				continue
			}
			if stopped, err = f(key, value); err != nil {
				return err
			}
		}
		return nil
	}
	err := v.base.Scan(table, []byte(from), func(k []byte, read func() ([]byte, error)) (bool, error) {
		key := string(k)
		if err := pass(func(other string) bool { return other < key }); err != nil || stopped {
			return true, err
		}
		if len(changed) > 0 && changed[0] == key {
			return false, nil // pass comes to it
		}
		value, err := read()
		if err == nil {
			stopped, err = f(key, value)
		}
		return stopped, err
	})
	if err != nil || stopped {
		return err
	}
	return pass(func(string) bool { return true })
}

// changed returns the keys that layers change, in order and beginning with from.
func (v *View) changed(table Table, from string) []string {
	var keys []string
	for _, l := range v.layers {
		keys = append(keys, l.Keys(table)...)
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	at, _ := slices.BinarySearch(keys, from)
	return keys[at:]
}

// NumberKey returns a number as a key, big-endian so that numbers sort.
func NumberKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
