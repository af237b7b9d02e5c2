package azurestorage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inbound"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/outbound"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/uuid"
)

// A commit writes a checkpoint. It can be interrupted between any two of these steps
// (DurableTask.AzureStorage/AzureStorageOrchestrationService.cs,
// CompleteTaskOrchestrationWorkItemAsync):
//
//  1. Send the messages, in parallel. If the process dies now, the episode runs again and sends
//     them again; receivers recognize duplicates. If another worker turns out to run the instance,
//     the commit retracts the messages that are still in their queues. Messages of an entity's
//     batch are enqueued hidden and become visible after step 2 (see [grantDelay] for locks).
//  2. Append to the history, if it is unchanged since it was read. This commits the checkpoint. A
//     worker that receives one of the messages earlier holds it back.
//  3. Write the instance row. If the worker dies before this, the next checkpoint or a redelivered
//     message repairs the row.
//  4. Delete the consumed messages, in parallel. A message that is not deleted is redelivered, and
//     the history identifies it as a duplicate.
//
// While steps run, one message is not deleted (see wake.go).
//
// A message is not deleted before the row is written, because no further checkpoint may follow to
// repair the row. The commit waits for step 3 only if clients depend on the new status: an end, a
// suspension or a resumption. Otherwise the row is written in the background. Then only the end of
// the session and the next row write wait for it. The first Running status is delayed in addition
// (see [rowDelay]): the next checkpoint writes it, or skips it if the row changes anyway.
type commit struct {
	*session
	cp *provider.Checkpoint
}

// A committer has the parts of the hub that a commit uses.
type committer struct {
	instances  *instances.Store
	sender     *outbound.Sender
	partitions inbound.Partitions
	activities *inbound.ActivityQueue
	tracking   *tracker
	late       *lateRows
	superseded *recentExecutions // executions that this process has replaced by their next generation
}

// sendOnly handles a checkpoint without new events: it sends the messages and deletes the consumed
// ones.
func (c *commit) sendOnly(ctx context.Context) error {
	if err := c.checkUnchanged(ctx, c.Loaded.Unverified || len(c.cp.Messages) > 0 && c.mayBeLost()); err != nil {
		return err
	}
	c.Loaded.Unverified = false
	if err := c.keepWake(ctx); err != nil {
		return err
	}
	if len(c.cp.Messages) > 0 {
		sent, err := c.send(ctx)
		if err != nil {
			c.sender.Retract(ctx, sent)
			return err
		}
		c.sender.HandOver(ctx, sent)
	}
	c.removeConsumed(ctx)
	return nil
}

func (c *commit) write(ctx context.Context) error {
	if len(c.cp.NewEvents) == 0 {
		return c.sendOnly(ctx)
	}
	if c.cp.Instance.InstanceID != c.InstanceID {
		return fmt.Errorf("the checkpoint is for %q", c.cp.Instance.InstanceID)
	}
	if err := c.checkUnchanged(ctx, c.mayBeLost()); err != nil {
		return err
	}
	var err error
	if c.tracked, err = c.tracking.plan(ctx, c.session, c.cp); err != nil {
		return err
	}
	if err := c.keepWake(ctx); err != nil {
		return err
	}
	rows, err := c.writeHistory(ctx)
	if err != nil {
		return err
	}
	if err := c.finish(ctx, rows); err != nil {
		for _, d := range c.Current {
			d.MarkCommitted()
		}
		return err
	}
	return nil
}

// finish does steps 3 and 4 of a commit, after the history is written.
func (c *commit) finish(ctx context.Context, rows []wire.Row) error {
	if err := c.tracking.commit(ctx, c.InstanceID, c.Loaded, c.tracked); err != nil {
		return err
	}
	consumed, skipped := c.takeOverRow()
	u := c.instances.RowUpdateFor(c.Loaded, c.cp, rows, skipped.updateOrNil())
	if u != nil && u.MayFollowCommit() && c.writeRowLater(ctx, u, consumed, skipped) {
		return nil
	}
	c.Current = append(c.Current, consumed...)
	if u != nil {
		if c.wake != nil {
			if err := c.wake.Safety.Enqueue(ctx); err != nil {
				return err
			}
		}
		var err error
		c.Loaded.Row, err = u.Write(ctx)
		c.late.started.remove(c.InstanceID)
		if err != nil {
			return err
		}
	}
	c.removeConsumed(ctx)
	return nil
}

// writeHistory does steps 1 and 2 of a commit and returns the appended rows. If the write has no
// clear result, it makes the messages visible: their receivers find out whether the history has
// them.
func (c *commit) writeHistory(ctx context.Context) ([]wire.Row, error) {
	if err := outbound.EnqueueOne(ctx, c.Current, c.sendsToOthers()); err != nil {
		return nil, err
	}
	sent, err := c.send(ctx)
	if err != nil {
		c.sender.Retract(ctx, sent)
		return nil, err
	}
	ordinal := c.ordinal
	if c.cp.ContinuedAsNew {
		ordinal = 0
	}
	rows, err := c.instances.Histories.Encode(ctx, c.InstanceID, c.cp.Instance.ExecutionID, ordinal, c.cp.NewEvents)
	if err != nil {
		c.sender.Retract(ctx, sent)
		return nil, err
	}
	etag, written, err := c.instances.Histories.Append(store.RetryBefore(ctx, c.Partition.LeaseEnd()), c.cp.Instance, rows, c.Loaded.ETag, c.sentinelExtras())
	switch {
	case err == nil:
	case written == 0 && errors.Is(err, provider.ErrSessionLost) && !c.mayHaveCommitted(err):
		c.sender.Retract(ctx, sent)
		return nil, err
	default:
		c.sender.ReleaseSent(ctx, sent)
		return nil, err
	}
	if c.cp.HideUntilDeleted {
		c.removeConsumed(ctx)
	}
	if err := c.sender.PublishBatch(ctx, sent); err != nil {
		c.sender.ReleaseSent(ctx, sent)
		return nil, fmt.Errorf("the history is written, but not all messages are visible: %w", err)
	}
	c.sender.HandOver(ctx, sent)
	return rows, c.advance(etag, ordinal, rows)
}

// sendsToOthers reports whether the checkpoint has messages to other instances.
func (c *commit) sendsToOthers() bool {
	return slices.ContainsFunc(c.cp.Messages, func(m provider.TaskMessage) bool { return m.Target.InstanceID != c.InstanceID })
}

// mayHaveCommitted reports whether err leaves open that the checkpoint was committed: the history
// now has another execution, which may be its next generation.
func (c *commit) mayHaveCommitted(err error) bool {
	other, ok := errors.AsType[*instances.OtherExecutionError](err)
	return ok && other.ExecutionID != c.ExecutionID()
}

// sentinelExtras returns the columns of the sentinel that .NET does not write.
func (c *commit) sentinelExtras() map[string]string {
	extras := map[string]string{}
	c.tracked.AddColumn(extras)
	if first := c.firstExecution(); first != c.Loaded.Current.First {
		extras[wire.FirstExecutionColumn] = first
	}
	if after, isOne := c.nextBatches(); isOne {
		extras[wire.EntityBatchesColumn] = after.String()
	}
	return extras
}

// firstExecution returns the ID of the first generation of the checkpoint's execution, or "" if the
// execution is the first generation.
func (c *commit) firstExecution() string {
	switch {
	case history.IsEntity(c.InstanceID): // entities have no start message
		return ""
	case c.cp.ContinuedAsNew:
		return cmp.Or(c.Loaded.First(), c.ExecutionID())
	}
	return c.Loaded.First()
}

// advance updates the session after a committed checkpoint.
func (c *commit) advance(etag string, ordinal int, rows []wire.Row) error {
	first := c.firstExecution()
	c.recordSuperseded()
	if after, isOne := c.nextBatches(); isOne {
		c.Loaded.Batches = after.String()
	}
	if err := c.Loaded.Advance(c.cp, etag, first, rows); err != nil {
		return err
	}
	c.ordinal = ordinal + len(c.cp.NewEvents)
	c.SetExecution(c.cp.Instance.ExecutionID)
	return nil
}

// recordSuperseded remembers the generations that the checkpoint has replaced. These are the
// execution of the session and each generation that started and continued as new within the
// episode.
func (c *commit) recordSuperseded() {
	if !c.cp.ContinuedAsNew || history.IsEntity(c.InstanceID) {
		return
	}
	add := func(generation history.OrchestrationInstance) {
		if generation.InstanceID == c.InstanceID && generation != c.cp.Instance {
			c.superseded.add(generation)
		}
	}
	add(c.instance())
	for _, m := range c.cp.Activities {
		add(m.Target)
	}
	for _, m := range c.cp.Messages {
		if start, isStart := m.Event.(*history.ExecutionStarted); isStart && start.Parent != nil {
			add(start.Parent.Instance)
		}
	}
	for _, m := range c.cp.Timers {
		add(m.Target)
	}
}

// nextBatches returns the committed entity batches, including this checkpoint if it is a batch with
// messages. isOne reports whether it is.
func (c *commit) nextBatches() (b wire.EntityBatches, isOne bool) {
	b = wire.ParseEntityBatches(c.Loaded.Batches)
	if !c.cp.SendLast || len(c.cp.Messages) == 0 {
		return b, false
	}
	if c.Loaded.Run == "" {
		c.Loaded.Run = uuid.NewString()[:8]
	}
	return b.Next(c.Loaded.Run), true
}

// grantDelay is an additional delay for the messages of a batch that consumed a lock request from
// another entity. .NET grants such a request on each delivery, even if the lock was released since;
// the entity would then stay locked. So the request is deleted before the grant becomes visible. If
// this process dies before the delete, a .NET worker receives the request first and grants it. The
// hidden grant appears later, when no caller waits for it. The delay is long enough to acquire a
// partition and poll its queue.
const grantDelay = 2 * time.Minute

// send sends the checkpoint's messages. Their sender is the execution of the work item, even if the
// checkpoint continues as new (DurableTask.AzureStorage/AzureStorageOrchestrationService.cs,
// CommitOutboundQueueMessages).
func (c *commit) send(ctx context.Context) ([]outbound.Sent, error) {
	sender, episode := c.instance(), c.Loaded.Known.Episodes+1
	if sender.ExecutionID == "" && !history.IsEntity(sender.InstanceID) {
		sender = c.cp.Instance
	}
	out := c.outgoing()
	batch := ""
	if after, isOne := c.nextBatches(); isOne {
		batch = after.Name()
	}
	for _, o := range out {
		if c.cp.HideUntilDeleted {
			o.Delay = grantDelay
		}
		o.Batch = batch
		o.Env.Episode, o.Env.Sender = &episode, &sender
		o.Number = c.sender.NextNumber() // in the order of the decisions; the sends run in parallel
	}
	sent := make([]outbound.Sent, len(out))
	return sent, store.ForEach(ctx, store.MessagesAtOnce, out, func(ctx context.Context, i int, o *outbound.Message) (err error) {
		sent[i], err = c.sender.Post(ctx, o)
		return err
	})
}

// outgoing returns the checkpoint's messages with their queues. It reserves slots for messages that
// this process will deliver in memory.
func (c *commit) outgoing() []*outbound.Message {
	var out []*outbound.Message
	scheduled := map[int]time.Time{} // schedule times as in the history, by activity ID
	for _, e := range c.cp.NewEvents {
		if id := taskOf(e); id >= 0 {
			scheduled[id] = history.TruncateToTicks(e.Head().Timestamp)
		}
	}
	add := func(to outbound.Destination, messages []provider.TaskMessage) {
		for i := range messages {
			target := to
			if target == nil {
				target = c.destinationOf(&messages[i])
			}
			env := &wire.Envelope{Message: &messages[i]}
			if id := taskOf(messages[i].Event); id >= 0 {
				env.Scheduled = scheduled[id]
			}
			out = append(out, &outbound.Message{To: target, Env: env, Duplicates: true})
		}
	}
	add(c.activities, c.cp.Activities)
	add(c.Partition, c.cp.Timers)
	add(nil, c.cp.Messages)
	c.sender.Reserve(out)
	return out
}

// destinationOf returns the queue of a message: the work-item queue for an activity.
func (c *committer) destinationOf(m *provider.TaskMessage) outbound.Destination {
	if m.Event.Type() == history.TypeTaskScheduled {
		return c.activities
	}
	return c.partitions.Of(m.Target.InstanceID)
}

// taskOf returns the ID of the activity that e schedules, or -1 if e is another event.
func taskOf(e history.Event) int {
	if scheduled, ok := e.(*history.TaskScheduled); ok {
		return scheduled.EventID
	}
	return -1
}
