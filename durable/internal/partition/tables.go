package partition

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// The tables, their keys and their records. Numbers in keys are big-endian, so that keys sort
// by number.
//
//	instances   instance ID                            row
//	payloads    execution number, payload number       text of a large payload
//	history     execution number, index of an event    episode: this event and those after it
//	messages    message number                         message
//	timers      due time, message number               message
//	activities  message number                         activity
//	outbox      message number                         message for another partition
//	mail        see mail.go
//
// Messages, timers and activities are pending work. They are few, and numbered in the order of
// arrival: records that change at the same time are close together. The same is true of the
// history, because executions are numbered.
const (
	instancesTable logstore.Table = iota
	payloadsTable
	historyTable
	messagesTable
	timersTable
	activitiesTable
	outboxTable
	mailTable
)

// MailTables are the tables of a partition of a partitioned hub.
var MailTables = append(slices.Clip(Tables), logstore.TableInfo{Name: "outbox", Transient: true}, logstore.TableInfo{Name: "mail"})

// Tables are the tables of a partition that is a whole hub.
var Tables = logstore.Tables{
	instancesTable:  {Name: "instances"},
	payloadsTable:   {Name: "payloads", Grouped: true},
	historyTable:    {Name: "history", Grouped: true},
	messagesTable:   {Name: "messages", Transient: true},
	timersTable:     {Name: "timers", Transient: true},
	activitiesTable: {Name: "activities", Transient: true},
}

// tables is a view of the records at one time.
type tables struct{ *logstore.View }

func timerKey(due time.Time, n uint64) []byte {
	c := newEncoder(make([]byte, 0, 16))
	c.Time(&due)
	return binary.BigEndian.AppendUint64(c.Buf, n)
}

func eventKey(execution uint64, index int) []byte {
	k := binary.BigEndian.AppendUint64(make([]byte, 0, 12), execution)
	return binary.BigEndian.AppendUint32(k, uint32(index))
}

func payloadKey(execution uint64, which byte) []byte {
	return append(binary.BigEndian.AppendUint64(make([]byte, 0, 9), execution), which)
}

// row returns an instance's row, or nil if the instance does not exist.
func (t tables) row(id string) (*row, error) {
	b, err := t.Get(instancesTable, []byte(id))
	if b == nil || err != nil {
		return nil, err
	}
	return t.decodeRow(id, b)
}

func (t tables) decodeRow(id string, record []byte) (*row, error) {
	r, err := decodeRow(id, record)
	if err != nil {
		return nil, t.Damage(instancesTable, []byte(id), err)
	}
	return r, nil
}

// payload returns the text of a payload of a row; it reads the payload if it is unread.
func (t tables) payload(r *row, which byte, text *string) (*string, error) {
	if text != unread {
		return text, nil
	}
	b, err := t.Must(payloadsTable, payloadKey(r.number, which))
	if err != nil {
		return nil, err
	}
	return new(string(b)), nil
}

// state returns the state of an instance for clients.
func (t tables) state(r *row, fetch provider.Fetch) (_ *provider.InstanceState, err error) {
	s := *r
	if s.LastUpdatedAt, err = t.updated(r); err != nil {
		return nil, err
	}
	wanted := [...]bool{inputPayload: fetch.Input, outputPayload: fetch.Output, customPayload: true}
	for which, text := range s.payloads() {
		if !wanted[which] {
			*text = nil
		} else if *text, err = t.payload(r, byte(which), *text); err != nil {
			return nil, err
		}
	}
	return &s.InstanceState, nil
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
			return nil, t.Damage(historyTable, []byte(e.Key), errors.New("the preceding events are missing"))
		}
		if past, err = decodeEpisode(past, e.Value); err != nil {
			return nil, t.Damage(historyTable, []byte(e.Key), err)
		}
	}
	return past, nil
}

// hasEventsFrom reports whether an execution's history has an event at the given index or
// later.
func (t tables) hasEventsFrom(execution uint64, index int) (bool, error) {
	last, err := t.Last(historyTable, execution)
	return last != nil && bytes.Compare(last, eventKey(execution, index)) >= 0, err
}

// updated returns the time of an instance's last update. The row of an ended instance has it, because
// the last checkpoint changed the status.
func (t tables) updated(r *row) (time.Time, error) {
	if r.Status.IsTerminal() {
		return r.LastUpdatedAt, nil
	}
	key, err := t.Last(historyTable, r.number)
	if key == nil || err != nil {
		return r.LastUpdatedAt, err
	}
	value, err := t.Must(historyTable, key)
	if err != nil {
		return time.Time{}, err
	}
	at, err := decodeEpisodeTime(value)
	if err != nil {
		return time.Time{}, t.Damage(historyTable, key, fmt.Errorf("decode history: %w", err))
	}
	if r.LastUpdatedAt.After(at) { // a rewind appends no event
		at = r.LastUpdatedAt
	}
	return at, nil
}

// maxScanned is the maximum number of instances read for one page. It bounds the time of a
// query with few matches.
const maxScanned = 5_000

// page returns the instances that q selects, starting with the ID from. A range of records that
// cannot be read becomes one unreadable instance with the first ID of the range.
func (t tables) page(q provider.Query, from string, size int) (*provider.Page, error) {
	page, room, scanned := &provider.Page{}, q.PageBudget(), 0
	add := func(id string, value []byte) (bool, error) {
		if !strings.HasPrefix(id, q.IDPrefix) {
			return true, nil
		}
		if len(page.Instances) == size || room.Remaining() == 0 || scanned == maxScanned {
			page.Continuation = provider.EncodeContinuation(id)
			return true, nil
		}
		scanned++
		s, err := t.match(id, value, q)
		if errors.As(err, new(*logstore.DamageError)) || errors.As(err, new(*logstore.RangeError)) {
			page.Unreadable = append(page.Unreadable, provider.UnreadableInstance{InstanceID: id, Cause: err})
			return false, nil
		}
		if s != nil {
			room.Subtract(s)
			page.Instances = append(page.Instances, s)
		}
		return err != nil, err
	}
	for {
		err := t.Scan(instancesTable, from, add)
		gap, is := errors.AsType[*logstore.RangeError](err)
		if !is {
			return page, err
		}
		first := string(gap.From)
		if first > q.IDPrefix && !strings.HasPrefix(first, q.IDPrefix) {
			return page, nil
		}
		page.Unreadable = append(page.Unreadable, provider.UnreadableInstance{InstanceID: first, Cause: gap})
		if gap.To == nil {
			return page, nil
		}
		from = string(gap.To)
	}
}

// match decodes an instance's record and returns its state; nil if q does not select it.
func (t tables) match(id string, record []byte, q provider.Query) (*provider.InstanceState, error) {
	r, err := t.decodeRow(id, record)
	if err != nil || !q.Matches(&r.InstanceState) {
		return nil, err
	}
	return t.state(r, q.Fetch)
}

func (t tables) exportInstances(ctx context.Context, w provider.HubWriter) error {
	return t.Scan(instancesTable, "", func(id string, value []byte) (bool, error) {
		if err := ctx.Err(); err != nil {
			return true, err
		}
		r, err := t.decodeRow(id, value)
		if err != nil {
			return true, err
		}
		state, err := t.state(r, provider.Fetch{Input: true, Output: true})
		if err != nil {
			return true, err
		}
		past, err := t.events(r.number)
		if err != nil {
			return true, err
		}
		return false, w.Instance(ctx, state, past)
	})
}

func (t tables) exportActivities(ctx context.Context, w provider.HubWriter) error {
	return t.each(activitiesTable, func(_, value []byte) error {
		_, message, err := decodeActivityHead(value)
		if err != nil {
			return err
		}
		task, err := decodeMessage(message)
		if err != nil {
			return err
		}
		return w.Activity(ctx, task)
	})
}

// exportMessages exports the messages that can be delivered, then those for other partitions,
// then the timers.
func (t tables) exportMessages(ctx context.Context, w provider.HubWriter) error {
	for _, table := range t.messageTables() {
		err := t.each(table, func(_, value []byte) error {
			m, err := decodeMessage(value)
			if err != nil {
				return err
			}
			return w.Message(ctx, m)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// each calls f with each record of a table, in the order of the keys.
func (t tables) each(table logstore.Table, f func(key, value []byte) error) error {
	return t.Scan(table, "", func(key string, value []byte) (bool, error) {
		err := f([]byte(key), value)
		return err != nil, err
	})
}

// totals counts instances, events, activities and messages.
func (t tables) totals(ctx context.Context) (totals provider.Totals, err error) {
	err = t.Scan(instancesTable, "", func(id string, value []byte) (bool, error) {
		r, err := t.decodeRow(id, value)
		if err != nil {
			return true, err
		}
		past, err := t.events(r.number)
		totals.Instances, totals.Events = totals.Instances+1, totals.Events+len(past)
		return ctx.Err() != nil, err
	})
	if err != nil {
		return totals, err
	}
	count := func(table logstore.Table, n *int) {
		err = errors.Join(err, t.each(table, func(_, _ []byte) error {
			*n++
			return nil
		}))
	}
	count(activitiesTable, &totals.Activities)
	for _, table := range t.messageTables() {
		count(table, &totals.Messages)
	}
	return totals, errors.Join(err, ctx.Err())
}

// messageTables returns the existing tables of messages: deliverable messages, then messages for
// other partitions, then timers.
func (t tables) messageTables() []logstore.Table {
	all := []logstore.Table{messagesTable, outboxTable, timersTable}
	return slices.DeleteFunc(all, func(table logstore.Table) bool { return !t.Has(table) })
}

// isEmpty reports whether all tables except mail are empty.
func (t tables) isEmpty() (bool, error) {
	empty := true
	for table := range MailTables {
		if table == int(mailTable) || !t.Has(logstore.Table(table)) {
			continue
		}
		err := t.Scan(logstore.Table(table), "", func(string, []byte) (bool, error) {
			empty = false
			return true, nil
		})
		if err != nil {
			return false, err
		}
	}
	return empty, nil
}

// eachWithKeyLength calls f with each record of a table. A key of another length is reported as
// damage. So is an error of f.
func (t tables) eachWithKeyLength(id logstore.Table, keyLength int, f func(key, value []byte) error) error {
	return t.Scan(id, "", func(k string, value []byte) (bool, error) {
		key, err := []byte(k), error(nil)
		if len(key) != keyLength {
			err = fmt.Errorf("key has %d bytes; want %d", len(key), keyLength)
		} else {
			err = f(key, value)
		}
		if err != nil {
			err = t.Damage(id, key, err)
		}
		return err != nil, err
	})
}
