package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// StartInstance implements [provider.Client].
//
// The message goes out before the row, so that a row whose client has died, or was
// cut off, never waits for a message that nobody sends
// (DurableTask.AzureStorage/AzureStorageOrchestrationService.cs,
// CreateTaskOrchestrationAsync). The row decides: whoever receives a message
// without its row holds it back for a while, and then drops it. So what was begun
// either runs or leaves nothing behind, whatever becomes of the caller, and an
// instance that somebody was told of stays.
//
// Of two callers who start the same ID at the same time, the one who writes the
// row wins; the other gets the error, which .NET does not tell it.
func (h *TaskHub) StartInstance(ctx context.Context, start provider.TaskMessage, refuse []history.RuntimeStatus) error {
	given, ok := start.Event.(*history.ExecutionStarted)
	if !ok {
		return fmt.Errorf("the event is %s; want ExecutionStarted", start.Event.Type())
	}
	id := given.Instance.InstanceID
	if id == "" {
		return errors.New("the instance has no ID")
	}
	if err := wire.CheckID(id); err != nil {
		return err
	}
	return h.startInstance(ctx, start, *given, refuse)
}

func (h *TaskHub) startInstance(ctx context.Context, start provider.TaskMessage, event history.ExecutionStarted, refuse []history.RuntimeStatus) error {
	if err := h.ensureCreated(ctx); err != nil {
		return err
	}
	if event.Instance.ExecutionID == "" {
		event.Instance.ExecutionID = strings.ReplaceAll(uuid.NewString(), "-", "")
	}
	generation := event.Generation
	if generation == nil {
		event.Generation = new(0)
	}
	start.Event, start.Target = &event, event.Instance
	return h.startRecorded(ctx, &start, &event, func() error { return h.startUnlessRefused(ctx, start, event, generation, refuse) })
}

// startUnlessRefused starts an instance, in the place of one that has its ID if
// that is not in one of the statuses in refuse.
func (h *TaskHub) startUnlessRefused(ctx context.Context, start provider.TaskMessage, event history.ExecutionStarted, generation *int, refuse []history.RuntimeStatus) error {
	start.Event = &event
	before, err := h.startOver(ctx, start, &event, nil)
	if before == nil || err != nil {
		return err
	}
	if !slices.Contains(refuse, before.State.Status) {
		if generation == nil {
			event.Generation = new(before.State.Generation + 1)
		}
		before, err = h.startOver(ctx, start, &event, before)
	}
	if before == nil || err != nil {
		return err
	}
	return &provider.InstanceExistsError{InstanceID: event.Instance.InstanceID, Status: before.State.Status}
}

// startOver starts an instance in the place of the one that has the row before, or
// one whose ID is free if that is nil. If another has the ID, it returns its row.
func (h *TaskHub) startOver(ctx context.Context, start provider.TaskMessage, event *history.ExecutionStarted, before *wire.InstanceRow) (taken *wire.InstanceRow, err error) {
	out, err := h.prepareStart(ctx, start)
	if err != nil {
		return nil, err
	}
	sent, err := h.enqueue(ctx, out)
	if err != nil {
		return nil, err
	}
	row, err := h.instances.Rows.Create(ctx, event, before, out.blob)
	switch {
	case errors.Is(err, instances.ErrPurged):
		h.retract(ctx, []sentMessage{sent})
		return h.startOver(ctx, start, event, nil)
	case err == nil && row.State.Instance.ExecutionID == event.Instance.ExecutionID:
		if before == nil && sent.claimed != nil {
			h.noteFresh(sent.claimed, row)
		}
		row = nil
	case err == nil || store.WasNotApplied(err):
		h.retract(ctx, []sentMessage{sent})
		return row, err
	}
	h.handOver(ctx, []sentMessage{sent}) // whoever receives it looks whether the row is there
	return row, err
}

// prepareStart prepares a start message. It is claimed if this process runs the
// partition.
func (h *TaskHub) prepareStart(ctx context.Context, start provider.TaskMessage) (*outgoing, error) {
	p := h.partitionOf(start.Target.InstanceID)
	out := &outgoing{
		queue: p.queue, partition: p, duplicates: true,
		env: &wire.Envelope{Message: &start, Sender: &history.OrchestrationInstance{}},
	}
	h.reserve([]*outgoing{out})
	return out, h.prepare(ctx, out)
}

// noteFresh notes of a start that this process takes itself that there is nothing of
// its instance but the row, so that it need not be read.
func (h *TaskHub) noteFresh(claimed *delivery, row *wire.InstanceRow) {
	row.State.Input = nil // it is in the message, and can be large
	h.instances.CachedRows.Put(row.State.Instance.InstanceID, row)
	claimed.fresh = instances.NewInstance(row)
}
