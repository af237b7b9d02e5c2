// Package tracking stores tracking records of orchestrations, as the Durable Task Framework did on
// Service Bus. Every event of every execution becomes a row of an append-only table. A checkpoint
// sends its events as rows to the tracking queue, and the owner of the first partition moves them into
// the table.
//
// No record is lost or duplicated if a worker crashes:
//
//  1. A checkpoint sends its rows after it has written the history, and before it deletes the messages
//     that it has processed. If the worker crashes in between, the messages are redelivered as
//     duplicates, and the rows are sent again.
//  2. The sentinel of a history records how many of its events were certainly sent before the
//     checkpoint that wrote it. Later events are sent again before the history is replaced.
//  3. Continue-as-new replaces the history. The rows of the replaced episode are stored in the sentinel
//     until they are sent.
//  4. The key of a row is derived from the history: start time, execution ID and row number. Existing
//     rows are not overwritten.
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

// A position is a position in the tracking records of an execution.
type position struct {
	events int // number of recorded events of the history
	rows   int // number of rows; the sequence number of the next row
	began  time.Time
	status history.RuntimeStatus
}

// add appends the rows of an event to rows.
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
		// The framework sent the state with each episode
		// (DurableTask.ServiceBus/ServiceBusOrchestrationService.cs, CreateTrackingMessagesAsync).
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

// rowOf returns the tracking row of an event: its history row, with large columns shortened. The order
// of the keys is the order of creation.
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

// keyTime is the format of an execution's start time in keys.
const keyTime = "20060102T150405.0000000Z"

// maxColumn is the maximum size of a column as JSON, in bytes. At most nine columns of a row can be
// long, so that each row fits into a message.
const maxColumn = 4096

// shortened returns the recorded value of a column that is too large.
func shortened(name, text string, ev history.Event) string {
	switch {
	case slices.Contains(wire.JSONColumns, name):
		return wire.JSONNull
	case name == "FailureDetails":
		if f := failureOf(ev); f != nil {
			return wire.FailureColumn(&history.FailureDetails{ErrorType: wire.TruncateJSON(f.ErrorType, 512), ErrorMessage: wire.TruncateJSON(f.ErrorMessage, maxColumn/2)})
		}
		return wire.JSONNull
	}
	return wire.TruncateJSON(text, maxColumn)
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

// State is the state of the tracking records of an execution.
type State struct {
	Column string // column of the sentinel, as read

	known  bool       // the following fields are set
	before []wire.Row // rows of the previous execution that may not have been sent
	at     position
}

// decode decodes the column of the sentinel, unless it is decoded already. The column contains the
// number of events that were certainly sent.
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

// advance moves the position to the end of events, and returns the rows of the new events.
func (s *State) advance(of history.OrchestrationInstance, events []history.Event) (rows []wire.Row) {
	for s.at.events < len(events) {
		rows = s.at.add(rows, of, events[s.at.events])
	}
	return rows
}

// Unsent returns the rows that may not have been sent, and marks them as sent. events is the history
// of the execution of.
func (s *State) Unsent(of history.OrchestrationInstance, events []history.Event) ([]wire.Row, error) {
	if err := s.decode(of, events); err != nil {
		return nil, err
	}
	rows := append(s.before, s.advance(of, events)...)
	s.before = nil
	return rows, nil
}

// A Plan describes the records of a checkpoint. The zero value records nothing.
type Plan struct {
	Rows []wire.Row // to be sent after the commit
	Next State      // the state after the commit

	mark string // column of the sentinel
}

// Plan returns the records of a checkpoint. All events of the stored history must have been sent. If
// the checkpoint continues the execution old as new, taken are the messages that it has processed.
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
	plan.mark, err = m.encodeShortened(before)
	return plan, err
}

// AddColumn adds the plan's column to the columns of the sentinel. A nil plan adds nothing.
func (p *Plan) AddColumn(columns map[string]string) {
	if p != nil {
		columns[column] = p.mark
	}
}

// lastEpisode returns the rows of the episode in which an execution continued as new. The history of
// the next execution replaces this episode, so no history contains its events.
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

// NeverStarted returns the rows of an instance that was terminated before it ran and has no history.
func NeverStarted(row *wire.InstanceRow) (rows []wire.Row) {
	if row == nil || row.State.Status != history.Terminated {
		return nil
	}
	var at position
	now := history.NewHeader(row.State.CompletedAt)
	rows = at.add(rows, row.State.Instance, &history.ExecutionTerminated{Header: now, Reason: row.State.Output})
	return at.add(rows, row.State.Instance, &history.OrchestratorCompleted{Header: now})
}

// A mark is the content of the tracking column of a sentinel.
type mark struct {
	ExecutionID string
	// Events is the number of events, from the start of the history, that were certainly sent.
	Events int
	// Before contains rows of the previous execution that may not have been sent: compressed JSON, as
	// Base64.
	Before string `json:",omitempty"`
}

// column is the name of the sentinel's column with the mark as JSON. .NET ignores it.
const column = "Tracking"

// maxMarkBytes is the maximum size of a mark in bytes. It is below the maximum length of a column,
// 32 Ki characters.
const maxMarkBytes = 32_000

// errMarkTooLong is the error of a mark that does not fit into a column.
var errMarkTooLong = fmt.Errorf("longer than %d bytes", maxMarkBytes)

// encode returns the text of a mark with the given rows of the previous execution.
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

// decodeMark decodes the column of a sentinel. Other programs may have kept an old one.
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

// encodeShortened returns the text of a mark with the rows of the previous execution, shortened until
// they fit into a column. First it removes long texts. If that is not enough, it keeps only the first
// row and the last rowsOfEnd rows. The omitted data is missing in the records only if the worker
// crashes before it has sent the full rows.
func (m mark) encodeShortened(before []wire.Row) (string, error) {
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

// withoutTexts returns rows without their long texts.
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

// maxShortText is the maximum length of a text that withoutTexts keeps.
const maxShortText = 40
