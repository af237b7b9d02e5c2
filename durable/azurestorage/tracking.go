package azurestorage

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/tracking"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// tracker sends the tracking records of instances to the tracking queue.
type tracker struct {
	enabled   bool
	queue     *tracking.Queue
	instances *instances.Store
	log       *slog.Logger
}

// tracks reports whether an instance has tracking records. Entities have none, because each of
// their batches is an execution of its own.
func (t *tracker) tracks(instanceID string) bool {
	return t.enabled && !history.IsEntity(instanceID)
}

// plan returns the tracking records of a checkpoint. It first sends the records of the stored
// history that may not have been sent, because the checkpoint may replace that history.
func (t *tracker) plan(ctx context.Context, s *session, cp *provider.Checkpoint) (*tracking.Plan, error) {
	id, loaded := s.InstanceID, s.Loaded
	if !t.tracks(id) {
		return nil, nil
	}
	if len(loaded.Events) == 0 && loaded.ETag != "" { // the history of another execution
		if err := t.resend(ctx, id); err != nil {
			return nil, err
		}
	} else if rows, err := loaded.Unsent(id); err != nil {
		return nil, err
	} else if err := t.send(ctx, id, rows); err != nil {
		return nil, err
	}
	return loaded.Tracked.Plan(cp, s.instance(), messagesOf(s.Current))
}

// commit sends the tracking records of a committed checkpoint. The sentinel tells a worker that
// takes over the instance which records may be missing.
func (t *tracker) commit(ctx context.Context, id string, loaded *instances.Instance, plan *tracking.Plan) error {
	if plan == nil {
		return nil
	}
	if err := t.send(ctx, id, plan.Rows); err != nil {
		return err
	}
	loaded.Tracked = plan.Next
	return nil
}

// send sends rows of an instance to the tracking queue.
func (t *tracker) send(ctx context.Context, instanceID string, rows []wire.Row) error {
	if len(rows) == 0 {
		return nil
	}
	if err := t.queue.Send(ctx, rows); err != nil {
		return fmt.Errorf("send tracking records: %w", err)
	}
	t.log.Debug("tracking records sent", "instanceId", instanceID, "rows", len(rows))
	return nil
}

// resend sends the records of an instance that may not have been sent. They are missing if a worker
// died before it deleted the messages that it had consumed.
func (t *tracker) resend(ctx context.Context, instanceID string) error {
	if !t.tracks(instanceID) {
		return nil
	}
	stored, err := t.instances.Histories.Load(ctx, instanceID, "")
	if err != nil {
		return err
	}
	rows, err := stored.Unsent(instanceID)
	if err != nil {
		return err
	}
	if len(stored.Events) == 0 {
		row, err := t.instances.Rows.Read(ctx, instanceID)
		if err != nil {
			return err
		}
		rows = append(rows, tracking.NeverStarted(row)...)
	}
	return t.send(ctx, instanceID, rows)
}
