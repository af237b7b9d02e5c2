package azurestorage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Commit implements [provider.Session]. The order of the writes is what makes
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
func (s *session) Commit(ctx context.Context, cp *provider.Checkpoint) error {
	err := s.commit(ctx, cp)
	if err != nil {
		s.failed, s.loaded.Run = true, ""
		s.hub.instances.Forget(s.slot.id)
	}
	return err
}

func (s *session) commit(ctx context.Context, cp *provider.Checkpoint) error {
	err := s.write(ctx, cp)
	if errors.Is(err, provider.ErrSessionLost) {
		s.hub.log.Warn("SplitBrainDetected", "instanceId", s.slot.id, "executionId", s.executionID(), "partition", s.slot.partition.queue.Name, "error", err)
	}
	if err != nil {
		return fmt.Errorf("commit instance %q: %w", s.slot.id, err)
	}
	return nil
}

// removeTaken deletes the messages that were handed out. A single one is deleted
// in the background, as long as the partition is being read: that is given up
// after it. Where several came together more will, and are taken together if the
// next episode begins later.
func (s *session) removeTaken(ctx context.Context) {
	taken := s.current
	s.current = nil
	r := s.slot.partition.currentReading()
	// An entity remembers what it took until it is known to be gone.
	if history.IsEntity(s.slot.id) || len(taken) > 1 || r == nil || !r.spawn(func() { s.hub.removeAll(r.work, taken) }) {
		s.hub.removeAll(ctx, taken)
		s.doubtful = slices.ContainsFunc(taken, (*delivery).isDoubtful)
	}
}

// removeAll deletes messages.
func (h *TaskHub) removeAll(ctx context.Context, deliveries []*delivery) {
	forEach(deliveries, func(d *delivery) {
		if err := d.remove(ctx); err != nil {
			h.log.Warn("message could not be deleted, it comes back by itself", d.attrs("error", err)...)
		}
	})
}

// answer sends the messages of a checkpoint in which nothing was decided.
func (s *session) answer(ctx context.Context, cp *provider.Checkpoint) error {
	if err := s.checkDoubt(ctx, s.loaded.Unverified || len(cp.Messages) > 0 && s.isDoubtful()); err != nil {
		return err
	}
	s.loaded.Unverified = false
	if len(cp.Messages) > 0 {
		sent, err := s.send(ctx, cp)
		if err != nil {
			s.hub.retract(ctx, sent)
			return err
		}
		s.hub.handOver(ctx, sent)
	}
	s.removeTaken(ctx)
	return nil
}

func (s *session) write(ctx context.Context, cp *provider.Checkpoint) error {
	if len(cp.NewEvents) == 0 {
		return s.answer(ctx, cp)
	}
	if cp.Instance.InstanceID != s.slot.id {
		return fmt.Errorf("the checkpoint is for %q", cp.Instance.InstanceID)
	}
	if err := s.checkDoubt(ctx, s.isDoubtful()); err != nil {
		return err
	}
	var err error
	if s.tracking, err = s.hub.tracking.plan(ctx, s, cp); err != nil {
		return err
	}
	rows, err := s.writeHistory(ctx, cp)
	if err != nil {
		return err
	}
	if err := s.follow(ctx, cp, rows); err != nil {
		u := s.updateOfRow(cp, rows)
		for _, d := range s.current {
			d.noteUntold(u)
		}
		return err
	}
	s.removeReplaced(ctx)
	return nil
}

// removeReplaced deletes the blobs of the generation before, unless the row, which
// names some of them, was left for somebody else to write.
func (s *session) removeReplaced(ctx context.Context) {
	names := s.loaded.Replaced
	s.loaded.Replaced = nil
	if s.loaded.Row == nil {
		return
	}
	for _, name := range names {
		if err := s.hub.largeMessages.Remove(ctx, name); err != nil {
			s.hub.log.Warn("blob of an earlier generation could not be deleted", "instanceId", s.slot.id, "blob", name, "error", err)
		}
	}
}

// follow does steps 3 and 4 of a commit, of which the history is written.
func (s *session) follow(ctx context.Context, cp *provider.Checkpoint, rows []wire.Row) error {
	if err := s.hub.tracking.commit(ctx, s.slot.id, s.loaded, s.tracking); err != nil {
		return err
	}
	switch {
	case instances.EndsExecution(cp) || history.IsEntity(s.slot.id):
		// Nothing else might come for it, and clients look at nothing but the row.
		end, err := s.writeInstanceRow(ctx, cp, rows)
		if err != nil {
			return err
		}
		s.hub.endings.tell(s.slot.id, end)
		s.removeTaken(ctx)
	case cp.ContinuedAsNew: // the row may refer to blobs of the generation before
		if _, err := s.writeInstanceRow(ctx, cp, rows); err != nil {
			return err
		}
		s.removeTaken(ctx)
	default:
		return s.writeInstanceRowLater(ctx, cp, rows)
	}
	return nil
}

// writeHistory does steps 1 and 2 of a commit, and returns the rows that were
// added. If it is not known whether the checkpoint counts, its messages are made
// visible: either their history is there, or they will be found not to have one.
func (s *session) writeHistory(ctx context.Context, cp *provider.Checkpoint) ([]wire.Row, error) {
	sent, err := s.send(ctx, cp)
	if err != nil {
		s.hub.retract(ctx, sent)
		return nil, err
	}
	ordinal := s.ordinal
	if cp.ContinuedAsNew {
		ordinal = 0
	}
	rows, err := s.hub.instances.Histories.Encode(ctx, s.slot.id, cp.Instance.ExecutionID, ordinal, cp.NewEvents)
	if err != nil {
		s.hub.retract(ctx, sent)
		return nil, err
	}
	etag, written, err := s.hub.instances.Histories.Append(ctx, cp.Instance, rows, s.loaded.ETag, s.notes(cp))
	switch {
	case err == nil:
	case written == 0 && errors.Is(err, provider.ErrSessionLost) && !s.mayHaveBeenFollowed(err):
		s.hub.retract(ctx, sent)
		return nil, err
	default:
		s.hub.reveal(ctx, sent)
		return nil, err
	}
	if err := s.hub.show(ctx, sent); err != nil {
		s.hub.reveal(ctx, sent)
		return nil, fmt.Errorf("the history is written, but not all messages can be seen: %w", err)
	}
	s.hub.handOver(ctx, sent)
	return rows, s.advance(cp, etag, ordinal, rows)
}

// mayHaveBeenFollowed reports whether an error leaves open that a checkpoint counted
// before the instance continued as new or began anew elsewhere.
func (s *session) mayHaveBeenFollowed(err error) bool {
	other, ok := errors.AsType[*instances.OtherExecutionError](err)
	return ok && other.ExecutionID != s.executionID()
}

// notes returns what the sentinel is to say of a checkpoint besides what .NET's
// does.
func (s *session) notes(cp *provider.Checkpoint) map[string]string {
	notes := map[string]string{}
	s.tracking.Note(notes)
	if first := s.firstExecution(cp); first != s.loaded.Current.First {
		notes[wire.FirstExecutionColumn] = first
	}
	if after, isOne := s.batchesAfter(cp); isOne {
		notes[wire.EntityBatchesColumn] = after.String()
	}
	return notes
}

// firstExecution returns the execution of which that of a checkpoint is a later
// generation, empty if it is the first itself.
func (s *session) firstExecution(cp *provider.Checkpoint) string {
	switch {
	case history.IsEntity(s.slot.id): // none has a start message
		return ""
	case cp.ContinuedAsNew:
		return cmp.Or(s.loaded.First(), s.executionID())
	}
	return s.loaded.First()
}

// advance makes the session know what was committed.
func (s *session) advance(cp *provider.Checkpoint, etag string, ordinal int, rows []wire.Row) error {
	first := s.firstExecution(cp)
	if after, isOne := s.batchesAfter(cp); isOne {
		s.loaded.Batches = after.String()
	}
	if err := s.loaded.Advance(cp, etag, first, rows); err != nil {
		return err
	}
	s.ordinal = ordinal + len(cp.NewEvents)
	s.mu.Lock()
	s.execution = cp.Instance.ExecutionID
	s.mu.Unlock()
	return nil
}

// forEach calls f for each delivery, several at a time.
func forEach(deliveries []*delivery, f func(d *delivery)) {
	var group errgroup.Group
	group.SetLimit(store.MessagesAtOnce)
	for _, d := range deliveries {
		group.Go(func() error {
			f(d)
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
}
