package wire

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// SentinelRowKey is the row key of the sentinel, the row for an instance's history as a whole. It
// sorts after the row keys of events.
const SentinelRowKey = "sentinel"

// Limits of one transaction on the history table, without the sentinel. A transaction ends when it has
// MaxHistoryBatchRows rows or more than MaxHistoryBatchBytes estimated bytes
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs, UpdateStateAsync).
const (
	MaxHistoryBatchRows  = 99
	MaxHistoryBatchBytes = 3 << 20
)

// HistoryRowKey returns the row key of an event. ordinal is its position in the execution's history,
// from 0.
func HistoryRowKey(ordinal int) string {
	var key [16]byte
	for i := range key {
		key[i] = "0123456789ABCDEF"[ordinal>>(60-4*i)&15]
	}
	return string(key[:])
}

// EncodeHistoryRow returns the history row of ev. The row has a column for each member of the .NET
// class, with enum values as names and objects as JSON
// (DurableTask.AzureStorage/Tracking/TableEntityConverter.cs, CreateTableEntitySerializer).
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
	e.ShortenColumns()
	return e
}

// eventColumns is a Row that receives the fields of an event.
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

// FirstExecutionColumn is the column of the sentinel with the first execution of the current
// execution's generations, if the current one is not the first. .NET does not have this column and
// does not change it.
const FirstExecutionColumn = "FirstExecutionId"

// EncodeSentinel returns the sentinel row at the end of a transaction on an instance's history.
// complete means that this is the last transaction of its checkpoint; the sentinel then contains the
// time at (AzureTableTrackingStore.cs, UploadHistoryBatch).
func EncodeSentinel(instanceID, executionID string, complete bool, at time.Time) Row {
	e := Row{PartitionKey: EscapeKey(instanceID), RowKey: SentinelRowKey}
	e.SetString("ExecutionId", executionID)
	e.setBool("IsCheckpointComplete", complete)
	if complete {
		e.SetTime("CheckpointCompletedTimestamp", at)
	}
	return e
}
