package embedded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	bolt "go.etcd.io/bbolt"
)

// tables are a hub's records as a transaction sees them: those of the database
// with the changes of layers on top.
type tables struct {
	tx      *bolt.Tx
	buckets [tableCount]bucket // opened when they are needed
	layers  []*layer           // the newest first
}

// base returns a table's bucket of the database.
func (t *tables) base(id tableID) (bucket, error) {
	if t.buckets[id].Bucket == nil {
		b := t.tx.Bucket([]byte(tableNames[id]))
		if b == nil {
			return bucket{}, &damageError{tableNames[id], nil, errMissing}
		}
		t.buckets[id] = bucket{b, tableNames[id]}
	}
	return t.buckets[id], nil
}

// get returns a record, nil if there is none. It must not be changed, and is
// valid until the transaction ends.
func (t *tables) get(id tableID, key []byte) ([]byte, error) {
	for _, l := range t.layers {
		if value, ok := l.tables[id].records[string(key)]; ok {
			return value, nil
		}
	}
	b, err := t.base(id)
	if err != nil {
		return nil, err
	}
	return b.get(key)
}

// must returns a record that has to be there.
func (t *tables) must(id tableID, key []byte) ([]byte, error) {
	value, err := t.get(id, key)
	if err == nil && value == nil {
		return nil, &damageError{tableNames[id], key, errMissing}
	}
	return value, err
}

// A record is a key and its value.
type record struct {
	key   string
	value []byte
}

// group returns the records of a grouped table that have a number, in the order
// of their keys.
func (t *tables) group(id tableID, number uint64) ([]record, error) {
	b, err := t.base(id)
	if err != nil {
		return nil, err
	}
	var all []record
	prefix := numberKey(number)
	err = b.scan(prefix, func(key []byte, read func() ([]byte, error)) (bool, error) {
		if !bytes.HasPrefix(key, prefix) {
			return true, nil
		}
		value, err := read()
		all = append(all, record{string(key), value})
		return false, err
	})
	if err != nil {
		return nil, err
	}
	for _, l := range slices.Backward(t.layers) {
		for _, key := range l.tables[id].groups[number] {
			all = apply(all, record{key, l.tables[id].records[key]})
		}
	}
	return all, nil
}

// apply makes one change in records that are in the order of their keys.
func apply(all []record, r record) []record {
	if n := len(all); r.value != nil && (n == 0 || all[n-1].key < r.key) {
		return append(all, r) // as histories grow
	}
	at, found := slices.BinarySearchFunc(all, r.key, func(o record, key string) int { return strings.Compare(o.key, key) })
	switch {
	case found && r.value == nil:
		return slices.Delete(all, at, at+1)
	case found:
		all[at] = r
	case r.value != nil:
		return slices.Insert(all, at, r)
	}
	return all
}

// last returns the key of the last record of a group, nil if there is none.
// Groups are deleted as a whole, and grow at their end.
func (t *tables) last(id tableID, number uint64) ([]byte, error) {
	for _, l := range t.layers {
		if keys := l.tables[id].groups[number]; len(keys) > 0 {
			key := keys[len(keys)-1]
			if l.tables[id].records[key] == nil {
				return nil, nil
			}
			return []byte(key), nil
		}
	}
	b, err := t.base(id)
	if err != nil {
		return nil, err
	}
	return b.last(numberKey(number)), nil
}

// scanInstances calls f with each instance's record, in the order of their IDs
// and beginning with from, until f says stop.
func (t *tables) scanInstances(from string, f func(id string, value []byte) (stop bool, err error)) error {
	return t.scan(instancesTable, from, f)
}

// scan calls f with each record of a table, in the order of their keys and
// beginning with from, until f says stop.
func (t *tables) scan(table tableID, from string, f func(key string, value []byte) (stop bool, err error)) error {
	var changed []string
	for _, l := range t.layers {
		changed = append(changed, l.sorted(table)...)
	}
	slices.Sort(changed)
	changed = slices.Compact(changed)
	at, _ := slices.BinarySearch(changed, from)
	changed = changed[at:]

	b, err := t.base(table)
	if err != nil {
		return err
	}
	// pass hands over the changed records that come before the given one.
	stopped := false
	pass := func(before func(key string) bool) error {
		for len(changed) > 0 && before(changed[0]) && !stopped {
			id := changed[0]
			changed = changed[1:]
			value, err := t.get(table, []byte(id))
			if err != nil {
				return err
			}
			if value == nil {
				continue
			}
			if stopped, err = f(id, value); err != nil {
				return err
			}
		}
		return nil
	}
	err = b.scan([]byte(from), func(key []byte, read func() ([]byte, error)) (bool, error) {
		id := string(key)
		if err := pass(func(other string) bool { return other < id }); err != nil || stopped {
			return true, err
		}
		if len(changed) > 0 && changed[0] == id {
			return false, nil // comes with the changed ones
		}
		value, err := read()
		if err == nil {
			stopped, err = f(id, value)
		}
		return stopped, err
	})
	if err != nil || stopped {
		return err
	}
	return pass(func(string) bool { return true })
}

func numberKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func timerKey(due time.Time, n uint64) []byte {
	c := writing(make([]byte, 0, 16))
	c.time(&due)
	return binary.BigEndian.AppendUint64(c.b, n)
}

func eventKey(execution uint64, index int) []byte {
	k := binary.BigEndian.AppendUint64(make([]byte, 0, 12), execution)
	return binary.BigEndian.AppendUint32(k, uint32(index))
}

// The payloads of an instance, as numbers in keys.
const (
	inputPayload = iota
	outputPayload
	customPayload
)

func payloadKey(execution uint64, which byte) []byte {
	return append(binary.BigEndian.AppendUint64(make([]byte, 0, 9), execution), which)
}

// row returns an instance's row, nil if there is none.
func (t *tables) row(id string) (*row, error) {
	b, err := t.get(instancesTable, []byte(id))
	if b == nil || err != nil {
		return nil, err
	}
	r, err := decodeRow(b)
	if err != nil {
		return nil, &damageError{tableNames[instancesTable], []byte(id), err}
	}
	return r, nil
}

// payload returns the text of one of a row's payloads.
func (t *tables) payload(r *row, which byte, p payload) (*string, error) {
	if !p.apart {
		return p.text, nil
	}
	b, err := t.must(payloadsTable, payloadKey(r.number, which))
	if err != nil {
		return nil, err
	}
	return new(string(b)), nil
}

// events returns the history of an execution.
func (t *tables) events(execution uint64) ([]history.Event, error) {
	episodes, err := t.group(historyTable, execution)
	if err != nil {
		return nil, err
	}
	var past []history.Event
	for _, e := range episodes {
		if e.key != string(eventKey(execution, len(past))) {
			return nil, &damageError{tableNames[historyTable], []byte(e.key), errors.New("events before it are missing")}
		}
		if past, err = decodeEpisode(past, e.value); err != nil {
			return nil, &damageError{tableNames[historyTable], []byte(e.key), err}
		}
	}
	return past, nil
}

// hasEventsFrom reports whether an execution's history has an event with the
// given index or a later one.
func (t *tables) hasEventsFrom(execution uint64, index int) (bool, error) {
	last, err := t.last(historyTable, execution)
	return last != nil && bytes.Compare(last, eventKey(execution, index)) >= 0, err
}

// updated returns when an instance last changed.
func (t *tables) updated(r *row) (time.Time, error) {
	key, err := t.last(historyTable, r.number)
	if key == nil || err != nil {
		return r.updated, err
	}
	value, err := t.must(historyTable, key)
	if err != nil {
		return time.Time{}, err
	}
	at, err := decodeEpisodeTime(value)
	if err != nil {
		return time.Time{}, &damageError{tableNames[historyTable], bytes.Clone(key), fmt.Errorf("decode history: %w", err)}
	}
	if r.updated.After(at) { // rewinding appends nothing
		at = r.updated
	}
	return at, nil
}
