package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inbound"
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
	*inbound.Lock

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

// newSession returns the session of a locked instance. A background write of the row may have ended after
// the instance was loaded.
func newSession(c *committer, l *inbound.Lock) *session {
	s := &session{committer: c, Lock: l, pending: c.late.of(l.InstanceID), ordinal: len(l.Loaded.Events)}
	if s.pending == nil {
		c.instances.UseLaterRow(l.Loaded, l.InstanceID)
	}
	return s
}

func (s *session) instance() history.OrchestrationInstance {
	return history.OrchestrationInstance{InstanceID: s.InstanceID, ExecutionID: s.ExecutionID()}
}

// workItem returns the first work item of the session.
func (s *session) workItem() *provider.OrchestrationWorkItem {
	return &provider.OrchestrationWorkItem{
		Instance: s.instance(), History: slices.Clip(s.Loaded.Events), Messages: messagesOf(s.Current),
		OwnedSince: s.Partition.OwnedSince(), Session: s,
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
func (s *session) Holds() bool { return s.Partition.IsListening() }

// Leaves implements [provider.Holder].
func (s *session) Leaves() (left time.Duration, ok bool) { return s.Partition.TimeToLeave() }

// Abandon implements [provider.Session].
func (s *session) Abandon(ctx context.Context, cause error) error {
	if cause == nil {
		cause = errors.New("the episode could not be completed")
	}
	s.takeWake()
	inflight.ForEach(s.Current, func(d *inflight.Delivery) { d.AbandonBecause(ctx, cause) })
	s.Current, s.Failed = nil, true
	return nil
}

// Next implements [provider.Session].
func (s *session) Next(ctx context.Context, idle time.Duration) ([]provider.TaskMessage, error) {
	deliveries, err := s.Await(ctx, idle, s.wake != nil)
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
	if len(s.Current) > 0 || s.wake != nil {
		if err := s.Abandon(ctx, errors.New("the session ended before the messages were processed")); err != nil {
			return err
		}
	}
	s.Unlock(ctx)
	return nil
}

// Commit implements [provider.Session].
func (s *session) Commit(ctx context.Context, cp *provider.Checkpoint) error {
	err := (&commit{session: s, cp: cp}).write(ctx)
	if err == nil {
		return nil
	}
	if errors.Is(err, provider.ErrSessionLost) {
		s.late.log.Warn("SplitBrainDetected", "instanceId", s.InstanceID, "executionId", s.ExecutionID(), "partition", s.Partition.Name(), "error", err)
	}
	s.takeWake()
	for _, d := range s.Current {
		d.Safety.MarkMaybeCommitted()
	}
	s.Failed, s.Loaded.Run = true, ""
	s.committer.instances.Evict(s.InstanceID)
	return fmt.Errorf("commit instance %q: %w", s.InstanceID, err)
}

// removeConsumed deletes the messages that the commit consumed. It deletes a single message in the
// background while the partition is owned; the partition is released after that. It waits for the
// deletion of several messages: more are likely to follow, and the next episode consumes more of
// them if it starts later.
func (s *session) removeConsumed(ctx context.Context) {
	consumed := s.Current
	if len(consumed) == 0 {
		return
	}
	s.Current = nil
	r := s.Partition.CurrentReading()
	// The state of an entity lists consumed messages until they are known to be deleted.
	if history.IsEntity(s.InstanceID) || len(consumed) > 1 || r == nil || !r.Spawn(func() { inflight.RemoveAll(r.Work, consumed) }) {
		inflight.RemoveAll(ctx, consumed)
		s.unsettled = slices.ContainsFunc(consumed, (*inflight.Delivery).MayBeRedelivered)
	}
}

// takeWake makes the wake-up one of the messages that the session holds.
func (s *session) takeWake() {
	if s.wake != nil {
		s.Current, s.wake = append(s.Current, s.wake), nil
	}
}

// mayBeLost reports whether another worker may have advanced the instance. That is possible if this
// worker no longer owns the partition, or if another worker may have received one of the messages.
func (s *session) mayBeLost() bool {
	return !s.Partition.IsListening() || inflight.AnyLost(s.Current) || s.wake != nil && inflight.AnyLost([]*inflight.Delivery{s.wake})
}

// checkUnchanged returns [provider.ErrSessionLost] if the stored history differs from the
// session's copy. It does nothing if doubtful is false. This only avoids sending the messages of a
// lost session; the history write checks the sentinel in any case.
func (s *session) checkUnchanged(ctx context.Context, doubtful bool) error {
	if !doubtful {
		return nil
	}
	etag, err := s.instances.Histories.SentinelETag(ctx, s.InstanceID)
	if err != nil {
		return err
	}
	if etag != s.Loaded.ETag {
		return fmt.Errorf("history of %q has changed: %w", s.InstanceID, provider.ErrSessionLost)
	}
	if etag != "" || s.Loaded.Row == nil {
		return nil
	}
	// Neither a purged instance nor an instance that has not started has a sentinel. Only the
	// purged one has no row.
	row, err := s.instances.Rows.Read(ctx, s.InstanceID)
	if err == nil && (row == nil || row.State.Instance.ExecutionID != s.Loaded.Row.State.Instance.ExecutionID) {
		err = fmt.Errorf("instance %q was purged or replaced: %w", s.InstanceID, provider.ErrSessionLost)
	}
	return err
}
