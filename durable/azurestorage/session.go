package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/tracking"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// session is an instance that was dispatched. The next commit succeeds only if the
// history's sentinel has the ETag that was read, or that the last commit wrote. That, and
// not the lease, keeps two workers from going on with one instance.
type session struct {
	inbox *inbox
	hub   *TaskHub
	slot  *slot

	// Owned by the goroutine that calls the methods.
	loaded   *instances.Instance
	ordinal  int            // of the next history row
	current  []*delivery    // delivered, and neither committed nor abandoned
	failed   bool           // what is loaded may not be what is stored
	tracking *tracking.Plan // of the last checkpoint
	inDoubt  bool           // some messages that an entity took last may not be deleted
	released bool
	pending  *pendingRow // or nil

	mu        sync.Mutex // protects the following
	execution string
}

var (
	_ provider.Session = (*session)(nil)
	_ provider.Settler = (*session)(nil)
)

func newSession(b *inbox, s *slot, batch *messageBatch) *session {
	loaded := batch.loaded
	executionID := loaded.ExecutionID
	if executionID == "" {
		executionID = batch.executionID
	}
	pending, _ := b.hub.pendingRows.Load(s.id)
	row, _ := pending.(*pendingRow) // nothing else is in the map
	return &session{
		inbox: b, hub: b.hub, slot: s, pending: row,
		loaded: loaded, ordinal: len(loaded.Events), current: batch.deliveries, execution: executionID,
	}
}

// executionID returns the execution that the session is of.
func (s *session) executionID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.execution
}

func (s *session) instance() history.OrchestrationInstance {
	return history.OrchestrationInstance{InstanceID: s.slot.id, ExecutionID: s.executionID()}
}

// workItem returns the first work item of the session.
func (s *session) workItem() *provider.OrchestrationWorkItem {
	return &provider.OrchestrationWorkItem{
		Instance: s.instance(), History: slices.Clip(s.loaded.Events), Messages: messagesOf(s.current),
		OwnedSince: s.slot.partition.ownedSince(), Session: s,
	}
}

// messagesOf returns the messages of deliveries, a start message first.
func messagesOf(deliveries []*delivery) []provider.TaskMessage {
	messages := make([]provider.TaskMessage, 0, len(deliveries))
	for _, d := range deliveries {
		if _, isStart := d.event().(*history.ExecutionStarted); isStart {
			messages = append(messages, *d.env.Message)
		}
	}
	for _, d := range deliveries {
		if _, isStart := d.event().(*history.ExecutionStarted); !isStart {
			messages = append(messages, *d.env.Message)
		}
	}
	return messages
}

// Settled implements [provider.Settler].
func (s *session) Settled() bool { return !s.inDoubt }

// Abandon implements [provider.Session].
func (s *session) Abandon(ctx context.Context, cause error) error {
	if cause == nil {
		cause = errors.New("the episode could not be completed")
	}
	forEach(s.current, func(d *delivery) { d.abandonBecause(ctx, cause) })
	s.current, s.failed = nil, true
	return nil
}

// Next implements [provider.Session].
func (s *session) Next(ctx context.Context, idle time.Duration) ([]provider.TaskMessage, error) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		deliveries, wanted, changed := s.inbox.incoming(s)
		if wanted {
			return nil, nil
		}
		if len(deliveries) > 0 {
			disposals := dispositionsOf(s.hub, s.slot.id, s.loaded, deliveries)
			disposals.apply(context.WithoutCancel(ctx))
			if s.current = append(s.current, disposals.deliver...); len(disposals.deliver) > 0 {
				return messagesOf(disposals.deliver), nil
			}
			continue
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Release implements [provider.Session].
func (s *session) Release(ctx context.Context) error {
	if s.released {
		return nil
	}
	s.released = true
	s.pending.awaitFirst() // the next session need not read the row then
	ctx = context.WithoutCancel(ctx)
	if len(s.current) > 0 {
		if err := s.Abandon(ctx, errors.New("the session ended before the messages were processed")); err != nil {
			return err
		}
	}
	s.inbox.end(ctx, s)
	return nil
}

// remember keeps what the session knows of the instance for the next one.
func (s *session) remember() {
	loaded := s.loaded
	if s.failed || loaded.ETag == "" || !loaded.Known.Started || loaded.Known.Ended != nil {
		s.hub.instances.CachedHistories.Take(s.slot.id)
		return
	}
	s.hub.instances.CachedHistories.Put(s.slot.id, loaded.History)
}

// Commit implements [provider.Session].
func (s *session) Commit(ctx context.Context, cp *provider.Checkpoint) error {
	err := (&commit{session: s, cp: cp}).write(ctx)
	if err == nil {
		return nil
	}
	if errors.Is(err, provider.ErrSessionLost) {
		s.hub.log.Warn("SplitBrainDetected", "instanceId", s.slot.id, "executionId", s.executionID(), "partition", s.slot.partition.queue.Name, "error", err)
	}
	for _, d := range s.current {
		d.raised.noteDoubt()
	}
	s.failed, s.loaded.Run = true, ""
	s.hub.instances.Forget(s.slot.id)
	return fmt.Errorf("commit instance %q: %w", s.slot.id, err)
}

// removeTaken deletes the messages that the commit took. It deletes a single one in the
// background, as long as the partition is read, which is given up after that. Where
// several came together more will follow, and one episode takes more of them if it
// begins later.
func (s *session) removeTaken(ctx context.Context) {
	taken := s.current
	if len(taken) == 0 {
		return
	}
	s.current = nil
	r := s.slot.partition.currentReading()
	// An entity remembers what it took until it is known to be gone.
	if history.IsEntity(s.slot.id) || len(taken) > 1 || r == nil || !r.spawn(func() { removeAll(r.work, taken) }) {
		removeAll(ctx, taken)
		s.inDoubt = slices.ContainsFunc(taken, (*delivery).isInDoubt)
	}
}

// isInDoubt reports whether another worker may have gone on with the instance: this one
// does not own the partition any more, or others may have received a message.
func (s *session) isInDoubt() bool {
	return !s.slot.partition.isListening() || anyLost(s.current)
}

// checkDoubt returns [provider.ErrSessionLost] if the history is in doubt and is not as
// the session knows it. What a lost session decided is then not sent at all. The write
// of the history checks it in any case.
func (s *session) checkDoubt(ctx context.Context, inDoubt bool) error {
	if !inDoubt {
		return nil
	}
	etag, err := s.hub.instances.Histories.SentinelETag(ctx, s.slot.id)
	if err != nil {
		return err
	}
	if etag != s.loaded.ETag {
		return fmt.Errorf("history of %q has changed: %w", s.slot.id, provider.ErrSessionLost)
	}
	if etag != "" || s.loaded.Row == nil {
		return nil
	}
	// Of an instance that was purged, there is no more than of one that has not
	// begun, but its row is missing.
	row, err := s.hub.instances.Rows.Read(ctx, s.slot.id)
	if err == nil && (row == nil || row.State.Instance.ExecutionID != s.loaded.Row.State.Instance.ExecutionID) {
		err = fmt.Errorf("instance %q was purged or replaced: %w", s.slot.id, provider.ErrSessionLost)
	}
	return err
}
