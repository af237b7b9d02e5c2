package azurestorage

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Tracking keeps an audit of orchestrations, as the Durable Task Framework did
// on Service Bus: every event of every execution, in a table to which rows are
// only added. What a checkpoint made durable goes to the tracking queue, as the
// rows that are to be, and the worker that has the first partition moves it from
// there into the table.
//
// Nothing is lost when a worker dies, and nothing is there twice:
//
//  1. A checkpoint's rows are sent after its history is written and before the
//     messages that it took are deleted. If the worker dies in between, these
//     come again, are found to be taken, and the history is sent anew.
//  2. The sentinel of a history says how much of it was sent for certain before
//     the checkpoint that wrote it. What follows that is sent before anything
//     takes its place.
//  3. What the history does not show, because the checkpoint replaced it by that
//     of the next execution, is in the sentinel, too, until it was sent.
//  4. A row's key follows from the history: when an execution began, its ID and a
//     number that counts its rows. Rows that are there already stay as they are.

// A trackPosition is a place in the audit of an execution.
type trackPosition struct {
	events int // of the history that are recorded
	rows   int // that they have in the audit; the next one's sequence number
	began  time.Time
	status history.RuntimeStatus
}

// add appends to rows those that an event has.
func (p *trackPosition) add(rows []wire.Row, instance history.OrchestrationInstance, ev history.Event) []wire.Row {
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
func (p *trackPosition) row(instance history.OrchestrationInstance, ev history.Event) wire.Row {
	e := trackingRow(instance, p.began, p.rows, ev)
	p.rows++
	return e
}

// trackingRow returns the row of the audit for an event: that of the history,
// without what is too large, under a key by which the rows of an instance are in
// the order in which they came to be.
func trackingRow(instance history.OrchestrationInstance, began time.Time, number int, ev history.Event) wire.Row {
	e := wire.EncodeHistoryRow(ev, instance.InstanceID, number, instance.ExecutionID)
	e.RowKey = fmt.Sprintf("%s_%s_%016X", began.UTC().Format(trackingKeyTime), wire.EscapeKey(instance.ExecutionID), number)
	var shortened []string
	for i := range e.Properties {
		p := &e.Properties[i]
		if p.Edm != wire.EDMString || jsonLength(p.Text) <= maxTrackedColumn {
			continue
		}
		shortened = append(shortened, p.Name)
		p.Text = shortenedColumn(p.Name, p.Text, ev)
	}
	e.SetInt("SequenceNumber", number)
	if shortened != nil {
		e.SetString("Shortened", strings.Join(shortened, ","))
	}
	return e
}

// trackingKeyTime is how the time of an execution's begin stands in keys.
const trackingKeyTime = "20060102T150405.0000000Z"

// maxTrackedColumn is how many bytes a column of the audit may have as JSON. A
// row has at most nine that can be long, so that each fits into a message.
const maxTrackedColumn = 4096

// shortenedColumn returns what is recorded of a column that is too large.
func shortenedColumn(name, text string, ev history.Event) string {
	switch {
	case slices.Contains(wire.JSONColumns, name):
		return wire.JSONNull
	case name == "FailureDetails":
		if f := failureOf(ev); f != nil {
			return wire.FailureColumn(&history.FailureDetails{ErrorType: cutJSON(f.ErrorType, 512), ErrorMessage: cutJSON(f.ErrorMessage, maxTrackedColumn/2)})
		}
		return wire.JSONNull
	}
	return cutJSON(text, maxTrackedColumn)
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

// jsonLength returns how many bytes text takes up within JSON, at most.
func jsonLength(text string) (n int) {
	for _, r := range text {
		n += jsonRuneLength(r)
	}
	return n
}

func jsonRuneLength(r rune) int {
	switch {
	case r < ' ' || r == 0x7F || r == '\u2028' || r == '\u2029' || r == '\uFFFD' || r == '<' || r == '>' || r == '&':
		return len(`\u0000`)
	case r == '"' || r == '\\':
		return 2
	case r < 0x80:
		return 1
	}
	return len(string(r))
}

// cutJSON returns the longest beginning of text that takes up at most limit
// bytes within JSON.
func cutJSON(text string, limit int) string {
	n := 0
	for i, r := range text {
		if n += jsonRuneLength(r); n > limit {
			return text[:i]
		}
	}
	return text
}

// A trackMark is what a sentinel says of the audit.
type trackMark struct {
	ExecutionID string
	// Events is how many of the history's first events are recorded for certain.
	Events int
	// Before is what to record of the execution before, if that is not certain:
	// messages to the tracking queue, compressed, as Base64.
	Before string `json:",omitempty"`
}

// trackingColumn is the column of a sentinel that has a trackMark as JSON. .NET
// takes no notice of it.
const trackingColumn = "Tracking"

// maxMarkBytes is how long the text of a trackMark may be: as many characters as
// a column can have.
const maxMarkBytes = 32_000

// errMarkTooLong says that a trackMark does not fit into a column.
var errMarkTooLong = fmt.Errorf("longer than %d bytes", maxMarkBytes)

// encode returns the text of a mark that keeps rows of the execution before.
func (m trackMark) encode(before []wire.Row) (string, error) {
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

// decodeTrackMark reads the column of a sentinel, of which other programs may
// have kept an old one.
func decodeTrackMark(text string) (m trackMark, before []wire.Row, err error) {
	if text == "" {
		return trackMark{}, nil, nil
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return trackMark{}, nil, fmt.Errorf("column %s: %w", trackingColumn, err)
	}
	if m.Before == "" {
		return m, nil, nil
	}
	packed, err := base64.StdEncoding.DecodeString(m.Before)
	if err != nil {
		return trackMark{}, nil, fmt.Errorf("column %s: %w", trackingColumn, err)
	}
	raw, err := wire.Decompress(packed)
	if err == nil {
		before, err = wire.DecodeRows(raw)
	}
	if err != nil {
		return trackMark{}, nil, fmt.Errorf("column %s: %w", trackingColumn, err)
	}
	return m, before, nil
}
