package azurestorage

import (
	"context"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

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
	stored, err := h.viewHistory(ctx, id)
	if err != nil {
		return nil, err
	}
	return stored.events, nil
}

// Instance implements [provider.Client].
func (h *TaskHub) Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	if err := wire.CheckID(id); err != nil {
		return nil, err
	}
	if err := h.ensureCreated(ctx); err != nil {
		return nil, err
	}
	row, err := h.fetchInstanceRow(ctx, id, fetch)
	if err != nil {
		return nil, err
	}
	if row == nil {
		return nil, fmt.Errorf("instance %q: %w", id, provider.ErrInstanceNotFound)
	}
	if err := h.resolveState(ctx, row, wire.MaxDecompressed); err != nil {
		return nil, err
	}
	return &row.State, nil
}

// resolveState reads the input and the output of a row that are in blobs, if none is
// longer than limit.
func (h *TaskHub) resolveState(ctx context.Context, row *wire.InstanceRow, limit int64) error {
	state := &row.State
	if row.InputBlob != "" {
		text, err := h.largeMessages.ReadUpTo(ctx, row.InputBlob, limit)
		if err != nil {
			return fmt.Errorf("read input of instance %q: %w", state.Instance.InstanceID, err)
		}
		state.Input = new(string(text))
	}
	if row.TagsBlob != "" {
		text, err := h.largeMessages.ReadUpTo(ctx, row.TagsBlob, limit)
		if err != nil {
			return fmt.Errorf("read tags of instance %q: %w", state.Instance.InstanceID, err)
		}
		if err := row.DecodeTags(string(text)); err != nil {
			return err
		}
	}
	for _, v := range []struct {
		name  string
		field **string
	}{{"input", &state.Input}, {"output", &state.Output}} {
		if *v.field == nil {
			continue
		}
		blob, ok := wire.OwnBlobName(h.largeMessages.URL, state.Instance.InstanceID, **v.field)
		if !ok {
			continue
		}
		text, err := h.readReference(ctx, blob, limit)
		if err != nil {
			return fmt.Errorf("read %s of instance %q: %w", v.name, state.Instance.InstanceID, err)
		}
		*v.field = text
	}
	return nil
}

// readReference returns the value that a blob stands for: that of a start
// message is its input. It fails if the blob's text is longer than limit.
func (h *TaskHub) readReference(ctx context.Context, blob string, limit int64) (*string, error) {
	text, err := h.largeMessages.ReadUpTo(ctx, blob, limit)
	if err != nil {
		return nil, err
	}
	if !wire.IsStartMessageBlob(blob) {
		return new(string(text)), nil
	}
	env, err := wire.DecodeEnvelopeJSON(text)
	if err != nil {
		return nil, &wire.DamageError{Cause: fmt.Errorf("start message %s: %w", blob, err)}
	}
	if env.Message != nil {
		if start, ok := env.Message.Event.(*history.ExecutionStarted); ok {
			return start.Input, nil
		}
	}
	return nil, &wire.DamageError{Cause: fmt.Errorf("blob %s is not a start message", blob)}
}
