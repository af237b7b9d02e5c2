package partitionlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/bloblog"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"golang.org/x/sync/errgroup"
)

// Instances implements [provider.Client]. Pages are sorted by instance ID. A continuation is the
// first ID of the next page.
func (h *Hub) Instances(ctx context.Context, q provider.Query) (*provider.Page, error) {
	if q.PageSize <= 0 {
		q.PageSize = h.cfg.PageSize
	}
	part := q // the partitions share the byte limit of the page
	part.PageBytes = max(q.PageBudget().Remaining()/len(h.partitions), 1)
	pages := make([]*provider.Page, len(h.partitions))
	group, groupCtx := errgroup.WithContext(ctx)
	for n, s := range h.partitions {
		group.Go(func() error {
			err := s.readIfAny(groupCtx, func(r *partition.Reader) (err error) {
				pages[n], err = r.Instances(groupCtx, part)
				return err
			})
			if p := pages[n]; p != nil {
				for i, u := range p.Unreadable {
					p.Unreadable[i].Cause = fmt.Errorf("partition %d: %w", n, u.Cause)
				}
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return mergePages(pages, q)
}

// mergePages merges the pages of all partitions into one. The page of a partition without a log is
// nil.
func mergePages(pages []*provider.Page, q provider.Query) (*provider.Page, error) {
	merged := &provider.Page{}
	var all []*provider.InstanceState
	end := "" // instances from this ID on belong to later pages
	for _, p := range pages {
		if p == nil {
			continue
		}
		all = append(all, p.Instances...)
		merged.Unreadable = append(merged.Unreadable, p.Unreadable...)
		if p.Continuation != "" {
			places, err := provider.DecodeContinuation(p.Continuation, 1)
			if err != nil {
				return nil, err
			}
			if end == "" || places[0] < end {
				end = places[0]
			}
		}
	}
	slices.SortFunc(all, func(a, b *provider.InstanceState) int {
		return strings.Compare(a.Instance.InstanceID, b.Instance.InstanceID)
	})
	room := q.PageBudget()
	for _, s := range all {
		id := s.Instance.InstanceID
		if end != "" && id >= end {
			break
		}
		if len(merged.Instances) == q.PageSize || room.Remaining() == 0 {
			end = id
			break
		}
		room.Subtract(s)
		merged.Instances = append(merged.Instances, s)
	}
	if end != "" {
		merged.Continuation = provider.EncodeContinuation(end)
		merged.Unreadable = slices.DeleteFunc(merged.Unreadable, func(u provider.UnreadableInstance) bool { return u.InstanceID >= end })
	}
	slices.SortFunc(merged.Unreadable, func(a, b provider.UnreadableInstance) int { return strings.Compare(a.InstanceID, b.InstanceID) })
	return merged, nil
}

// readIfAny is read, but does nothing if the partition has no log because it was never opened.
func (s *partitionHandle) readIfAny(ctx context.Context, f func(*partition.Reader) error) error {
	err := s.read(ctx, f)
	if errors.Is(err, bloblog.ErrNoLog) {
		return nil
	}
	return err
}

// Instance implements [provider.Client].
func (h *Hub) Instance(ctx context.Context, id string, fetch provider.Fetch) (state *provider.InstanceState, err error) {
	err = h.partitionOf(id).readIfAny(ctx, func(r *partition.Reader) error {
		state, err = r.Instance(ctx, id, fetch)
		return err
	})
	if state == nil && err == nil {
		return nil, provider.ErrInstanceNotFound
	}
	return state, err
}

// History implements [provider.Client].
func (h *Hub) History(ctx context.Context, id string) (past []history.Event, err error) {
	err = h.partitionOf(id).readIfAny(ctx, func(r *partition.Reader) error {
		past, err = r.History(ctx, id)
		return err
	})
	return past, err
}

// AwaitEnd implements [provider.Awaiter]. It does not poll if this process owns the instance's
// partition.
func (h *Hub) AwaitEnd(ctx context.Context, id string) error {
	s := h.partitionOf(id)
	for gap := 20 * time.Millisecond; ; gap = min(gap*3/2, h.cfg.MaxPollingInterval) {
		if err := h.ensure(ctx); err != nil {
			return err
		}
		if o := s.owner(); o != nil {
			if err := o.AwaitEnd(ctx, id); err == nil || ctx.Err() != nil || !o.isEnd(err) {
				return err
			}
		}
		state, err := h.Instance(ctx, id, provider.Fetch{})
		if err != nil || state.Status.IsTerminal() {
			return err
		}
		if !pause.For(ctx, gap) {
			return ctx.Err()
		}
	}
}

// Rewind implements [provider.Rewinder]. It changes each instance in one transaction of its
// partition, children before their parents. It can be repeated after a crash.
func (h *Hub) Rewind(ctx context.Context, id, reason string) error {
	at := time.Now()
	state, err := h.Instance(ctx, id, provider.Fetch{})
	if err != nil {
		return err
	}
	if !provider.CanRewind(state.Status) {
		return provider.ErrInstanceChanged
	}
	plan, err := provider.PlanRewind(ctx, id, reason, at, h.History)
	if err != nil {
		return err
	}
	for _, x := range plan.Executions {
		err := h.partitionOf(x.Instance.InstanceID).request(ctx, partition.Request{Kind: partition.RequestRewind, Execution: x, Time: at}, nil,
			func(p *partition.Partition) error { return p.RewindExecution(ctx, x, at) })
		if err != nil {
			return fmt.Errorf("rewind instance %s: %w", x.Instance.InstanceID, err)
		}
	}
	for _, m := range plan.Messages {
		if err := h.Send(ctx, m); err != nil {
			return err
		}
	}
	for _, x := range plan.Executions {
		h.log.Info("instance rewound", "event", "FunctionRewound", "instanceId", x.Instance.InstanceID, "executionId", x.Instance.ExecutionID, "reason", reason)
	}
	return nil
}

// Usage implements [provider.UsageReporter].
func (h *Hub) Usage() []provider.Usage { return h.usage() }

// IsExactlyOnce implements [provider.ExactlyOnce]. A checkpoint is one record of its partition's
// log, and its messages to other partitions have numbers that the receivers check. The result is false
// once this process has acquired a partition that contains imported data.
func (h *Hub) IsExactlyOnce() bool { return !h.imported.Load() }

// QueuePosition implements [provider.QueuePositioner]. It is exact for a partition that this
// process works on. For others it returns the whole backlog, as last reported by the owner or as
// stored.
func (h *Hub) QueuePosition(ctx context.Context, id string) (provider.QueuePosition, error) {
	if err := h.ensure(ctx); err != nil {
		return provider.QueuePosition{}, err
	}
	place := provider.QueuePosition{Partition: h.numberOf(id)}
	s := h.partitions[place.Partition]
	if o := s.owner(); o != nil {
		if before, served := o.MessagesAhead(id); served {
			place.Owner, place.MessagesAhead, place.IsExact = h.cfg.WorkerID, before, true
			return place, nil
		}
	}
	all, _, err := h.heartbeats(ctx)
	if err == nil {
		err = h.refresh(ctx, all)
	}
	if err != nil {
		return place, err
	}
	for worker, beat := range all {
		if b, owns := beat.Backlogs[place.Partition]; owns {
			place.Owner, place.MessagesAhead = worker, b.Messages
			return place, nil
		}
	}
	err = s.readIfAny(ctx, func(r *partition.Reader) error {
		messages, _, _, err := r.Pending()
		place.MessagesAhead = max(0, messages-1)
		return err
	})
	return place, err
}
