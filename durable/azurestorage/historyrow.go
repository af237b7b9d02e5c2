package azurestorage

import (
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// sentinelRowKey is the row key of the row that stands for an instance's
// history as a whole. It sorts after those of the events.
const sentinelRowKey = "sentinel"

// The bounds of one transaction on the history table, besides the sentinel: it
// goes out when it has this many rows or more than this many estimated bytes
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// UpdateStateAsync).
const (
	maxHistoryBatchRows  = 99
	maxHistoryBatchBytes = 3 << 20
)

// historyRowKey returns the row key of the event with the given place in its
// execution's history, from 0.
func historyRowKey(ordinal int) string { return fmt.Sprintf("%016X", ordinal) }

// encodeHistoryRow returns the history row of ev: a column for each member of
// its .NET class, with names of enum values as text, and members that are
// objects as JSON (DurableTask.AzureStorage/Tracking/TableEntityConverter.cs,
// CreateTableEntitySerializer).
func encodeHistoryRow(ev history.Event, instanceID string, ordinal int, executionID string) entity {
	e := entity{
		PartitionKey: escapeKey(instanceID),
		RowKey:       historyRowKey(ordinal),
		properties:   make([]property, 0, 16),
	}
	e.setEventColumns(ev)
	head := ev.Head()
	e.setInt("EventId", head.EventID)
	e.setBool("IsPlayed", head.IsPlayed)
	e.setTime("_Timestamp", head.Timestamp)
	e.setString("EventType", ev.Type().String())
	e.setString("ExecutionId", executionID)
	e.fit()
	return e
}

func (e *entity) setEventColumns(ev history.Event) {
	switch ev := ev.(type) {
	case *history.ExecutionStarted:
		e.setString("ParentInstance", columnJSON(func(w *jsonWriter) { w.parentValue(ev.Parent) }))
		e.setString("Name", ev.Name)
		e.setString("Version", ev.Version)
		e.setOptional("Input", ev.Input)
		e.setString("Tags", tagsColumn(ev.Tags))
		e.setOptional("Correlation", ev.Correlation)
		e.setString("ParentTraceContext", traceContextColumn(ev.ParentTraceContext))
		e.setOptionalTime("ScheduledStartTime", ev.ScheduledStart)
		if ev.Generation != nil {
			e.setInt("Generation", *ev.Generation)
		}
		e.setBool("GenerateNewTrace", ev.GenerateNewTrace)
		e.setString("OrchestrationInstance", columnJSON(func(w *jsonWriter) { w.instance(ev.Instance) }))
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
		e.setString("ParentTraceContext", traceContextColumn(ev.ParentTraceContext))
	case *history.TaskScheduled:
		e.setString("Name", ev.Name)
		e.setString("Version", ev.Version)
		e.setOptional("Input", ev.Input)
		e.setString("ParentTraceContext", traceContextColumn(ev.ParentTraceContext))
		e.setString("Tags", tagsColumn(ev.Tags))
	case *history.TaskCompleted:
		e.setInt("TaskScheduledId", ev.TaskScheduledID)
		e.setOptional("Result", ev.Result)
	case *history.TaskFailed:
		e.setTaskFailure(ev.TaskScheduledID, ev.Reason, ev.Details, ev.Failure)
	case *history.SubOrchestrationInstanceCreated:
		e.setString("Name", ev.Name)
		e.setString("Version", ev.Version)
		e.setString("InstanceId", ev.InstanceID)
		e.setOptional("Input", ev.Input)
		e.setOptional("ClientSpanId", ev.ClientSpanID)
		e.setString("Tags", tagsColumn(ev.Tags))
	case *history.SubOrchestrationInstanceCompleted:
		e.setInt("TaskScheduledId", ev.TaskScheduledID)
		e.setOptional("Result", ev.Result)
	case *history.SubOrchestrationInstanceFailed:
		e.setTaskFailure(ev.TaskScheduledID, ev.Reason, ev.Details, ev.Failure)
	case *history.TimerCreated:
		e.setTime("FireAt", ev.FireAt)
	case *history.TimerFired:
		e.setInt("TimerId", ev.TimerID)
		e.setTime("FireAt", ev.FireAt)
	case *history.EventSent:
		e.setString("InstanceId", ev.InstanceID)
		e.setString("Name", ev.Name)
		e.setOptional("Input", ev.Input)
	case *history.EventRaised:
		e.setString("Name", ev.Name)
		e.setOptional("Input", ev.Input)
		e.setString("ParentTraceContext", traceContextColumn(ev.ParentTraceContext))
	case *history.GenericEvent:
		e.setOptional("Data", ev.Data)
	case *history.HistoryState:
		state := jsonNull
		if ev.State != nil {
			state = *ev.State
		}
		e.setString("State", state)
	case *history.OrchestratorStarted, *history.OrchestratorCompleted:
		// They have no members of their own.
	}
}

func (e *entity) setCompletion(status history.RuntimeStatus, result *string, failure *history.FailureDetails) {
	e.setString("OrchestrationStatus", status.String())
	e.setOptional("Result", result)
	e.setString("FailureDetails", failureColumn(failure))
}

func (e *entity) setTaskFailure(id int, reason, details *string, failure *history.FailureDetails) {
	e.setInt("TaskScheduledId", id)
	e.setOptional("Reason", reason)
	e.setOptional("Details", details)
	e.setString("FailureDetails", failureColumn(failure))
}

// firstExecutionColumn is the column of the sentinel that says which execution a
// start message began, if the current one is a later generation of it. .NET does
// not have it, and lets it be.
const firstExecutionColumn = "FirstExecutionId"

// encodeSentinel returns the sentinel row that ends a transaction on an
// instance's history. complete says that it is the last of its checkpoint; at is
// then the time, else it is not used (AzureTableTrackingStore.cs,
// UploadHistoryBatch).
func encodeSentinel(instanceID, executionID string, complete bool, at time.Time) entity {
	e := entity{PartitionKey: escapeKey(instanceID), RowKey: sentinelRowKey}
	e.setString("ExecutionId", executionID)
	e.setBool("IsCheckpointComplete", complete)
	if complete {
		e.setTime("CheckpointCompletedTimestamp", at)
	}
	return e
}
