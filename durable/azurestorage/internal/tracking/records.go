// Package tracking keeps tracking records of orchestrations, as the Durable Task Framework
// did on Service Bus: every event of every execution, in a table to which rows are
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
package tracking

import (
	"encoding/json"
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

// keyTime is how the time of an execution's begin stands in keys.
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
