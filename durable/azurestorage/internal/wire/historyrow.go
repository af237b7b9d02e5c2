package wire

import (
	"fmt"
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
func HistoryRowKey(ordinal int) string { return fmt.Sprintf("%016X", ordinal) }

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
	e.setEventColumns(ev)
	head := ev.Head()
	e.SetInt("EventId", head.EventID)
	e.setBool("IsPlayed", head.IsPlayed)
	e.SetTime("_Timestamp", head.Timestamp)
	e.SetString("EventType", ev.Type().String())
	e.SetString("ExecutionId", executionID)
	e.Fit()
	return e
}

func (e *Row) setEventColumns(ev history.Event) {
	switch ev := ev.(type) {
	case *history.ExecutionStarted:
		e.SetString("ParentInstance", columnJSON(func(w *jsonWriter) { w.parentValue(ev.Parent) }))
		e.SetString("Name", ev.Name)
		e.SetString("Version", ev.Version)
		e.setOptional("Input", ev.Input)
		e.SetString("Tags", TagsColumn(ev.Tags))
		e.setOptional("Correlation", ev.Correlation)
		e.SetString("ParentTraceContext", traceContextColumn(ev.ParentTraceContext))
		e.SetOptionalTime("ScheduledStartTime", ev.ScheduledStart)
		if ev.Generation != nil {
			e.SetInt("Generation", *ev.Generation)
		}
		e.setBool("GenerateNewTrace", ev.GenerateNewTrace)
		e.SetString("OrchestrationInstance", columnJSON(func(w *jsonWriter) { w.instance(ev.Instance) }))
	case *history.ExecutionCompleted:
		e.setCompletion(ev.Status, ev.Result, ev.Failure)
	case *history.ContinueAsNew:
		e.setCompletion(ev.Status, ev.Result, ev.Failure)
	case *history.ExecutionTerminated:
		e.setOptional("Input", ev.Reason)
	case *history.ExecutionSuspended:
		e.setOptional("Reason", ev.Reason)
	case *history.ExecutionResumed:
		e.setOptional("Reason", ev.Reason)
	case *history.ExecutionRewound:
		e.setOptional("Reason", ev.Reason)
		e.setOptional("ParentExecutionId", ev.ParentExecutionID)
		e.setOptional("InstanceId", ev.InstanceID)
		e.SetString("ParentTraceContext", traceContextColumn(ev.ParentTraceContext))
	case *history.TaskScheduled:
		e.SetString("Name", ev.Name)
		e.SetString("Version", ev.Version)
		e.setOptional("Input", ev.Input)
		e.SetString("ParentTraceContext", traceContextColumn(ev.ParentTraceContext))
		e.SetString("Tags", TagsColumn(ev.Tags))
	case *history.TaskCompleted:
		e.SetInt("TaskScheduledId", ev.TaskScheduledID)
		e.setOptional("Result", ev.Result)
	case *history.TaskFailed:
		e.setTaskFailure(ev.TaskScheduledID, ev.Reason, ev.Details, ev.Failure)
	case *history.SubOrchestrationInstanceCreated:
		e.SetString("Name", ev.Name)
		e.SetString("Version", ev.Version)
		e.SetString("InstanceId", ev.InstanceID)
		e.setOptional("Input", ev.Input)
		e.setOptional("ClientSpanId", ev.ClientSpanID)
		e.SetString("Tags", TagsColumn(ev.Tags))
	case *history.SubOrchestrationInstanceCompleted:
		e.SetInt("TaskScheduledId", ev.TaskScheduledID)
		e.setOptional("Result", ev.Result)
	case *history.SubOrchestrationInstanceFailed:
		e.setTaskFailure(ev.TaskScheduledID, ev.Reason, ev.Details, ev.Failure)
	case *history.TimerCreated:
		e.SetTime("FireAt", ev.FireAt)
	case *history.TimerFired:
		e.SetInt("TimerId", ev.TimerID)
		e.SetTime("FireAt", ev.FireAt)
	case *history.EventSent:
		e.SetString("InstanceId", ev.InstanceID)
		e.SetString("Name", ev.Name)
		e.setOptional("Input", ev.Input)
	case *history.EventRaised:
		e.SetString("Name", ev.Name)
		e.setOptional("Input", ev.Input)
		e.SetString("ParentTraceContext", traceContextColumn(ev.ParentTraceContext))
	case *history.GenericEvent:
		e.setOptional("Data", ev.Data)
	case *history.HistoryState:
		state := JSONNull
		if ev.State != nil {
			state = *ev.State
		}
		e.SetString("State", state)
	case *history.OrchestratorStarted, *history.OrchestratorCompleted:
		// They have no members of their own.
	}
}

func (e *Row) setCompletion(status history.RuntimeStatus, result *string, failure *history.FailureDetails) {
	e.SetString("OrchestrationStatus", status.String())
	e.setOptional("Result", result)
	e.SetString("FailureDetails", FailureColumn(failure))
}

func (e *Row) setTaskFailure(id int, reason, details *string, failure *history.FailureDetails) {
	e.SetInt("TaskScheduledId", id)
	e.setOptional("Reason", reason)
	e.setOptional("Details", details)
	e.SetString("FailureDetails", FailureColumn(failure))
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
