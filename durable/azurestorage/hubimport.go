package azurestorage

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
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
	for _, t := range []*table{h.instancesTable, h.historyTable} {
		for q := (tableQuery{top: 1}); ; {
			rows, continuation, err := t.page(ctx, q)
			if err != nil {
				return err
			}
			if len(rows) > 0 {
				return fmt.Errorf("table %s has rows: %w", t.name, provider.ErrHubNotEmpty)
			}
			if q.continuation = continuation; continuation == "" {
				break
			}
		}
	}
	for _, q := range append([]*messageQueue{h.workItems}, h.controlQueues...) {
		n, err := q.length(ctx)
		if err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("queue %s has %d messages: %w", q.name, n, provider.ErrHubNotEmpty)
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
		rows, err := h.offloadedRows(ctx, state.Instance.InstanceID, state.Instance.ExecutionID, 0, past)
		if err != nil {
			return err
		}
		if _, _, err := h.appendHistory(ctx, state.Instance, rows, ""); err != nil {
			return err
		}
	}
	e := encodeImportedInstance(state, h.cfg.TaskHub)
	if err := h.offloadInstance(ctx, &e); err != nil {
		return err
	}
	return retry(ctx, "write row of instance "+state.Instance.InstanceID, func(ctx context.Context) error {
		_, err := h.instancesTable.merge(ctx, e, "")
		return err
	})
}

// encodeImportedInstance returns the row of an instance that is as state says.
func encodeImportedInstance(s *provider.InstanceState, taskHub string) entity {
	e := entity{PartitionKey: escapeKey(s.Instance.InstanceID)}
	e.setInline("Input", s.Input)
	e.setTime("CreatedTime", s.CreatedAt)
	e.setOptionalTime(firstCreatedColumn, s.FirstCreatedAt)
	e.setName(s.Name)
	e.setString("Version", s.Version)
	e.setString("RuntimeStatus", s.Status.String())
	e.setTime("LastUpdatedTime", s.LastUpdatedAt)
	e.setString("TaskHubName", taskHub)
	e.setOptionalTime("ScheduledStartTime", s.ScheduledAt)
	e.setOptionalTime("CompletedTime", s.CompletedAt)
	e.setString("ExecutionId", s.Instance.ExecutionID)
	e.setInt("Generation", s.Generation)
	e.setString("Tags", tagsColumn(s.Tags))
	e.setInline("Output", s.Output)
	customStatus := jsonNull
	if s.CustomStatus != nil {
		customStatus = *s.CustomStatus
	}
	e.setString("CustomStatus", customStatus)
	e.fit()
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

func (im *hubImport) send(ctx context.Context, q *messageQueue, msg provider.TaskMessage) error {
	if !im.messages {
		if err := im.group.Wait(); err != nil {
			return err
		}
		im.messages = true
	}
	env := &envelope{Message: &msg, Sender: &history.OrchestrationInstance{}}
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
	count := func(t *table, filter string, n *int) error {
		q := tableQuery{filter: filter, columns: []string{"PartitionKey"}}
		return t.all(ctx, q, func([]byte) error {
			*n++
			return nil
		})
	}
	if err := count(h.instancesTable, "", &totals.Instances); err != nil {
		return totals, err
	}
	if err := count(h.historyTable, "RowKey ne '"+sentinelRowKey+"'", &totals.Events); err != nil {
		return totals, err
	}
	if totals.Activities, err = h.workItems.length(ctx); err != nil {
		return totals, err
	}
	for _, q := range h.controlQueues {
		n, err := q.length(ctx)
		if err != nil {
			return totals, err
		}
		totals.Messages += n
	}
	return totals, nil
}
