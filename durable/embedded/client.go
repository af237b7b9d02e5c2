package embedded

import (
	"context"
	"fmt"
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// StartInstance implements [provider.Client].
func (h *Hub) StartInstance(ctx context.Context, msg provider.TaskMessage, refuse []history.RuntimeStatus) error {
	given, ok := msg.Event.(*history.ExecutionStarted)
	if !ok {
		return fmt.Errorf("start instance %s: the message is a %T", msg.Target.InstanceID, msg.Event)
	}
	id := msg.Target.InstanceID
	if err := checkID(id); err != nil {
		return fmt.Errorf("start instance: %w", err)
	}
	err := h.writer.Do(ctx, func(t *txn) error {
		r, err := t.row(id)
		if err != nil {
			return err
		}
		if r != nil && slices.Contains(refuse, r.status) {
			return logstore.Refuse(&provider.InstanceExistsError{InstanceID: id, Status: r.status})
		}
		// Unless the client counts, as DurableTask.AzureStorage does
		// (AzureStorageOrchestrationService.cs, CreateTaskOrchestrationAsync).
		start := new(*given)
		if start.Generation == nil {
			start.Generation = new(int)
			if r != nil {
				*start.Generation = r.generation + 1
			}
		}
		m := msg
		m.Event = start
		record, err := encodeMessage(m)
		if err != nil {
			return err
		}
		return t.begin(id, r, start, record, m)
	})
	if err != nil {
		return fmt.Errorf("start instance %s: %w", id, err)
	}
	return nil
}

// Send implements [provider.Client].
func (h *Hub) Send(ctx context.Context, msg provider.TaskMessage) error {
	if err := checkID(msg.Target.InstanceID); err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	record, err := encodeMessage(msg)
	if err == nil {
		err = h.writer.Do(ctx, func(t *txn) error { return t.send(record, msg) })
	}
	if err != nil {
		return fmt.Errorf("send message to instance %s: %w", msg.Target.InstanceID, err)
	}
	return nil
}

// Instance implements [provider.Client].
func (h *Hub) Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var state *provider.InstanceState
	err := h.read("read instance "+id, func(t tables) error {
		r, err := t.row(id)
		if err != nil {
			return err
		}
		if r == nil {
			return provider.ErrInstanceNotFound
		}
		state, err = t.state(id, r, fetch)
		return err
	})
	return state, err
}

// History implements [provider.Client].
func (h *Hub) History(ctx context.Context, id string) ([]history.Event, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var past []history.Event
	err := h.read("read history of instance "+id, func(t tables) error {
		r, err := t.row(id)
		if r == nil || err != nil {
			return err
		}
		past, err = t.events(r.number)
		return err
	})
	return past, err
}

// state returns what is known of an instance.
func (t tables) state(id string, r *row, fetch provider.Fetch) (*provider.InstanceState, error) {
	s := r.state(id)
	var err error
	if s.LastUpdatedAt, err = t.updated(r); err != nil {
		return nil, err
	}
	for _, p := range []struct {
		wanted bool
		which  byte
		from   payload
		to     **string
	}{
		{fetch.Input, inputPayload, r.input, &s.Input},
		{fetch.Output, outputPayload, r.output, &s.Output},
		{true, customPayload, r.custom, &s.CustomStatus},
	} {
		if !p.wanted {
			continue
		}
		if *p.to, err = t.payload(r, p.which, p.from); err != nil {
			return nil, err
		}
	}
	return s, nil
}
