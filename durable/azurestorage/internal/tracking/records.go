// Package tracking keeps tracking records of orchestrations, as the Durable Task Framework
// did on Service Bus: every event of every execution, in a table to which rows are
// only added. The events of a checkpoint go to the tracking queue, as rows, and the owner
// of the first partition moves them into the table.
//
// Nothing is lost when a worker dies, and nothing is there twice:
//
//  1. A checkpoint's rows are sent after its history is written and before the
//     messages that it took are deleted. If the worker dies in between, these
//     come again as duplicates, and the history is sent again.
//  2. The sentinel of a history says how much of it was sent for certain before
//     the checkpoint that wrote it. What follows that is sent before anything
//     takes its place.
//  3. What the history does not show, because the checkpoint replaced it by that
//     of the next execution, is in the sentinel, too, until it was sent.
//  4. A row's key follows from the history: when an execution began, its ID and a
//     number that counts its rows. Rows that are there already stay as they are.
package tracking

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A position is a place in the tracking records of an execution.
type position struct {
	events int // of the history that are recorded
	rows   int // that they have among the records; the next one's sequence number
	began  time.Time
	status history.RuntimeStatus
}

// add appends to rows those that an event has.
func (p *position) add(rows []wire.Row, instance history.OrchestrationInstance, ev history.Event) []wire.Row {
	if p.events == 0 {
		p.began, p.status = ev.Head().Timestamp, history.Running
	}
	p.events++
	rows = append(rows, p.row(instance, ev))
	if status, changes := history.StatusAfter(ev); changes {
		p.status = status
	}
	switch ev := ev.(type) {
	case *history.ExecutionRewound:
		p.status = history.Running
	case *history.OrchestratorCompleted:
		// The framework sent the state along with each episode
		// (DurableTask.ServiceBus/ServiceBusOrchestrationService.cs,
		// CreateTrackingMessagesAsync).
		state := &history.HistoryState{Header: history.NewHeader(ev.Timestamp), State: new(`{"OrchestrationStatus":"` + p.status.String() + `"}`)}
		rows = append(rows, p.row(instance, state))
	}
	return rows
}

// row returns the next row.
func (p *position) row(instance history.OrchestrationInstance, ev history.Event) wire.Row {
	e := rowOf(instance, p.began, p.rows, ev)
	p.rows++
	return e
}

// rowOf returns the tracking record of an event: that of the history,
// without what is too large, under a key by which the rows of an instance are in
// the order in which they came to be.
func rowOf(instance history.OrchestrationInstance, began time.Time, number int, ev history.Event) wire.Row {
	e := wire.EncodeHistoryRow(ev, instance.InstanceID, number, instance.ExecutionID)
	e.RowKey = fmt.Sprintf("%s_%s_%016X", began.UTC().Format(keyTime), wire.EscapeKey(instance.ExecutionID), number)
	var short []string
	for i := range e.Properties {
		p := &e.Properties[i]
		if p.Edm != wire.EDMString || wire.JSONLength(p.Text) <= maxColumn {
			continue
		}
		short = append(short, p.Name)
		p.Text = shortened(p.Name, p.Text, ev)
	}
	e.SetInt("SequenceNumber", number)
	if short != nil {
		e.SetString("Shortened", strings.Join(short, ","))
	}
	return e
}

// keyTime is the format of an execution's begin in keys.
const keyTime = "20060102T150405.0000000Z"

// maxColumn is how many bytes a column of the tracking records may have as JSON. A
// row has at most nine that can be long, so that each fits into a message.
const maxColumn = 4096

// shortened returns what is recorded of a column that is too large.
func shortened(name, text string, ev history.Event) string {
	switch {
	case slices.Contains(wire.JSONColumns, name):
		return wire.JSONNull
	case name == "FailureDetails":
		if f := failureOf(ev); f != nil {
			return wire.FailureColumn(&history.FailureDetails{ErrorType: wire.CutJSON(f.ErrorType, 512), ErrorMessage: wire.CutJSON(f.ErrorMessage, maxColumn/2)})
		}
		return wire.JSONNull
	}
	return wire.CutJSON(text, maxColumn)
}

func failureOf(ev history.Event) *history.FailureDetails {
	switch ev := ev.(type) {
	case *history.ExecutionCompleted:
		return ev.Failure
	case *history.ContinueAsNew:
		return ev.Failure
	case *history.TaskFailed:
		return ev.Failure
	case *history.SubOrchestrationInstanceFailed:
		return ev.Failure
	}
	return nil
}

func decodeRecord(raw []byte) (provider.TrackingRecord, error) {
	var more struct {
		SequenceNumber int
		Shortened      string
	}
	row, err := wire.DecodeColumns(raw)
	if err == nil {
		err = json.Unmarshal(raw, &more)
	}
	if err != nil {
		return provider.TrackingRecord{}, err
	}
	record := provider.TrackingRecord{ExecutionID: row.ExecutionID, SequenceNumber: more.SequenceNumber}
	if more.Shortened != "" {
		record.Shortened = strings.Split(more.Shortened, ",")
	}
	record.Event, err = row.Event()
	return record, err
}

// State is what is known of the tracking records of an execution.
type State struct {
	Column string // of the sentinel, as it was read

	known  bool       // the following is
	before []wire.Row // of the execution before, which may not have been sent
	at     position
}

// decode reads the column, unless that was done: it says how many of the events of an
// execution are recorded for certain.
func (s *State) decode(of history.OrchestrationInstance, events []history.Event) error {
	if s.known {
		return nil
	}
	m, before, err := decodeMark(s.Column)
	if err != nil {
		return err
	}
	*s = State{known: true, before: before}
	if m.ExecutionID == of.ExecutionID {
		s.advance(of, events[:min(m.Events, len(events))])
	}
	return nil
}

// advance moves on to the end of events, and returns the rows of those that were not
// recorded.
func (s *State) advance(of history.OrchestrationInstance, events []history.Event) (rows []wire.Row) {
	for s.at.events < len(events) {
		rows = s.at.add(rows, of, events[s.at.events])
	}
	return rows
}

// Unsent returns the rows of the events of an execution that may not have been sent, and
// takes them for sent.
func (s *State) Unsent(of history.OrchestrationInstance, events []history.Event) ([]wire.Row, error) {
	if err := s.decode(of, events); err != nil {
		return nil, err
	}
	rows := append(s.before, s.advance(of, events)...)
	s.before = nil
	return rows, nil
}

// A Plan is what to record of a checkpoint. The zero value records nothing.
type Plan struct {
	Rows []wire.Row // to be sent once the checkpoint counts
	Next State      // after that

	mark string // for the sentinel
}

// Plan returns what to record of a checkpoint. What is stored has been sent. The
// checkpoint may continue the execution old as new, with the messages that it takes.
func (s *State) Plan(cp *provider.Checkpoint, old history.OrchestrationInstance, taken []provider.TaskMessage) (*Plan, error) {
	plan := &Plan{Next: State{known: true, at: s.at}}
	m := mark{ExecutionID: cp.Instance.ExecutionID, Events: s.at.events}
	if cp.ContinuedAsNew {
		if s.at.events > 0 {
			plan.Rows = lastEpisode(s.at, old, cp, taken)
		}
		plan.Next.at, m.Events = position{}, 0
	}
	before := plan.Rows
	for _, ev := range cp.NewEvents {
		plan.Rows = plan.Next.at.add(plan.Rows, cp.Instance, ev)
	}
	var err error
	plan.mark, err = m.encodeWhatFits(before)
	return plan, err
}

// Note adds the plan's column of the sentinel to its columns.
func (p *Plan) Note(columns map[string]string) {
	if p != nil {
		columns[column] = p.mark
	}
}

// lastEpisode returns the rows of the episode in which an execution continued as
// new. Its history does not have them: it was replaced by that of the next one.
func lastEpisode(at position, old history.OrchestrationInstance, cp *provider.Checkpoint, taken []provider.TaskMessage) (rows []wire.Row) {
	now := history.NewHeader(cp.NewEvents[0].Head().Timestamp)
	end := &history.ContinueAsNew{}
	end.Header, end.Status = now, history.ContinuedAsNew
	for _, ev := range cp.NewEvents {
		if start, ok := ev.(*history.ExecutionStarted); ok {
			end.Result = start.Input
		}
	}
	rows = at.add(rows, old, &history.OrchestratorStarted{Header: now})
	for _, m := range taken {
		rows = at.add(rows, old, m.Event)
	}
	rows = at.add(rows, old, end)
	return at.add(rows, old, &history.OrchestratorCompleted{Header: now})
}

// NeverStarted returns the rows of an instance that was terminated before it began, and
// has no history.
func NeverStarted(row *wire.InstanceRow) (rows []wire.Row) {
	if row == nil || row.State.Status != history.Terminated {
		return nil
	}
	var at position
	now := history.NewHeader(row.State.CompletedAt)
	rows = at.add(rows, row.State.Instance, &history.ExecutionTerminated{Header: now, Reason: row.State.Output})
	return at.add(rows, row.State.Instance, &history.OrchestratorCompleted{Header: now})
}

// A mark is the state of the tracking records, in a column of the sentinel.
type mark struct {
	ExecutionID string
	// Events is how many of the history's first events are recorded for certain.
	Events int
	// Before is what to record of the execution before, if that is not certain:
	// messages to the tracking queue, compressed, as Base64.
	Before string `json:",omitempty"`
}

// column is the column of a sentinel that has a mark as JSON. .NET
// takes no notice of it.
const column = "Tracking"

// maxMarkBytes is the greatest length of a mark: a column has no more characters.
const maxMarkBytes = 32_000

// errMarkTooLong says that a mark does not fit into a column.
var errMarkTooLong = fmt.Errorf("longer than %d bytes", maxMarkBytes)

// encode returns the text of a mark that keeps rows of the execution before.
func (m mark) encode(before []wire.Row) (string, error) {
	if len(before) > 0 {
		packed, err := wire.Compress([]byte(wire.RowsJSON(before)))
		if err != nil {
			return "", err
		}
		m.Before = base64.StdEncoding.EncodeToString(packed)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	if len(text) > maxMarkBytes {
		return "", errMarkTooLong
	}
	return string(text), nil
}

// decodeMark reads the column of a sentinel. Other programs may have kept an old one.
func decodeMark(text string) (m mark, before []wire.Row, err error) {
	if text == "" {
		return mark{}, nil, nil
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return mark{}, nil, fmt.Errorf("column %s: %w", column, err)
	}
	if m.Before == "" {
		return m, nil, nil
	}
	packed, err := base64.StdEncoding.DecodeString(m.Before)
	if err != nil {
		return mark{}, nil, fmt.Errorf("column %s: %w", column, err)
	}
	raw, err := wire.Decompress(packed)
	if err == nil {
		before, err = wire.DecodeRows(raw)
	}
	if err != nil {
		return mark{}, nil, fmt.Errorf("column %s: %w", column, err)
	}
	return m, before, nil
}

// encodeWhatFits returns the text of a mark that keeps rows of the execution
// before: whole, or without their texts, or, of more than any process takes at
// once unless it is configured to, the first and the last. What is left out is
// missing among the records only if the worker dies before it has sent it.
func (m mark) encodeWhatFits(before []wire.Row) (string, error) {
	text, err := m.encode(before)
	if !errors.Is(err, errMarkTooLong) {
		return text, err
	}
	short := withoutTexts(before)
	if text, err = m.encode(short); !errors.Is(err, errMarkTooLong) {
		return text, err
	}
	return m.encode(slices.Concat(short[:1], short[len(short)-rowsOfEnd:]))
}

// rowsOfEnd is the number of rows that record continue-as-new.
const rowsOfEnd = 3

// withoutTexts returns rows without what makes them long.
func withoutTexts(rows []wire.Row) []wire.Row {
	short := make([]wire.Row, len(rows))
	for i, row := range rows {
		short[i] = wire.Row{PartitionKey: row.PartitionKey, RowKey: row.RowKey}
		for _, p := range row.Properties {
			if p.Edm != wire.EDMString || len(p.Text) <= maxShortText {
				short[i].Properties = append(short[i].Properties, p)
			}
		}
	}
	return short
}

// maxShortText is how long a text may be that withoutTexts keeps.
const maxShortText = 40
