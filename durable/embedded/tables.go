package embedded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

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
// Messages, timers and activities are pending work: few, and numbered in the
// order in which they came, so that records that change at the same time are
// close together. The same holds for history, since executions are numbered.
const (
	instancesTable logstore.Table = iota
	payloadsTable
	historyTable
	messagesTable
	timersTable
	activitiesTable
)

var hubTables = logstore.Tables{
	instancesTable:  {Name: "instances"},
	payloadsTable:   {Name: "payloads", Grouped: true},
	historyTable:    {Name: "history", Grouped: true},
	messagesTable:   {Name: "messages", Transient: true},
	timersTable:     {Name: "timers", Transient: true},
	activitiesTable: {Name: "activities", Transient: true},
}

// tables are the hub's records at one time.
type tables struct{ *logstore.View }

func timerKey(due time.Time, n uint64) []byte {
	c := writing(make([]byte, 0, 16))
	c.Time(&due)
	return binary.BigEndian.AppendUint64(c.Buf, n)
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
func (t tables) row(id string) (*row, error) {
	b, err := t.Get(instancesTable, []byte(id))
	if b == nil || err != nil {
		return nil, err
	}
	r, err := decodeRow(b)
	if err != nil {
		return nil, t.Damage(instancesTable, []byte(id), err)
	}
	return r, nil
}

// payload returns the text of one of a row's payloads.
func (t tables) payload(r *row, which byte, p payload) (*string, error) {
	if !p.apart {
		return p.text, nil
	}
	b, err := t.Must(payloadsTable, payloadKey(r.number, which))
	if err != nil {
		return nil, err
	}
	return new(string(b)), nil
}

// events returns the history of an execution.
func (t tables) events(execution uint64) ([]history.Event, error) {
	episodes, err := t.Group(historyTable, execution)
	if err != nil {
		return nil, err
	}
	var past []history.Event
	for _, e := range episodes {
		if e.Key != string(eventKey(execution, len(past))) {
			return nil, t.Damage(historyTable, []byte(e.Key), errors.New("events before it are missing"))
		}
		if past, err = decodeEpisode(past, e.Value); err != nil {
			return nil, t.Damage(historyTable, []byte(e.Key), err)
		}
	}
	return past, nil
}

// hasEventsFrom reports whether an execution's history has an event with the
// given index or a later one.
func (t tables) hasEventsFrom(execution uint64, index int) (bool, error) {
	last, err := t.Last(historyTable, execution)
	return last != nil && bytes.Compare(last, eventKey(execution, index)) >= 0, err
}

// updated returns when an instance last changed.
func (t tables) updated(r *row) (time.Time, error) {
	key, err := t.Last(historyTable, r.number)
	if key == nil || err != nil {
		return r.updated, err
	}
	value, err := t.Must(historyTable, key)
	if err != nil {
		return time.Time{}, err
	}
	at, err := decodeEpisodeTime(value)
	if err != nil {
		return time.Time{}, t.Damage(historyTable, key, fmt.Errorf("decode history: %w", err))
	}
	if r.updated.After(at) { // rewinding appends nothing
		at = r.updated
	}
	return at, nil
}
