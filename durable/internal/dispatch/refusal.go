package dispatch

import (
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A refusedStart is the start of a child whose instance ID is that of another
// instance, which goes on.
type refusedStart struct{ start *history.ExecutionStarted }

// meetsAnother reports whether m is the start of a child, and not that of the
// execution which current began.
func meetsAnother(current *history.ExecutionStarted, m provider.TaskMessage) bool {
	start, ok := m.Event.(*history.ExecutionStarted)
	return ok && start.Parent != nil && start.Instance.ExecutionID != current.Instance.ExecutionID && !start.IsSameChild(current)
}

// refusals returns what tells the parents of refused children. The child's
// action fails there, as if the child had; the instance whose ID it was to have
// is left alone. Whoever started a child and forgot it is told nothing.
//
// DurableTask replaces the instance that goes on, and its parent, if it has one,
// waits for ever.
func (in *intake) refusals(now time.Time) []provider.TaskMessage {
	var messages []provider.TaskMessage
	for _, r := range in.refused {
		if _, ok := r.start.Tags[history.FireAndForget]; ok {
			continue
		}
		exists := &provider.InstanceExistsError{InstanceID: r.start.Instance.InstanceID, Status: history.Running}
		failure := &history.FailureDetails{
			ErrorType:    provider.InstanceExistsFailure,
			ErrorMessage: fmt.Sprintf("%s Its ID is %s.", exists, r.start.Instance.InstanceID),
			Properties: map[string]string{
				"InstanceID": fmt.Sprintf("%q", exists.InstanceID),
				"Status":     fmt.Sprintf("%d", exists.Status),
			},
		}
		messages = append(messages, provider.TaskMessage{
			Event: &history.SubOrchestrationInstanceFailed{
				Header: history.NewHeader(now), TaskScheduledID: r.start.Parent.TaskScheduleID,
				Reason: &failure.ErrorMessage, Failure: failure,
			},
			Target: r.start.Parent.Instance,
		})
	}
	return messages
}
