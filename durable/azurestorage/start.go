package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// StartInstance implements [provider.Client].
//
// The row of an instance that is new is inserted before its message is sent:
// the insert finds out whether the ID is free, and the message never comes
// before the row. .NET reads first and sends before it writes, but takes either
// order (DurableTask.AzureStorage/AzureStorageOrchestrationService.cs,
// CreateTaskOrchestrationAsync). If the message cannot be sent the row is taken
// back.
//
// To replace an instance the message goes out before the row, as in .NET: what
// there was is lost only when the new start is sure. The message is dropped if
// the row is not replaced.
//
// Of two callers who start the same ID at the same time, the one who writes the
// row wins; the other gets the error, which .NET does not tell it.
func (h *TaskHub) StartInstance(ctx context.Context, start provider.TaskMessage, refuse []history.RuntimeStatus) error {
	given, ok := start.Event.(*history.ExecutionStarted)
	if !ok {
		return fmt.Errorf("start instance: the event is %s", start.Event.Type())
	}
	id := given.Instance.InstanceID
	if id == "" {
		return fmt.Errorf("start instance: it has no ID")
	}
	if err := checkID(id); err != nil {
		return fmt.Errorf("start instance: %w", err)
	}
	if err := h.startInstance(ctx, start, *given, refuse); err != nil {
		return fmt.Errorf("start instance %q: %w", id, err)
	}
	return nil
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
	before, err := h.startNew(ctx, start, &event)
	if before == nil || err != nil {
		return err
	}
	if slices.Contains(refuse, before.State.Status) {
		if err := h.startAgain(ctx, before); err != nil {
			h.log.Warn("start of a pending instance could not be sent again", "instanceId", event.Instance.InstanceID, "error", err)
		}
		return &provider.InstanceExistsError{InstanceID: event.Instance.InstanceID, Status: before.State.Status}
	}
	if generation == nil {
		event.Generation = new(before.State.Generation + 1)
	}
	return h.startAnew(ctx, start, &event, before)
}

// startNew starts an instance whose ID is free. If it is not, it returns the row
// of the instance that has it.
func (h *TaskHub) startNew(ctx context.Context, start provider.TaskMessage, event *history.ExecutionStarted) (taken *instanceRow, err error) {
	out, err := h.prepareStart(ctx, start)
	if err != nil {
		return nil, err
	}
	row, err := h.writeNewRow(ctx, event, nil, out.blob)
	if err == nil && row.State.Instance.ExecutionID == event.Instance.ExecutionID {
		err := h.sendStart(ctx, out, row)
		if err != nil {
			h.takeRowBack(ctx, row)
		}
		return nil, err
	}
	if out.claim {
		h.unclaim(out)
	}
	if out.blob != "" && (err == nil || wasNotApplied(err)) {
		if err := h.largeMessages.remove(ctx, out.blob); err != nil {
			h.log.Warn("blob of a start that was refused could not be deleted", "instanceId", event.Instance.InstanceID, "blob", out.blob, "error", err)
		}
	}
	return row, err
}

// startAnew starts an instance in the place of the one that has the row before.
func (h *TaskHub) startAnew(ctx context.Context, start provider.TaskMessage, event *history.ExecutionStarted, before *instanceRow) error {
	out, err := h.prepareStart(ctx, start)
	if err != nil {
		return err
	}
	sent, err := h.enqueue(ctx, out)
	if err != nil {
		return err
	}
	row, err := h.writeNewRow(ctx, event, before, out.blob)
	if err == nil && row.State.Instance.ExecutionID != event.Instance.ExecutionID {
		err = &provider.InstanceExistsError{InstanceID: event.Instance.InstanceID, Status: row.State.Status}
	}
	if err != nil && (isExists(err) || wasNotApplied(err)) {
		h.retract(ctx, []sentMessage{sent})
		return err
	}
	h.handOver(ctx, []sentMessage{sent}) // whoever receives it looks whether the row is there
	return err
}

func isExists(err error) bool { return errors.Is(err, provider.ErrInstanceExists) }

// prepareStart prepares a start message. It is claimed if this process runs the
// partition.
func (h *TaskHub) prepareStart(ctx context.Context, start provider.TaskMessage) (*outgoing, error) {
	p := h.partitionOf(start.Target.InstanceID)
	out := &outgoing{
		queue: p.queue, partition: p, duplicates: true,
		env: &envelope{Message: &start, Sender: &history.OrchestrationInstance{}},
	}
	h.reserve([]*outgoing{out})
	return out, h.prepare(ctx, out)
}

// sendStart sends the start of an instance that is new. If this process takes
// it, it need not read that there is nothing but the row.
func (h *TaskHub) sendStart(ctx context.Context, out *outgoing, row *instanceRow) error {
	sent, err := h.enqueue(ctx, out)
	if err != nil {
		return err
	}
	if sent.claimed != nil {
		row.State.Input = nil // it is in the message, and can be large
		h.rows.put(row.State.Instance.InstanceID, row)
		sent.claimed.fresh = &loadedInstance{
			storedHistory: storedHistory{executionID: row.State.Instance.ExecutionID, known: newKnownEvents()},
			row:           row, unverified: true,
		}
	}
	h.handOver(ctx, []sentMessage{sent})
	return nil
}

// takeRowBack deletes the row of an instance that will not start, if nobody has
// changed it.
func (h *TaskHub) takeRowBack(ctx context.Context, row *instanceRow) {
	id := row.State.Instance.InstanceID
	ctx, cancel := settling(ctx)
	defer cancel()
	err := retry(ctx, "delete row of instance "+id, func(ctx context.Context) error {
		_, err := h.instancesTable.transact(ctx, []tableOperation{{
			method: http.MethodDelete, entity: entity{PartitionKey: escapeKey(id)}, ifMatch: row.ETag,
		}})
		return err
	})
	if err != nil && !isConflict(err) {
		h.log.Warn("instance stays pending: its start could not be sent, and its row not be taken back", "instanceId", id, "error", err)
	}
}

// writeNewRow inserts the row of a new instance, or replaces the one that was
// read, and returns the row that is there afterwards: that of another execution
// if somebody was faster.
func (h *TaskHub) writeNewRow(ctx context.Context, event *history.ExecutionStarted, before *instanceRow, messageBlob string) (*instanceRow, error) {
	inputURL := ""
	if messageBlob != "" {
		inputURL = h.blobURL(messageBlob)
	}
	e := encodeNewInstance(event, h.cfg.TaskHub, inputURL, time.Now())
	if err := h.offloadInstance(ctx, &e); err != nil {
		return nil, err
	}
	var etag string
	err := retry(ctx, "write row of instance "+event.Instance.InstanceID, func(ctx context.Context) (err error) {
		if before == nil {
			etag, err = h.instancesTable.insert(ctx, e)
		} else {
			etag, err = h.instancesTable.replace(ctx, e, before.ETag)
		}
		return err
	})
	switch {
	case err == nil:
		row, err := decodeInstanceRow(e.JSON())
		if err != nil {
			return nil, err
		}
		row.ETag = etag
		return row, nil
	case !isConflict(err) && !isNotFound(err):
		return nil, err
	}
	// Somebody was faster, or an attempt whose answer was lost was our own.
	row, readErr := h.readInstanceRow(ctx, event.Instance.InstanceID)
	if readErr != nil {
		return nil, readErr
	}
	if row == nil {
		return nil, err
	}
	return row, nil
}
