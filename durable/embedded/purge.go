package embedded

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var (
	_ provider.Checker  = (*Hub)(nil)
	_ provider.Purger   = (*Hub)(nil)
	_ provider.Rewinder = (*Hub)(nil)
)

// Purge implements [provider.Purger]. What is pending for the instance goes
// with it, and so an entity for which something is stays, if it was seen;
// activities that were scheduled still run.
func (h *Hub) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	err := h.writer.Do(ctx, func(t *txn) error {
		r, err := t.row(id)
		if err != nil {
			return err
		}
		if r == nil {
			return logstore.Refuse(provider.ErrInstanceNotFound)
		}
		if seen != nil {
			if err := t.checkSeen(id, r, seen); err != nil {
				return err
			}
		}
		if err := t.removeExecution(r.number); err != nil {
			return err
		}
		t.Remove(instancesTable, []byte(id))
		t.cancel(id, func(*message) bool { return true })
		t.Then(func() { h.replaced(id) })
		return nil
	})
	if err != nil {
		return fmt.Errorf("purge instance %s: %w", id, err)
	}
	return nil
}

// checkSeen returns an error if an instance is not as it was seen.
func (t *txn) checkSeen(id string, r *row, seen *provider.InstanceState) error {
	now, err := t.state(id, r, provider.Fetch{})
	if err != nil {
		return err
	}
	if !now.SameAs(seen) || history.IsEntity(id) && len(t.pending(id)) > 0 {
		return logstore.Refuse(provider.ErrInstanceChanged)
	}
	return nil
}

// Rewind implements [provider.Rewinder], as one transaction.
func (h *Hub) Rewind(ctx context.Context, id, reason string) error {
	at := time.Now()
	var plan *provider.RewindPlan
	err := h.writer.Do(ctx, func(t *txn) error {
		r, err := t.row(id)
		if err != nil {
			return err
		}
		if r != nil && !provider.CanRewind(r.status) {
			return logstore.Refuse(provider.ErrInstanceChanged)
		}
		plan, err = provider.PlanRewind(ctx, id, reason, at, func(_ context.Context, id string) ([]history.Event, error) {
			r, err := t.row(id)
			if r == nil || err != nil {
				return nil, err
			}
			return t.events(r.number)
		})
		if err != nil {
			return logstore.Refuse(err)
		}
		for _, x := range plan.Executions {
			if err := t.rewind(x, at); err != nil {
				return err
			}
		}
		for _, m := range plan.Messages {
			record, err := encodeMessage(m)
			if err == nil {
				err = t.send(record, m)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("rewind instance %s: %w", id, err)
	}
	for _, x := range plan.Executions {
		h.log.Info("instance rewound", "event", "FunctionRewound", "instanceId", x.Instance.InstanceID, "executionId", x.Instance.ExecutionID, "reason", reason)
	}
	return nil
}

// rewind takes events out of an instance's history, and lets it go on.
func (t *txn) rewind(x provider.RewoundExecution, at time.Time) error {
	id := x.Instance.InstanceID
	r, err := t.row(id)
	if err != nil {
		return err
	}
	if r == nil {
		return fmt.Errorf("instance %s has a history and no row", id)
	}
	episodes, err := t.Group(historyTable, r.number)
	if err != nil {
		return err
	}
	past, err := t.events(r.number)
	if err != nil {
		return err
	}
	rewound := x.Apply(past)
	begin := 0
	for _, e := range episodes { // those that stay the same are written again: it is rare
		events, err := decodeEpisode(nil, e.Value)
		if err != nil {
			return t.Damage(historyTable, []byte(e.Key), err)
		}
		record, err := encodeEpisode(rewound[begin : begin+len(events)])
		if err != nil {
			return err
		}
		t.Put(historyTable, []byte(e.Key), record)
		begin += len(events)
	}
	if slices.ContainsFunc(past, isEnd) {
		if err := t.restoreTimers(x.Instance, rewound); err != nil {
			return err
		}
	}
	r.status, r.updated = history.Pending, history.Ticks(at)
	if err := t.putRow(id, r); err != nil {
		return err
	}
	t.Then(func() { t.h.replaced(id) })
	return nil
}

func isEnd(e history.Event) bool {
	_, ok := e.(*history.ExecutionCompleted)
	return ok
}

// restoreTimers stores the timers again that an execution waits for according to
// its history: those that it had were deleted when it ended.
func (t *txn) restoreTimers(instance history.OrchestrationInstance, past []history.Event) error {
	fired := make(map[int]bool)
	for _, e := range past {
		if e, ok := e.(*history.TimerFired); ok {
			fired[e.TimerID] = true
		}
	}
	t.cancelTimers(instance.InstanceID) // those that came with the history from another hub
	for _, e := range past {
		created, ok := e.(*history.TimerCreated)
		if !ok || fired[created.EventID] {
			continue
		}
		m := provider.TaskMessage{
			Event:  &history.TimerFired{Header: history.NewHeader(created.Timestamp), TimerID: created.EventID, FireAt: created.FireAt},
			Target: instance,
		}
		record, err := encodeMessage(m)
		if err != nil {
			return err
		}
		t.addTimer(record, m, created.FireAt)
	}
	return nil
}
