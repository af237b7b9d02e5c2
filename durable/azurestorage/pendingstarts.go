package azurestorage

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

const (
	// startOverdue is for how long an instance may be pending before its start is
	// looked for.
	startOverdue = 2 * time.Minute
	// overdueInterval is between two looks for such instances. Each is one request
	// of a worker that has partitions.
	overdueInterval = 5 * time.Minute
	// overdueAtOnce bounds how many of them a look finds; the next one goes on there.
	overdueAtOnce = 100
	// overdueRemembered bounds how many starts a worker sends again in its life.
	overdueRemembered = 10_000
)

// overdueStarts finds instances that are pending for long and whose start is not in
// the queue that this worker reads: the queue was cleared, or what wrote the row sent
// no message. It sends their starts again.
type overdueStarts struct {
	hub          *TaskHub
	continuation string
	sent         map[string]bool // executions whose start was sent again
}

// run looks now and then, until ctx ends.
func (o *overdueStarts) run(ctx context.Context) {
	for store.Sleep(ctx, overdueInterval) {
		if err := o.look(ctx); err != nil && ctx.Err() == nil {
			o.hub.log.Warn("could not look for instances that are pending for long", "error", err)
		}
	}
}

func (o *overdueStarts) look(ctx context.Context) error {
	h := o.hub
	quiet := map[*partition]bool{}
	for _, p := range h.partitions {
		if p.isQuiet() {
			quiet[p] = true
		}
	}
	if len(quiet) == 0 || len(o.sent) >= overdueRemembered {
		return nil
	}
	before := time.Now().Add(-startOverdue)
	rows, continuation, err := h.instances.Rows.PendingSince(ctx, before, o.continuation, overdueAtOnce)
	if err != nil {
		return err
	}
	o.continuation = continuation
	for _, row := range rows {
		instance := row.State.Instance
		if !quiet[h.partitionOf(instance.InstanceID)] || h.inbox.hasStart(instance) || o.sent[instance.ExecutionID] || !isOverdue(&row.State, time.Now()) {
			continue
		}
		o.sent[instance.ExecutionID] = true
		if err := h.starts.startAgain(ctx, instance); err != nil {
			return err
		}
	}
	return nil
}

// isOverdue reports whether an instance should have begun to run by now.
func isOverdue(s *provider.InstanceState, now time.Time) bool {
	return s.Status == history.Pending && now.Sub(dueSince(s)) > startOverdue
}

// dueSince returns when an instance that is pending is, or was, to start.
func dueSince(s *provider.InstanceState) time.Time {
	if s.ScheduledAt.After(s.LastUpdatedAt) {
		return s.ScheduledAt
	}
	return s.LastUpdatedAt
}
