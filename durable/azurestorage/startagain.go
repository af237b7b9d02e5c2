package azurestorage

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// startOverdue is for how long an instance may be pending before somebody who
// starts it once more has its start sent again.
const startOverdue = 30 * time.Second

// startAgain sends the start of an instance again that is pending for longer
// than it should be, when somebody is refused because of it: a client that died
// after it inserted the row, and before it sent the message, has left an instance
// that nothing would ever start. Its caller got no answer, and asks again. The
// execution is the same, so that it is run once even if the first message was
// sent and only waits.
func (h *TaskHub) startAgain(ctx context.Context, refused *instanceRow) error {
	if !isOverdue(&refused.State, time.Now()) {
		return nil
	}
	row, err := h.fetchInstanceRow(ctx, refused.State.Instance.InstanceID, provider.Fetch{Input: true})
	if err != nil || row == nil || row.State.Instance != refused.State.Instance || row.State.Status != history.Pending {
		return err
	}
	if err := h.resolveState(ctx, row); err != nil {
		return err
	}
	state := &row.State
	h.log.Warn("instance is pending for long: its start is sent again",
		"instanceId", state.Instance.InstanceID, "executionId", state.Instance.ExecutionID, "created", state.CreatedAt)
	start := provider.TaskMessage{Target: state.Instance, Event: &history.ExecutionStarted{
		Header: history.NewHeader(state.CreatedAt), Instance: state.Instance,
		Name: state.Name, Version: state.Version, Input: state.Input, Tags: state.Tags,
		ScheduledStart: state.ScheduledAt, Generation: row.Generation,
	}}
	env := &envelope{Message: &start, Sender: &history.OrchestrationInstance{}}
	_, err = h.send(ctx, h.partitionOf(state.Instance.InstanceID).queue, env, true)
	return err
}

// isOverdue reports whether an instance should have begun to run by now.
func isOverdue(s *provider.InstanceState, now time.Time) bool {
	due := s.LastUpdatedAt
	if s.ScheduledAt.After(due) {
		due = s.ScheduledAt
	}
	return s.Status == history.Pending && now.Sub(due) > startOverdue
}
