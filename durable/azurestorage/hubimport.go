package azurestorage

import (
	"context"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"golang.org/x/sync/errgroup"
)

// Import implements [provider.Portable]. Histories and rows are written before
// any message, so that what is cut off has nothing that runs.
func (h *TaskHub) Import(ctx context.Context, fill func(provider.HubWriter) error) error {
	if err := h.ensureCreated(ctx); err != nil {
		return err
	}
	if err := h.checkIdle(ctx); err != nil {
		return err
	}
	if err := h.checkEmpty(ctx); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(importsAtOnce)
	im := &hubImport{hub: h, group: group, ctx: groupCtx, episodes: map[string]int{}}
	filled := fill(im)
	if err := group.Wait(); err != nil {
		return err
	}
	return filled
}

// importsAtOnce is how many instances are written at a time.
const importsAtOnce = 8

// checkEmpty fails with [provider.ErrHubNotEmpty] if the hub has an instance or
// a message.
func (h *TaskHub) checkEmpty(ctx context.Context) error {
	for _, t := range []*store.Table{h.instances.Rows.Table, h.instances.Histories.Table} {
		for q := (store.Query{Top: 1}); ; {
			rows, continuation, err := t.Page(ctx, q)
			if err != nil {
				return err
			}
			if len(rows) > 0 {
				return fmt.Errorf("table %s has rows: %w", t.Name, provider.ErrHubNotEmpty)
			}
			if q.Continuation = continuation; continuation == "" {
				break
			}
		}
	}
	for _, q := range append([]*store.Queue{h.workItems}, h.controlQueues...) {
		n, err := q.Length(ctx)
		if err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("queue %s has %d messages: %w", q.Name, n, provider.ErrHubNotEmpty)
		}
	}
	return nil
}

// A hubImport writes what is imported.
type hubImport struct {
	hub      *TaskHub
	group    *errgroup.Group
	ctx      context.Context // ends when one of the group has failed
	messages bool            // all instances are written
	episodes map[string]int  // of each instance
}

// Instance implements [provider.HubWriter].
func (im *hubImport) Instance(_ context.Context, state *provider.InstanceState, past []history.Event) error {
	if err := context.Cause(im.ctx); err != nil {
		return err
	}
	episodes := 0
	for _, ev := range past {
		if ev.Type() == history.TypeOrchestratorStarted {
			episodes++
		}
	}
	im.episodes[state.Instance.InstanceID] = episodes
	im.group.Go(func() error {
		if err := im.hub.importInstance(im.ctx, state, past); err != nil {
			return fmt.Errorf("import instance %q: %w", state.Instance.InstanceID, err)
		}
		return nil
	})
	return nil
}

func (h *TaskHub) importInstance(ctx context.Context, state *provider.InstanceState, past []history.Event) error {
	if len(past) > 0 {
		rows, err := h.instances.Histories.Encode(ctx, state.Instance.InstanceID, state.Instance.ExecutionID, 0, past)
		if err != nil {
			return err
		}
		if _, _, err := h.instances.Histories.Append(ctx, state.Instance, rows, "", nil); err != nil {
			return err
		}
	}
	e := encodeImportedInstance(state, h.cfg.TaskHub)
	if err := h.instances.Rows.Offload(ctx, &e); err != nil {
		return err
	}
	return store.Retry(ctx, "write row of instance "+state.Instance.InstanceID, func(ctx context.Context) error {
		_, err := h.instances.Rows.Table.Merge(ctx, e, "")
		return err
	})
}

// encodeImportedInstance returns the row of an instance that is as state says.
func encodeImportedInstance(s *provider.InstanceState, taskHub string) wire.Row {
	e := wire.Row{PartitionKey: wire.EscapeKey(s.Instance.InstanceID)}
	e.SetInline("Input", s.Input)
	e.SetTime("CreatedTime", s.CreatedAt)
	e.SetOptionalTime(wire.FirstCreatedColumn, s.FirstCreatedAt)
	e.SetName(s.Name)
	e.SetString("Version", s.Version)
	e.SetString("RuntimeStatus", s.Status.String())
	e.SetTime("LastUpdatedTime", s.LastUpdatedAt)
	e.SetString("TaskHubName", taskHub)
	e.SetOptionalTime("ScheduledStartTime", s.ScheduledAt)
	e.SetOptionalTime("CompletedTime", s.CompletedAt)
	e.SetString("ExecutionId", s.Instance.ExecutionID)
	e.SetInt("Generation", s.Generation)
	e.SetString("Tags", wire.TagsColumn(s.Tags))
	e.SetInline("Output", s.Output)
	customStatus := wire.JSONNull
	if s.CustomStatus != nil {
		customStatus = *s.CustomStatus
	}
	e.SetString("CustomStatus", customStatus)
	e.Fit()
	return e
}

// Activity implements [provider.HubWriter].
func (im *hubImport) Activity(ctx context.Context, task provider.TaskMessage) error {
	return im.send(ctx, im.hub.workItems, task)
}

// Message implements [provider.HubWriter].
func (im *hubImport) Message(ctx context.Context, msg provider.TaskMessage) error {
	return im.send(ctx, im.hub.partitionOf(msg.Target.InstanceID).queue, msg)
}

func (im *hubImport) send(ctx context.Context, q *store.Queue, msg provider.TaskMessage) error {
	if !im.messages {
		if err := im.group.Wait(); err != nil {
			return err
		}
		im.messages = true
	}
	env := &wire.Envelope{Message: &msg, Sender: &history.OrchestrationInstance{}}
	switch msg.Event.(type) {
	case *history.TaskScheduled, *history.TimerFired: // sent by the instance that they are for
		env.Sender, env.Episode = &msg.Target, new(im.episodes[msg.Target.InstanceID])
	}
	_, err := im.hub.send(ctx, q, env, true)
	return err
}

// Totals implements [provider.Portable].
func (h *TaskHub) Totals(ctx context.Context) (totals provider.Totals, err error) {
	if err := h.checkExists(ctx); err != nil {
		return totals, err
	}
	count := func(t *store.Table, filter string, n *int) error {
		q := store.Query{Filter: filter, Columns: []string{"PartitionKey"}}
		return t.All(ctx, q, func([]byte) error {
			*n++
			return nil
		})
	}
	if err := count(h.instances.Rows.Table, "", &totals.Instances); err != nil {
		return totals, err
	}
	if err := count(h.instances.Histories.Table, "RowKey ne '"+wire.SentinelRowKey+"'", &totals.Events); err != nil {
		return totals, err
	}
	if totals.Activities, err = h.workItems.Length(ctx); err != nil {
		return totals, err
	}
	for _, q := range h.controlQueues {
		n, err := q.Length(ctx)
		if err != nil {
			return totals, err
		}
		totals.Messages += n
	}
	return totals, nil
}
