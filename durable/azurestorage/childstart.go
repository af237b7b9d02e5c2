package azurestorage

import (
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// judgeChildStart decides about the start of a child when another execution
// with its ID is stored. .NET puts the child in the place of that
// (DurableTask.AzureStorage/OrchestrationSessionManager.cs,
// DedupeExecutionStartedMessagesAsync), although it may go on.
//
//  1. One that goes on is handed the start, and the engine refuses it.
//  2. One that is about to start is waited for.
//  3. One that has ended is replaced.
func judgeChildStart(start *history.ExecutionStarted, stored *instances.Instance, m arrived) verdict {
	row := stored.Row
	switch {
	case stored.Known.Started:
		return deliver
	case row == nil, row.State.Instance.ExecutionID == "", row.State.Status.IsTerminal(),
		strings.EqualFold(row.State.Instance.ExecutionID, start.Instance.ExecutionID):
		return deliver
	}
	if m.dequeueCount > maxStartDeliveries {
		return deliver
	}
	return otherStarts
}
