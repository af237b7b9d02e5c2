package azurestorage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// StartInstance implements [provider.Client]. The message goes out before the
// row is written, as in .NET: if this process dies in between, no instance
// exists, its ID stays free, and the message is dropped in time because no row
// tells of it. The other way round there would be an instance that is pending
// for ever (DurableTask.AzureStorage/AzureStorageOrchestrationService.cs,
// CreateTaskOrchestrationAsync). A worker of this process is told of the message
// only after the row is there.
//
// Of two callers who start the same ID at the same time, the one who writes the
// row wins; the other gets the error, which .NET does not tell it, and its
// message is dropped.
func (h *TaskHub) StartInstance(ctx context.Context, start provider.TaskMessage, refuse []history.RuntimeStatus) error {
	given, ok := start.Event.(*history.ExecutionStarted)
	if !ok {
		return fmt.Errorf("start instance: the event is %s", start.Event.Type())
	}
	id := given.Instance.InstanceID
	if id == "" {
		return fmt.Errorf("start instance: it has no ID")
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
	id := event.Instance.InstanceID
	row, err := h.readInstanceRow(ctx, id)
	if err != nil {
		return err
	}
	if row != nil && slices.Contains(refuse, row.State.Status) {
		return &provider.InstanceExistsError{InstanceID: id, Status: row.State.Status}
	}
	if event.Instance.ExecutionID == "" {
		event.Instance.ExecutionID = strings.ReplaceAll(uuid.NewString(), "-", "")
	}
	if event.Generation == nil {
		event.Generation = new(nextGeneration(row))
	}
	start.Event, start.Target = &event, event.Instance
	p := h.partitionOf(id)
	sent, err := h.send(ctx, p.queue, &envelope{Message: &start, Sender: &history.OrchestrationInstance{}}, true)
	if err != nil {
		return err
	}
	if err := h.writeNewRow(ctx, &event, row, sent.blob); err != nil {
		return err
	}
	p.signal()
	return nil
}

// nextGeneration returns how often the instance was created before.
func nextGeneration(row *instanceRow) int {
	if row == nil {
		return 0
	}
	return row.State.Generation + 1
}

// writeNewRow inserts the row of a new instance, or replaces the one that was
// read.
func (h *TaskHub) writeNewRow(ctx context.Context, event *history.ExecutionStarted, before *instanceRow, messageBlob string) error {
	inputURL := ""
	if messageBlob != "" {
		inputURL = h.blobURL(messageBlob)
	}
	e := encodeNewInstance(event, h.cfg.TaskHub, inputURL, time.Now())
	for _, column := range e.largeColumns() {
		name := e.columnBlobName(column, rand.Uint32())
		if err := h.largeMessages.write(ctx, name, []byte(e.text(column))); err != nil {
			return err
		}
		if column == "Input" {
			e.offloadAsURL(column, h.blobURL(name))
		} else {
			e.offload(column, name)
		}
	}
	err := retry(ctx, "write row of instance "+event.Instance.InstanceID, func(ctx context.Context) (err error) {
		if before == nil {
			_, err = h.instancesTable.insert(ctx, e)
		} else {
			_, err = h.instancesTable.replace(ctx, e, before.ETag)
		}
		return err
	})
	if !isConflict(err) && !isNotFound(err) {
		return err
	}
	// Somebody was faster, or an attempt whose answer was lost was our own.
	row, readErr := h.readInstanceRow(ctx, event.Instance.InstanceID)
	switch {
	case readErr != nil:
		return readErr
	case row == nil:
		return err
	case row.State.Instance.ExecutionID == event.Instance.ExecutionID:
		return nil
	}
	return &provider.InstanceExistsError{InstanceID: event.Instance.InstanceID, Status: row.State.Status}
}

// Send implements [provider.Client]. If it is not known whether the message
// arrived, the error says so; the message is then not sent again, since an event
// that is raised twice is two events.
func (h *TaskHub) Send(ctx context.Context, msg provider.TaskMessage) error {
	what := fmt.Sprintf("send %s to %q", msg.Event.Type(), msg.Target.InstanceID)
	if msg.Target.InstanceID == "" {
		return fmt.Errorf("%s: no instance is named", what)
	}
	if err := h.ensureCreated(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	p := h.partitionOf(msg.Target.InstanceID)
	_, err := h.send(ctx, p.queue, &envelope{Message: &msg, Sender: &history.OrchestrationInstance{}}, false)
	switch {
	case err == nil:
		p.signal()
		return nil
	case isTransient(err) && !wasNotApplied(err):
		return fmt.Errorf("%s: it may have arrived or not: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// History implements [provider.Client].
func (h *TaskHub) History(ctx context.Context, id string) ([]history.Event, error) {
	err := h.ensureCreated(ctx)
	if err != nil {
		return nil, fmt.Errorf("read history of %q: %w", id, err)
	}
	stored, err := h.loadHistory(ctx, id, "")
	if err != nil {
		return nil, fmt.Errorf("read history of %q: %w", id, err)
	}
	return stored.events, nil
}

// Instance implements [provider.Client].
func (h *TaskHub) Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	if err := h.ensureCreated(ctx); err != nil {
		return nil, fmt.Errorf("read instance %q: %w", id, err)
	}
	row, err := h.fetchInstanceRow(ctx, id, fetch)
	if err != nil {
		return nil, err
	}
	if row == nil {
		return nil, fmt.Errorf("instance %q: %w", id, provider.ErrInstanceNotFound)
	}
	if err := h.resolveState(ctx, row); err != nil {
		return nil, err
	}
	return &row.State, nil
}

// resolveState reads the input and the output of a row that are in blobs.
func (h *TaskHub) resolveState(ctx context.Context, row *instanceRow) error {
	state := &row.State
	if row.InputBlob != "" {
		text, err := h.largeMessages.read(ctx, row.InputBlob)
		if err != nil {
			return fmt.Errorf("read input of instance %q: %w", state.Instance.InstanceID, err)
		}
		state.Input = new(string(text))
	}
	for _, v := range []struct {
		name  string
		field **string
	}{{"input", &state.Input}, {"output", &state.Output}} {
		if *v.field == nil {
			continue
		}
		blob, ok := blobNameFromURL(h.largeMessages.url, **v.field)
		if !ok {
			continue
		}
		text, err := h.readReference(ctx, blob)
		if err != nil {
			return fmt.Errorf("read %s of instance %q: %w", v.name, state.Instance.InstanceID, err)
		}
		*v.field = text
	}
	return nil
}

// readReference returns the value that a blob stands for: that of a start
// message is its input.
func (h *TaskHub) readReference(ctx context.Context, blob string) (*string, error) {
	text, err := h.largeMessages.read(ctx, blob)
	if err != nil {
		return nil, err
	}
	if !isStartMessageBlob(blob) {
		return new(string(text)), nil
	}
	env, err := decodeEnvelope(string(text))
	if err != nil {
		return nil, fmt.Errorf("start message %s: %w", blob, err)
	}
	if env.Message != nil {
		if start, ok := env.Message.Event.(*history.ExecutionStarted); ok {
			return start.Input, nil
		}
	}
	return nil, fmt.Errorf("blob %s is not a start message", blob)
}
