package azurestorage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A commit is the writing of a checkpoint. The order of the writes is what makes
// it safe to be cut off between any two of them
// (DurableTask.AzureStorage/AzureStorageOrchestrationService.cs,
// CompleteTaskOrchestrationWorkItemAsync):
//
//  1. Messages go out, in parallel. If nothing else follows, the episode runs
//     again and sends them again; receivers recognize what they have. If somebody
//     else turns out to have the instance, those that are still there are taken
//     back. Those that are to be sent last, as an entity's, are hidden until step 2
//     counts, and shown after it.
//  2. The history grows, if it is still as it was read. This is the moment at
//     which the checkpoint counts. Whoever receives one of the messages before it
//     holds it back.
//  3. The instance row follows the history. If it does not get to, the next
//     checkpoint or any message to an ended instance puts it right.
//  4. The messages that were taken are deleted, in parallel. If one is not, it
//     comes again and the history shows that it was taken.
//
// The messages stay until the row says what is new, since no checkpoint might
// follow that would put the row right. Nobody waits for step 4, and for step 3
// nobody but the end of the session, the next checkpoint that writes the row, and
// the end of the execution.
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
		u := c.updateOfRow(rows)
		for _, d := range c.current {
			d.notePending(u)
		}
		return err
	}
	c.removeReplaced(ctx)
	return nil
}

// removeReplaced deletes the blobs of the generation before, unless the row, which
// names some of them, was left for somebody else to write.
func (c *commit) removeReplaced(ctx context.Context) {
	names := c.loaded.Replaced
	c.loaded.Replaced = nil
	if c.loaded.Row == nil {
		return
	}
	for _, name := range names {
		if err := c.hub.largeMessages.Remove(ctx, name); err != nil {
			c.hub.log.Warn("blob of an earlier generation could not be deleted", "instanceId", c.slot.id, "blob", name, "error", err)
		}
	}
}

// follow does steps 3 and 4 of a commit, of which the history is written.
func (c *commit) follow(ctx context.Context, rows []wire.Row) error {
	if err := c.hub.tracking.commit(ctx, c.slot.id, c.loaded, c.tracking); err != nil {
		return err
	}
	switch {
	case instances.EndsExecution(c.cp) || history.IsEntity(c.slot.id):
		// Nothing else might come for it, and clients look at nothing but the row.
		end, err := c.writeInstanceRow(ctx, rows)
		if err != nil {
			return err
		}
		c.hub.endings.announce(c.slot.id, end)
		c.removeTaken(ctx)
	case c.cp.ContinuedAsNew: // the row may refer to blobs of the generation before
		if _, err := c.writeInstanceRow(ctx, rows); err != nil {
			return err
		}
		c.removeTaken(ctx)
	default:
		return c.writeInstanceRowLater(ctx, rows)
	}
	return nil
}

// writeHistory does steps 1 and 2 of a commit, and returns the rows that were
// added. If it is not known whether the checkpoint counts, its messages are made
// visible: either their history is there, or they will be found not to have one.
func (c *commit) writeHistory(ctx context.Context) ([]wire.Row, error) {
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
	etag, written, err := c.hub.instances.Histories.Append(ctx, c.cp.Instance, rows, c.loaded.ETag, c.notes())
	switch {
	case err == nil:
	case written == 0 && errors.Is(err, provider.ErrSessionLost) && !c.mayHaveBeenFollowed(err):
		c.hub.sender.retract(ctx, sent)
		return nil, err
	default:
		c.hub.sender.reveal(ctx, sent)
		return nil, err
	}
	if err := c.hub.sender.show(ctx, sent); err != nil {
		c.hub.sender.reveal(ctx, sent)
		return nil, fmt.Errorf("the history is written, but not all messages can be seen: %w", err)
	}
	c.hub.sender.handOver(ctx, sent)
	return rows, c.advance(etag, ordinal, rows)
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
		c.loaded.Run = fmt.Sprintf("%08x", rand.Uint32())
	}
	return b.Next(c.loaded.Run), true
}

// A lateRow is an instance row that is being written in the background.
type lateRow struct {
	done chan struct{}     // closed at the end
	row  *wire.InstanceRow // nil if it is not known what became of it
}

// writeInstanceRow makes the instance row say what the checkpoint changed. The
// history is written already, so losing a race here undoes nothing; what must
// not happen is that an older checkpoint, of a worker that was frozen in between,
// hides a newer one, of which no other might follow for long, or a newer execution
// (AzureTableTrackingStore.cs, UpdateStateAsync, with UseInstanceTableEtag). If
// the execution ends it returns how, unless the row does not tell that.
func (c *commit) writeInstanceRow(ctx context.Context, rows []wire.Row) (end *provider.InstanceState, err error) {
	if u := c.updateOfRow(rows); u != nil {
		c.loaded.Row, err = u.Do(ctx)
		end = u.End
	}
	c.hub.instances.CachedRows.Put(c.slot.id, c.loaded.Row)
	return end, err
}

// writeInstanceRowLater writes the row, and then deletes what was handed out, in
// the background, as long as the partition is being read. awaitRow comes before
// the next use of the row. If it could not be written the messages come again, and
// put it right.
func (c *commit) writeInstanceRowLater(ctx context.Context, rows []wire.Row) error {
	u := c.updateOfRow(rows)
	if u == nil {
		c.hub.instances.CachedRows.Put(c.slot.id, c.loaded.Row)
		c.removeTaken(ctx)
		return nil
	}
	late := &lateRow{done: make(chan struct{})}
	write := func(ctx context.Context) (err error) {
		defer close(late.done)
		late.row, err = u.Do(ctx)
		return err
	}
	c.late = late
	taken := c.current
	r := c.slot.partition.currentReading()
	background := func() {
		if err := write(r.work); err != nil {
			forEach(taken, func(d *delivery) {
				d.notePending(u)
				d.abandon(r.work, err.Error())
			})
			return
		}
		removeAll(r.work, taken)
	}
	if r != nil && r.spawn(background) {
		c.current = nil
		return nil
	}
	if err := write(ctx); err != nil {
		return err
	}
	c.removeTaken(ctx)
	return nil
}

// updateOfRow returns what is to be done to the row, nil if nothing is.
func (c *commit) updateOfRow(rows []wire.Row) *instances.RowUpdate {
	c.awaitRow()
	return c.hub.instances.UpdateOf(c.loaded, c.cp, rows)
}

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
