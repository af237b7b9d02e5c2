package wire

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// SentinelRowKey is the row key of the row that stands for an instance's
// history as a whole. It sorts after those of the events.
const SentinelRowKey = "sentinel"

// The bounds of one transaction on the history table, besides the sentinel: it
// goes out when it has this many rows or more than this many estimated bytes
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// UpdateStateAsync).
const (
	MaxHistoryBatchRows  = 99
	MaxHistoryBatchBytes = 3 << 20
)

// HistoryRowKey returns the row key of the event with the given place in its
// execution's history, from 0.
func HistoryRowKey(ordinal int) string {
	var key [16]byte
	for i := range key {
		key[i] = "0123456789ABCDEF"[ordinal>>(60-4*i)&15]
	}
	return string(key[:])
}

// EncodeHistoryRow returns the history row of ev: a column for each member of
// its .NET class, with names of enum values as text, and members that are
// objects as JSON (DurableTask.AzureStorage/Tracking/TableEntityConverter.cs,
// CreateTableEntitySerializer).
func EncodeHistoryRow(ev history.Event, instanceID string, ordinal int, executionID string) Row {
	e := Row{
		PartitionKey: EscapeKey(instanceID),
		RowKey:       HistoryRowKey(ordinal),
		Properties:   make([]property, 0, 16),
	}
	history.VisitFields(ev, (*eventColumns)(&e))
	head := ev.Head()
	e.SetInt("EventId", head.EventID)
	e.setBool("IsPlayed", head.IsPlayed)
	e.SetTime("_Timestamp", head.Timestamp)
	e.SetString("EventType", ev.Type().String())
	e.SetString("ExecutionId", executionID)
	e.Fit()
	return e
}

// eventColumns is a Row that takes the fields of an event.
type eventColumns Row

func (e *eventColumns) Since(_ byte, set bool) bool { return set }

func (e *eventColumns) Bool(name string, v *bool) { (*Row)(e).setBool(name, *v) }

func (e *eventColumns) Int(name string, v *int) { (*Row)(e).SetInt(name, *v) }

func (e *eventColumns) OptionalInt(name string, v **int) {
	if *v != nil {
		(*Row)(e).SetInt(name, **v)
	}
}

func (e *eventColumns) String(name string, v *string) { (*Row)(e).SetString(name, *v) }

func (e *eventColumns) Text(name string, v **string) { (*Row)(e).setOptional(name, *v) }

func (e *eventColumns) JSON(name string, v **string) {
	text := JSONNull
	if *v != nil {
		text = **v
	}
	(*Row)(e).SetString(name, text)
}

func (e *eventColumns) Time(name string, v *time.Time) { (*Row)(e).SetTime(name, *v) }

func (e *eventColumns) OptionalTime(name string, v *time.Time) { (*Row)(e).SetOptionalTime(name, *v) }

func (e *eventColumns) Tags(name string, v *map[string]string) {
	(*Row)(e).SetString(name, TagsColumn(*v))
}

func (e *eventColumns) Status(name string, v *history.RuntimeStatus) {
	(*Row)(e).SetString(name, v.String())
}

func (e *eventColumns) Instance(name string, v *history.OrchestrationInstance) {
	(*Row)(e).SetString(name, columnJSON(func(w *jsonWriter) { w.instance(*v) }))
}

func (e *eventColumns) Parent(name string, v **history.ParentInstance) {
	(*Row)(e).SetString(name, columnJSON(func(w *jsonWriter) { w.parent(*v) }))
}

func (e *eventColumns) Trace(name string, v **history.TraceContext) {
	(*Row)(e).SetString(name, traceContextColumn(*v))
}

func (e *eventColumns) Failure(name string, v **history.FailureDetails) {
	(*Row)(e).SetString(name, FailureColumn(*v))
}

// FirstExecutionColumn is the column of the sentinel that says which execution a
// start message began, if the current one is a later generation of it. .NET does
// not have it, and lets it be.
const FirstExecutionColumn = "FirstExecutionId"

// EncodeSentinel returns the sentinel row that ends a transaction on an
// instance's history. complete says that it is the last of its checkpoint; at is
// then the time, else it is not used (AzureTableTrackingStore.cs,
// UploadHistoryBatch).
func EncodeSentinel(instanceID, executionID string, complete bool, at time.Time) Row {
	e := Row{PartitionKey: EscapeKey(instanceID), RowKey: SentinelRowKey}
	e.SetString("ExecutionId", executionID)
	e.setBool("IsCheckpointComplete", complete)
	if complete {
		e.SetTime("CheckpointCompletedTimestamp", at)
	}
	return e
}
