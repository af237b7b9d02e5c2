package azurestorage

import (
	"context"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// loadFor is loadInstance for a batch of messages that begins with the event
// first. If that starts a child whose ID has another execution, it is what is
// stored of that one, as far as the start has to do with it: one that goes on is
// to refuse the start, and one that has ended may be the same child, which has
// continued as new since.
func (h *TaskHub) loadFor(ctx context.Context, instanceID, executionID string, first history.Event) (*loadedInstance, error) {
	loaded, err := h.loadInstance(ctx, instanceID, executionID)
	start, isStart := first.(*history.ExecutionStarted)
	if err != nil || !isStart || start.Parent == nil || !loaded.hasOther(executionID) {
		return loaded, err
	}
	current, err := h.loadInstance(ctx, instanceID, "")
	if err != nil {
		return nil, err
	}
	if current.known.started && (current.known.ended == nil || start.IsSameChild(history.StartOf(current.events))) {
		return current, nil
	}
	return loaded, nil
}

// hasOther reports whether the execution that was wanted has no history, and
// another may have one.
func (l *loadedInstance) hasOther(wanted string) bool {
	return !l.known.started && (l.etag != "" || l.row != nil && !strings.EqualFold(l.row.State.Instance.ExecutionID, wanted))
}

// judgeChildStart decides about the start of a child when another execution
// with its ID is stored. .NET puts the child in the place of that
// (DurableTask.AzureStorage/OrchestrationSessionManager.cs,
// DedupeExecutionStartedMessagesAsync), although it may go on.
//
//  1. One that goes on is handed the start, and the engine refuses it.
//  2. One that is about to start is waited for.
//  3. One that has ended is replaced.
func judgeChildStart(start *history.ExecutionStarted, stored *loadedInstance, m arrived) verdict {
	row := stored.row
	switch {
	case stored.known.started:
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
