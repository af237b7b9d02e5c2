package azurestorage

import (
	"context"
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inbound"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/outbound"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// activityLock is a dispatched work item.
type activityLock struct {
	d          *inflight.Delivery
	partitions inbound.Partitions
	sender     *outbound.Sender
}

var _ provider.ActivityLock = (*activityLock)(nil)

// Complete implements [provider.ActivityLock]
// (DurableTask.AzureStorage/AzureStorageOrchestrationService.cs,
// CompleteTaskActivityWorkItemAsync). If this process owns the partition of the instance, it sends
// no message; see directResult.
func (l *activityLock) Complete(ctx context.Context, result history.Event) error {
	target := l.d.Target()
	p := l.partitions.Of(target.InstanceID)
	env := &wire.Envelope{
		Message: &provider.TaskMessage{Event: result, Target: target},
		Episode: l.d.Env.Episode, Sender: &target, Scheduled: l.d.Env.Scheduled,
	}
	delivered, err := l.sender.DeliverResult(p, l.d, env)
	if delivered {
		l.d.FreeRoom()
		return nil
	}
	var sent outbound.Sent
	if err == nil {
		sent, err = l.sender.Post(ctx, &outbound.Message{To: p, Env: env, Duplicates: true})
	}
	if err != nil {
		return fmt.Errorf("complete activity %d of %q: %w", inflight.TaskEventID(result), target.InstanceID, err)
	}
	sent.To.Announce()
	l.d.Discard(ctx) // if this fails, the activity runs again, and its result is recognized as a duplicate
	return nil
}

// Abandon implements [provider.ActivityLock].
func (l *activityLock) Abandon(ctx context.Context, cause error) error {
	if cause == nil {
		cause = errors.New("the activity could not be run")
	}
	l.d.AbandonBecause(ctx, cause)
	return nil
}
