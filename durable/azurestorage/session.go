package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/tracking"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// session is a dispatched instance. A commit succeeds only if the history's sentinel still has the
// ETag that the session read or last wrote. This, not the lease, prevents two workers from
// advancing the same instance.
type session struct {
	*committer
	*lock

	// Owned by the goroutine that calls the methods.
	ordinal   int                // of the next history row
	tracked   *tracking.Plan     // of the last checkpoint
	wake      *inflight.Delivery // committed; wakes the instance after a crash while its steps run; or nil
	unsettled bool               // some messages that an entity consumed last may not be deleted
	released  bool
	pending   *pendingRow // background row write, or nil
}

var (
	_ provider.Session = (*session)(nil)
	_ provider.Settler = (*session)(nil)
	_ provider.Holder  = (*session)(nil)
)

func newSession(c *committer, l *lock) *session {
	return &session{committer: c, lock: l, pending: c.late.of(l.instanceID), ordinal: len(l.loaded.Events)}
}

func (s *session) instance() history.OrchestrationInstance {
	return history.OrchestrationInstance{InstanceID: s.instanceID, ExecutionID: s.executionID()}
}

// workItem returns the first work item of the session.
func (s *session) workItem() *provider.OrchestrationWorkItem {
	return &provider.OrchestrationWorkItem{
		Instance: s.instance(), History: slices.Clip(s.loaded.Events), Messages: messagesOf(s.current),
		OwnedSince: s.partition.ownedSince(), Session: s,
	}
}

// messagesOf returns the messages of deliveries, start messages first.
func messagesOf(deliveries []*inflight.Delivery) []provider.TaskMessage {
	messages := make([]provider.TaskMessage, 0, len(deliveries))
	for _, d := range deliveries {
		if _, isStart := d.Event().(*history.ExecutionStarted); isStart {
			messages = append(messages, *d.Env.Message)
		}
	}
	for _, d := range deliveries {
		if _, isStart := d.Event().(*history.ExecutionStarted); !isStart {
			messages = append(messages, *d.Env.Message)
		}
	}
	return messages
}

// Settled implements [provider.Settler].
func (s *session) Settled() bool { return !s.unsettled }

// Holds implements [provider.Holder].
func (s *session) Holds() bool { return s.partition.isListening() }

// Leaves implements [provider.Holder].
func (s *session) Leaves() (left time.Duration, ok bool) { return s.partition.timeToLeave() }

// Abandon implements [provider.Session].
func (s *session) Abandon(ctx context.Context, cause error) error {
	if cause == nil {
		cause = errors.New("the episode could not be completed")
	}
	s.takeWake()
	inflight.ForEach(s.current, func(d *inflight.Delivery) { d.AbandonBecause(ctx, cause) })
	s.current, s.failed = nil, true
	return nil
}

// Next implements [provider.Session].
func (s *session) Next(ctx context.Context, idle time.Duration) ([]provider.TaskMessage, error) {
	deliveries, err := s.await(ctx, idle, s.wake != nil)
	if len(deliveries) == 0 {
		return nil, err
	}
	return messagesOf(deliveries), nil
}

// Release implements [provider.Session].
func (s *session) Release(ctx context.Context) error {
	if s.released {
		return nil
	}
	s.released = true
	s.pending.awaitFirst() // so that the next session need not read the row
	ctx = context.WithoutCancel(ctx)
	if len(s.current) > 0 || s.wake != nil {
		if err := s.Abandon(ctx, errors.New("the session ended before the messages were processed")); err != nil {
			return err
		}
	}
	s.unlock(ctx)
	return nil
}

// Commit implements [provider.Session].
func (s *session) Commit(ctx context.Context, cp *provider.Checkpoint) error {
	err := (&commit{session: s, cp: cp}).write(ctx)
	if err == nil {
		return nil
	}
	if errors.Is(err, provider.ErrSessionLost) {
		s.late.log.Warn("SplitBrainDetected", "instanceId", s.instanceID, "executionId", s.executionID(), "partition", s.partition.Name(), "error", err)
	}
	s.takeWake()
	for _, d := range s.current {
		d.Safety.MarkMaybeCommitted()
	}
	s.failed, s.loaded.Run = true, ""
	s.committer.instances.Evict(s.instanceID)
	return fmt.Errorf("commit instance %q: %w", s.instanceID, err)
}

// removeConsumed deletes the messages that the commit consumed. It deletes a single message in the
// background while the partition is owned; the partition is released after that. It waits for the
// deletion of several messages: more are likely to follow, and the next episode consumes more of
// them if it starts later.
func (s *session) removeConsumed(ctx context.Context) {
	consumed := s.current
	if len(consumed) == 0 {
		return
	}
	s.current = nil
	r := s.partition.currentReading()
	// The state of an entity lists consumed messages until they are known to be deleted.
	if history.IsEntity(s.instanceID) || len(consumed) > 1 || r == nil || !r.spawn(func() { inflight.RemoveAll(r.work, consumed) }) {
		inflight.RemoveAll(ctx, consumed)
		s.unsettled = slices.ContainsFunc(consumed, (*inflight.Delivery).MayBeRedelivered)
	}
}

// takeWake makes the wake-up one of the messages that the session holds.
func (s *session) takeWake() {
	if s.wake != nil {
		s.current, s.wake = append(s.current, s.wake), nil
	}
}

// mayBeLost reports whether another worker may have advanced the instance. That is possible if this
// worker no longer owns the partition, or if another worker may have received one of the messages.
func (s *session) mayBeLost() bool {
	return !s.partition.isListening() || inflight.AnyLost(s.current) || s.wake != nil && inflight.AnyLost([]*inflight.Delivery{s.wake})
}

// checkUnchanged returns [provider.ErrSessionLost] if the stored history differs from the
// session's copy. It does nothing if doubtful is false. This only avoids sending the messages of a
// lost session; the history write checks the sentinel in any case.
func (s *session) checkUnchanged(ctx context.Context, doubtful bool) error {
	if !doubtful {
		return nil
	}
	etag, err := s.instances.Histories.SentinelETag(ctx, s.instanceID)
	if err != nil {
		return err
	}
	if etag != s.loaded.ETag {
		return fmt.Errorf("history of %q has changed: %w", s.instanceID, provider.ErrSessionLost)
	}
	if etag != "" || s.loaded.Row == nil {
		return nil
	}
	// Neither a purged instance nor an instance that has not started has a sentinel. Only the
	// purged one has no row.
	row, err := s.instances.Rows.Read(ctx, s.instanceID)
	if err == nil && (row == nil || row.State.Instance.ExecutionID != s.loaded.Row.State.Instance.ExecutionID) {
		err = fmt.Errorf("instance %q was purged or replaced: %w", s.instanceID, provider.ErrSessionLost)
	}
	return err
}
