package azurestorage

import (
	"context"
	"fmt"

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
		return fmt.Errorf("start instance: the event is %s", start.Event.Type())
	}
	id := given.Instance.InstanceID
	if id == "" {
		return fmt.Errorf("start instance: it has no ID")
	}
	if err := wire.CheckID(id); err != nil {
		return fmt.Errorf("start instance: %w", err)
	}
	if err := h.starts.start(ctx, start, *given, refuse); err != nil {
		return fmt.Errorf("start instance %q: %w", id, err)
	}
	return nil
}

// Send implements [provider.Client]. If it is not known whether the message
// arrived, the error says so; the message is then not sent again, since an event
// that is raised twice is two events.
func (h *TaskHub) Send(ctx context.Context, msg provider.TaskMessage) error {
	what := fmt.Sprintf("send %s to %q", msg.Event.Type(), msg.Target.InstanceID)
	if msg.Target.InstanceID == "" {
		return fmt.Errorf("%s: no instance is named", what)
	}
	if err := wire.CheckID(msg.Target.InstanceID); err != nil {
		return fmt.Errorf("send %s: %w", msg.Event.Type(), err)
	}
	if err := h.ensureCreated(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	p := h.partitionOf(msg.Target.InstanceID)
	out := []*outgoing{{queue: p.queue, partition: p, env: &wire.Envelope{Message: &msg, Sender: &history.OrchestrationInstance{}}}}
	h.reserve(out)
	sent, err := h.post(ctx, out[0])
	switch {
	case err == nil:
		h.handOver(ctx, []sentMessage{sent})
		return nil
	case store.IsTransient(err) && !store.WasNotApplied(err):
		return fmt.Errorf("%s: it may have arrived or not: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// History implements [provider.Client].
func (h *TaskHub) History(ctx context.Context, id string) ([]history.Event, error) {
	if wire.CheckID(id) != nil {
		return nil, nil
	}
	err := h.ensureCreated(ctx)
	if err != nil {
		return nil, err
	}
	stored, err := h.instances.Histories.View(ctx, id)
	if err != nil {
		return nil, err
	}
	return stored.Events, nil
}

// Instance implements [provider.Client].
func (h *TaskHub) Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	if err := wire.CheckID(id); err != nil {
		return nil, err
	}
	if err := h.ensureCreated(ctx); err != nil {
		return nil, err
	}
	return h.instances.Rows.State(ctx, id, fetch)
}

// Instances implements [provider.Client]. See [instances.Rows.Page] for the order and the size of pages.
func (h *TaskHub) Instances(ctx context.Context, q provider.Query) (page *provider.Page, err error) {
	if err = h.ensureCreated(ctx); err == nil {
		page, err = h.instances.Rows.Page(ctx, q)
	}
	if err != nil {
		return nil, fmt.Errorf("query instances: %w", err)
	}
	return page, nil
}
