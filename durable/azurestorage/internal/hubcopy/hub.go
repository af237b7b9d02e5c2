// Package hubcopy exports the content of a task hub and imports it into another: instances with their
// histories, and the messages in flight. No worker may own a partition of either hub.
//
// An export first reads all rows and histories. Then it receives all messages, and compares them with
// the histories until every expected message is found. Messages that are hidden for a known reason,
// such as timers, are reconstructed. An import writes rows and histories before any message.
package hubcopy

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"golang.org/x/sync/errgroup"
)

// A Hub contains the parts of a task hub that a copy uses.
type Hub struct {
	Name      string
	Instances *instances.Store
	WorkItems *store.Queue
	Queues    []*store.Queue // all queues, control queues first
	// QueueOf returns the control queue of an instance.
	QueueOf func(instanceID string) *store.Queue
	// PoisonQueue returns the queue for messages of q that were set aside.
	PoisonQueue func(q *store.Queue) *store.Queue
	// HiddenFor is the longest time for which a crashed worker may have hidden a message.
	HiddenFor time.Duration
	// Read decodes the text of a message and reads its blob if it has one.
	Read func(ctx context.Context, text string) (*wire.Envelope, error)
	// Send enqueues a message. Duplicates are harmless.
	Send func(ctx context.Context, q *store.Queue, env *wire.Envelope) error
	// HiddenError returns an error that reports messages which the export cannot receive. hidden is
	// the number of unexplained hidden messages. missing is the number of messages that must exist
	// according to the histories and were not received.
	HiddenError func(hidden, missing int) error
	// CheckIdle fails if a worker owns a partition of the hub.
	CheckIdle func(ctx context.Context) error
	Log       *slog.Logger
}

// Export implements [provider.Portable] for a hub without workers.
func (h *Hub) Export(ctx context.Context, w provider.HubWriter, o provider.ExportOptions) error {
	x := &export{hub: h, to: w, options: o, startedAt: time.Now(), instances: map[string]*exported{}, received: map[string]*receivedMessage{}}
	if err := x.exportInstances(ctx); err != nil {
		return err
	}
	defer x.releaseMessages(ctx)
	if err := x.receiveAll(ctx); err != nil {
		return err
	}
	if err := x.reportAside(ctx); err != nil {
		return err
	}
	if err := x.exportMessages(ctx); err != nil {
		return err
	}
	return h.CheckIdle(ctx) // a worker that started meanwhile may have changed the data
}

// Import implements [provider.Portable] for a hub without workers. It writes histories and rows before
// any message, so that nothing can run after an interrupted import.
func (h *Hub) Import(ctx context.Context, fill func(provider.HubWriter) error) error {
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
	if filled != nil {
		return filled
	}
	for _, m := range im.ended {
		if err := im.Message(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// checkEmpty fails with [provider.ErrHubNotEmpty] if the hub has an instance or a message.
func (h *Hub) checkEmpty(ctx context.Context) error {
	for _, t := range []*store.Table{h.Instances.RowTable, h.Instances.HistoryTable} {
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
	for _, q := range h.Queues {
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

// Totals implements [provider.Portable].
func (h *Hub) Totals(ctx context.Context) (totals provider.Totals, err error) {
	count := func(t *store.Table, filter string, n *int) error {
		q := store.Query{Filter: filter, Columns: []string{"PartitionKey"}}
		return t.All(ctx, q, func([]byte) error {
			*n++
			return nil
		})
	}
	if err := count(h.Instances.RowTable, "", &totals.Instances); err != nil {
		return totals, err
	}
	if err := count(h.Instances.HistoryTable, "RowKey ne '"+wire.SentinelRowKey+"'", &totals.Events); err != nil {
		return totals, err
	}
	for _, q := range h.Queues {
		n, err := q.Length(ctx)
		if err != nil {
			return totals, err
		}
		if q == h.WorkItems {
			totals.Activities = n
		} else {
			totals.Messages += n
		}
	}
	return totals, nil
}

// write writes the history and the row of an instance.
func (h *Hub) write(ctx context.Context, state *provider.InstanceState, past []history.Event) error {
	if len(past) > 0 {
		rows, err := h.Instances.Histories.Encode(ctx, state.Instance.InstanceID, state.Instance.ExecutionID, 0, past)
		if err != nil {
			return err
		}
		if _, _, err := h.Instances.Histories.Append(ctx, state.Instance, rows, "", nil); err != nil {
			return err
		}
	}
	e := encodeImportedInstance(state, h.Name)
	if err := h.Instances.Rows.Offload(ctx, &e); err != nil {
		return err
	}
	return store.Retry(ctx, "write row of instance "+state.Instance.InstanceID, func(ctx context.Context) error {
		_, err := h.Instances.RowTable.Merge(ctx, e, "")
		return err
	})
}

// importsAtOnce is the maximum number of instances that are written concurrently.
const importsAtOnce = 8

// A hubImport is the HubWriter of an import.
type hubImport struct {
	hub      *Hub
	group    *errgroup.Group
	ctx      context.Context        // ends when a write of the group fails
	messages bool                   // all instances are written
	episodes map[string]int         // number of episodes, by instance ID
	ended    []provider.TaskMessage // see timersAfterEnd
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
	im.ended = append(im.ended, timersAfterEnd(state, past, time.Now())...)
	im.group.Go(func() error {
		if err := im.hub.write(im.ctx, state, past); err != nil {
			return fmt.Errorf("import instance %q: %w", state.Instance.InstanceID, err)
		}
		return nil
	})
	return nil
}

// encodeImportedInstance returns the row of an instance with the given state.
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
	e.ShortenColumns()
	return e
}

// Activity implements [provider.HubWriter].
func (im *hubImport) Activity(ctx context.Context, task provider.TaskMessage) error {
	return im.send(ctx, im.hub.WorkItems, task)
}

// Message implements [provider.HubWriter].
func (im *hubImport) Message(ctx context.Context, msg provider.TaskMessage) error {
	return im.send(ctx, im.hub.QueueOf(msg.Target.InstanceID), msg)
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
	case *history.TaskScheduled, *history.TimerFired: // the receiver is the sender
		env.Sender, env.Episode = &msg.Target, new(im.episodes[msg.Target.InstanceID])
	}
	return im.hub.Send(ctx, q, env)
}
