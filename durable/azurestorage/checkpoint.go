package azurestorage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/uuid"
)

// A commit is the writing of a checkpoint. The order of the writes is what makes
// it safe to be cut off between any two of them
// (DurableTask.AzureStorage/AzureStorageOrchestrationService.cs,
// CompleteTaskOrchestrationWorkItemAsync):
//
//  1. Messages go out, in parallel. If nothing else follows, the episode runs
//     again and sends them again; receivers recognize what they have. If another
//     worker turns out to have the instance, those that are still there are
//     retracted. Those that are to be sent last, as an entity's, are hidden until step 2
//     counts, and shown after it (see [grantHidden] for locks).
//  2. The history grows, if it is still as it was read. This is the moment at
//     which the checkpoint counts. A worker that receives one of the messages
//     before it holds the message back.
//  3. The instance row follows the history. If the worker dies before, the next
//     checkpoint or a message that comes again repairs it.
//  4. The messages that were taken are deleted, in parallel. If one is not, it
//     comes again and the history shows that it was taken.
//
// A message stays until the row says what is new, since no checkpoint might follow
// that would repair the row. The commit waits for step 3 if clients look at the row
// for what is new: an end, a suspension, a resumption. Else the row is pending, and
// only the end of the session and the next checkpoint that writes the row wait for it. That
// an execution has begun is put off besides (see [putOffFor]), and only the next checkpoint
// waits for that, or leaves it out.
type commit struct {
	*session
	cp *provider.Checkpoint
}

// answer sends the messages of a checkpoint in which nothing was decided.
func (c *commit) answer(ctx context.Context) error {
	if err := c.checkDoubt(ctx, c.loaded.Unverified || len(c.cp.Messages) > 0 && c.isInDoubt()); err != nil {
		return err
	}
	c.loaded.Unverified = false
	if len(c.cp.Messages) > 0 {
		sent, err := c.send(ctx)
		if err != nil {
			c.hub.sender.retract(ctx, sent)
			return err
		}
		c.hub.sender.handOver(ctx, sent)
	}
	c.removeTaken(ctx)
	return nil
}

func (c *commit) write(ctx context.Context) error {
	if len(c.cp.NewEvents) == 0 {
		return c.answer(ctx)
	}
	if c.cp.Instance.InstanceID != c.slot.id {
		return fmt.Errorf("the checkpoint is for %q", c.cp.Instance.InstanceID)
	}
	if err := c.checkDoubt(ctx, c.isInDoubt()); err != nil {
		return err
	}
	var err error
	if c.tracking, err = c.hub.tracking.plan(ctx, c.session, c.cp); err != nil {
		return err
	}
	rows, err := c.writeHistory(ctx)
	if err != nil {
		return err
	}
	if err := c.follow(ctx, rows); err != nil {
		for _, d := range c.current {
			d.noteCommitted()
		}
		return err
	}
	return nil
}

// follow does steps 3 and 4 of a commit, of which the history is written.
func (c *commit) follow(ctx context.Context, rows []wire.Row) error {
	if err := c.hub.tracking.commit(ctx, c.slot.id, c.loaded, c.tracking); err != nil {
		return err
	}
	taken, leftOut := c.takeOverRow()
	u := c.hub.instances.UpdateOf(c.loaded, c.cp, rows, leftOut.updateOrNil())
	if u != nil && u.MayBeLate() && c.writeRowLater(ctx, u, taken, leftOut) {
		return nil
	}
	c.current = append(c.current, taken...)
	if u != nil {
		var err error
		c.loaded.Row, err = u.Do(ctx)
		c.hub.begun.remove(c.slot.id)
		if err != nil {
			return err
		}
	}
	c.removeTaken(ctx)
	return nil
}

// writeHistory does steps 1 and 2 of a commit, and returns the rows that were
// added. If it is not known whether the checkpoint counts, its messages are made
// visible: either their history is there, or they will be found not to have one.
func (c *commit) writeHistory(ctx context.Context) ([]wire.Row, error) {
	if err := storeOne(ctx, c.current, c.sendsToOthers()); err != nil {
		return nil, err
	}
	sent, err := c.send(ctx)
	if err != nil {
		c.hub.sender.retract(ctx, sent)
		return nil, err
	}
	ordinal := c.ordinal
	if c.cp.ContinuedAsNew {
		ordinal = 0
	}
	rows, err := c.hub.instances.Histories.Encode(ctx, c.slot.id, c.cp.Instance.ExecutionID, ordinal, c.cp.NewEvents)
	if err != nil {
		c.hub.sender.retract(ctx, sent)
		return nil, err
	}
	etag, written, err := c.hub.instances.Histories.Append(store.RetryBefore(ctx, c.slot.partition.leaseEnd()), c.cp.Instance, rows, c.loaded.ETag, c.notes())
	switch {
	case err == nil:
	case written == 0 && errors.Is(err, provider.ErrSessionLost) && !c.mayHaveBeenFollowed(err):
		c.hub.sender.retract(ctx, sent)
		return nil, err
	default:
		c.hub.sender.reveal(ctx, sent)
		return nil, err
	}
	if c.cp.HideUntilDeleted {
		c.removeTaken(ctx)
	}
	if err := c.hub.sender.show(ctx, sent); err != nil {
		c.hub.sender.reveal(ctx, sent)
		return nil, fmt.Errorf("the history is written, but not all messages can be seen: %w", err)
	}
	c.hub.sender.handOver(ctx, sent)
	return rows, c.advance(etag, ordinal, rows)
}

// sendsToOthers reports whether the checkpoint has messages to other instances.
func (c *commit) sendsToOthers() bool {
	return slices.ContainsFunc(c.cp.Messages, func(m provider.TaskMessage) bool { return m.Target.InstanceID != c.slot.id })
}

// mayHaveBeenFollowed reports whether an error leaves open that a checkpoint counted
// before the instance continued as new or began anew elsewhere.
func (c *commit) mayHaveBeenFollowed(err error) bool {
	other, ok := errors.AsType[*instances.OtherExecutionError](err)
	return ok && other.ExecutionID != c.executionID()
}

// notes returns what the sentinel is to say of a checkpoint besides what .NET's
// does.
func (c *commit) notes() map[string]string {
	notes := map[string]string{}
	c.tracking.Note(notes)
	if first := c.firstExecution(); first != c.loaded.Current.First {
		notes[wire.FirstExecutionColumn] = first
	}
	if after, isOne := c.batchesAfter(); isOne {
		notes[wire.EntityBatchesColumn] = after.String()
	}
	return notes
}

// firstExecution returns the execution of which that of a checkpoint is a later
// generation, empty if it is the first itself.
func (c *commit) firstExecution() string {
	switch {
	case history.IsEntity(c.slot.id): // none has a start message
		return ""
	case c.cp.ContinuedAsNew:
		return cmp.Or(c.loaded.First(), c.executionID())
	}
	return c.loaded.First()
}

// advance makes the session know what was committed.
func (c *commit) advance(etag string, ordinal int, rows []wire.Row) error {
	first := c.firstExecution()
	c.noteSuperseded()
	if after, isOne := c.batchesAfter(); isOne {
		c.loaded.Batches = after.String()
	}
	if err := c.loaded.Advance(c.cp, etag, first, rows); err != nil {
		return err
	}
	c.ordinal = ordinal + len(c.cp.NewEvents)
	c.mu.Lock()
	c.execution = c.cp.Instance.ExecutionID
	c.mu.Unlock()
	return nil
}

// noteSuperseded remembers the generations that the checkpoint has replaced: the execution of
// the session, and each generation that began and continued as new in the same episode.
func (c *commit) noteSuperseded() {
	if !c.cp.ContinuedAsNew || history.IsEntity(c.slot.id) {
		return
	}
	note := func(generation history.OrchestrationInstance) {
		if generation.InstanceID == c.slot.id && generation != c.cp.Instance {
			c.hub.superseded.add(generation)
		}
	}
	note(c.instance())
	for _, m := range c.cp.Activities {
		note(m.Target)
	}
	for _, m := range c.cp.Messages {
		if start, isStart := m.Event.(*history.ExecutionStarted); isStart && start.Parent != nil {
			note(start.Parent.Instance)
		}
	}
	for _, m := range c.cp.Timers {
		note(m.Target)
	}
}

// forEach calls f for each delivery, several at a time.
func forEach(deliveries []*delivery, f func(d *delivery)) {
	_ = store.Each(context.Background(), store.MessagesAtOnce, deliveries, func(_ context.Context, _ int, d *delivery) error {
		f(d)
		return nil
	})
}

// batchesAfter returns the batches that count once a checkpoint does, and whether it is
// one of them.
func (c *commit) batchesAfter() (b wire.EntityBatches, isOne bool) {
	b = wire.ParseEntityBatches(c.loaded.Batches)
	if !c.cp.SendLast || len(c.cp.Messages) == 0 {
		return b, false
	}
	if c.loaded.Run == "" {
		c.loaded.Run = uuid.NewString()[:8]
	}
	return b.Next(c.loaded.Run), true
}

// grantHidden is an additional time for which messages stay hidden. It applies to a batch that took
// a lock request from another entity. .NET grants such a request each time it is delivered, even if the
// lock was released since: the entity then stays locked. So the request is deleted before the
// answer is shown. If this process dies before that, a .NET worker gets the request first and
// answers it. The hidden answer appears later, when no caller waits for it. The time is enough to
// acquire a partition and to poll its queue.
const grantHidden = 2 * time.Minute

// send sends the checkpoint's messages. Their sender is the execution that the
// work item was of, also when it has continued as new
// (DurableTask.AzureStorage/AzureStorageOrchestrationService.cs,
// CommitOutboundQueueMessages).
func (c *commit) send(ctx context.Context) ([]sentMessage, error) {
	sender, episode := c.instance(), c.loaded.Known.Episodes+1
	if sender.ExecutionID == "" && !history.IsEntity(sender.InstanceID) {
		sender = c.cp.Instance
	}
	out := c.outgoing()
	batch := ""
	if after, isOne := c.batchesAfter(); isOne {
		batch = after.Name()
	}
	for _, o := range out {
		if c.cp.HideUntilDeleted {
			o.delay = grantHidden
		}
		o.batch = batch
		o.env.Episode, o.env.Sender = &episode, &sender
		o.number = c.hub.sender.sequence.Add(1) // in the order of the decisions, whichever is sent first
	}
	sent := make([]sentMessage, len(out))
	return sent, store.Each(ctx, store.MessagesAtOnce, out, func(ctx context.Context, i int, o *outgoing) (err error) {
		sent[i], err = c.hub.sender.post(ctx, o)
		return err
	})
}

// outgoing returns the checkpoint's messages with the queues that they go to,
// and reserves room for those that this process will take itself.
func (c *commit) outgoing() []*outgoing {
	var out []*outgoing
	scheduled := map[int]time.Time{} // when activities were, as the history has it
	for _, e := range c.cp.NewEvents {
		if id := taskOf(e); id >= 0 {
			scheduled[id] = history.Ticks(e.Head().Timestamp)
		}
	}
	add := func(p *partition, messages []provider.TaskMessage) {
		for i := range messages {
			to, queue := p, c.hub.workItems
			if to == nil && messages[i].Event.Type() != history.TypeTaskScheduled {
				to = c.hub.partitionOf(messages[i].Target.InstanceID)
			}
			if to != nil {
				queue = to.queue
			}
			env := &wire.Envelope{Message: &messages[i]}
			if id := taskOf(messages[i].Event); id >= 0 {
				env.Scheduled = scheduled[id]
			}
			out = append(out, &outgoing{queue: queue, partition: to, env: env, duplicates: true})
		}
	}
	add(nil, c.cp.Activities)
	add(c.slot.partition, c.cp.Timers)
	add(nil, c.cp.Messages)
	c.hub.sender.reserve(out)
	return out
}

// taskOf returns the ID of the activity that an event schedules, -1 if it schedules
// none.
func taskOf(e history.Event) int {
	if scheduled, ok := e.(*history.TaskScheduled); ok {
		return scheduled.EventID
	}
	return -1
}

// removeAll deletes messages.
func removeAll(ctx context.Context, deliveries []*delivery) {
	forEach(deliveries, func(d *delivery) { d.discard(ctx) })
}
