package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inbound"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/jumpstart"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/monitor"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/outbound"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/uuid"
)

// starter starts instances.
type starter struct {
	*monitor.Monitor
	sender     *outbound.Sender
	partitions inbound.Partitions
	instances  *instances.Store
	late       *lateRows
	blobs      *startBlobs
	jumpStart  JumpStart
	records    *jumpstart.Records
	resent     recentExecutions // executions whose starts this process has resent
}

// start starts an instance with the given event.
func (s *starter) start(ctx context.Context, start provider.TaskMessage, event history.ExecutionStarted, refuse []history.RuntimeStatus) error {
	if event.Instance.ExecutionID == "" {
		event.Instance.ExecutionID = strings.ReplaceAll(uuid.NewString(), "-", "")
	}
	generation := event.Generation
	if generation == nil {
		event.Generation = new(0)
	}
	start.Event, start.Target = &event, event.Instance
	err := s.startRecorded(ctx, &start, &event, func() error { return s.startUnlessRefused(ctx, start, event, generation, refuse) })
	if err == nil {
		s.blobs.removeSome(ctx, s.sender)
	}
	return err
}

// maxReplaceAttempts limits how often a start tries to replace an instance while the instance's
// worker changes the row at the same time.
const maxReplaceAttempts = 5

// startUnlessRefused starts an instance. It replaces an existing instance with the same ID unless
// its status is in refuse.
func (s *starter) startUnlessRefused(ctx context.Context, start provider.TaskMessage, event history.ExecutionStarted, generation *int, refuse []history.RuntimeStatus) error {
	start.Event = &event
	started := s.late.started.of(event.Instance.InstanceID)
	before, err := s.tryStart(ctx, start, &event, nil)
	if before == nil || err != nil {
		return err
	}
	now := *before // the cached row must not change
	before = &now
	started.correct(&before.State)
	for n := 1; n <= maxReplaceAttempts && !slices.Contains(refuse, before.State.Status); n++ {
		if generation == nil {
			event.Generation = new(before.State.Generation + 1)
		}
		seen := before.State
		before, err = s.tryStart(ctx, start, &event, before)
		if before == nil || err != nil {
			return err
		}
		// Another client was faster if this is neither the same instance nor a later generation of
		// it.
		if now := before.State; now.Instance != seen.Instance && (now.FirstCreatedAt.IsZero() || !now.FirstCreatedAt.Equal(seen.FirstCreatedAt)) {
			break
		}
	}
	if err := s.resendPending(ctx, &before.State); err != nil {
		return fmt.Errorf("instance %s is pending; send its start again: %w", event.Instance.InstanceID, err)
	}
	return &provider.InstanceExistsError{InstanceID: event.Instance.InstanceID, Status: before.State.Status}
}

// tryStart starts an instance. It replaces the instance whose row is before; the ID must be free if
// before is nil. If another instance has the ID, tryStart returns that instance's row.
func (s *starter) tryStart(ctx context.Context, start provider.TaskMessage, event *history.ExecutionStarted, before *wire.InstanceRow) (other *wire.InstanceRow, err error) {
	p := s.partitions.Of(start.Target.InstanceID)
	out := &outbound.Message{
		To: p, Duplicates: true,
		Env: &wire.Envelope{Message: &start, Sender: &history.OrchestrationInstance{}},
	}
	s.sender.Reserve([]*outbound.Message{out}) // claimed if this process owns the partition
	if before == nil {
		if row, started, err := s.startDirectly(ctx, p, out, event); started {
			return row, err
		}
	}
	sent, err := s.sender.Post(ctx, out)
	if err != nil {
		s.blobs.remember(out.Blob)
		return nil, err
	}
	row, made, err := s.instances.Rows.Create(ctx, event, before, out.Blob)
	switch {
	case errors.Is(err, instances.ErrPurged):
		s.retract(ctx, sent)
		return s.tryStart(ctx, start, event, nil)
	case err == nil && row.State.Instance.ExecutionID == event.Instance.ExecutionID:
		if before == nil && made && sent.Claimed != nil {
			s.rememberNew(sent.Claimed, row)
		}
		row = nil
	case err == nil || store.WasNotApplied(err):
		s.retract(ctx, sent)
		return row, err
	}
	s.sender.HandOver(ctx, []outbound.Sent{sent}) // its receiver checks whether the row exists
	return row, err
}

// rememberNew records that nothing is stored of the instance that d starts except row, which this
// process has just inserted.
func (s *starter) rememberNew(d *inflight.Delivery, row *wire.InstanceRow) {
	row.State.Input = nil // the message has it, and it can be large
	s.instances.CachedRows.Put(row.State.Instance.InstanceID, row)
	d.NewInstance = instances.NewInstance(row)
}

// retract deletes the message of a refused start, and its blob. If the message may still be in
// the queue, retract remembers the blob.
func (s *starter) retract(ctx context.Context, sent outbound.Sent) {
	all := []outbound.Sent{sent}
	s.sender.Retract(ctx, all)
	s.blobs.remember(all[0].Blob)
}

// startDirectly is tryStart for an ID that may be free, if this process owns the partition. It
// inserts the row and then delivers the start in memory, as [outbound.Sender.Deliver] does with an
// event. If this process dies before the history is written, no caller has got a success response.
// The start is sent when a client starts the ID again (see resendPending), or later by a worker
// (see [overdueStarts]).
//
// started is false if the start must be sent before the row is inserted. That holds for a start
// that is not due yet, and for a large one, because the row must name its blob.
func (s *starter) startDirectly(ctx context.Context, p *inbound.Partition, out *outbound.Message, event *history.ExecutionStarted) (other *wire.InstanceRow, started bool, err error) {
	r := p.CurrentReading()
	if !out.Claim || r == nil || !provider.DueTime(*out.Env.Message).IsZero() {
		return nil, false, nil
	}
	e, size, err := s.sender.NewDirect(out)
	if err != nil {
		p.Unclaim()
		return nil, true, err
	}
	if size > wire.LargeMessageThreshold {
		return nil, false, nil
	}
	row, made, err := s.instances.Rows.CreateDirect(ctx, event)
	switch {
	case errors.Is(err, instances.ErrPurged):
		p.Unclaim()
		other, err = s.tryStart(ctx, *out.Env.Message, event, nil)
		return other, true, err
	case err == nil && row.State.Instance.ExecutionID == event.Instance.ExecutionID:
	case err == nil || store.WasNotApplied(err):
		p.Unclaim()
		return row, true, err
	default: // the row may exist: send the start, and let its receiver check
		if !r.Spawn(func() { e.Delivery.Release(r.Work, 0) }) {
			e.AbandonAfterStop(ctx)
		}
		return nil, true, err
	}
	if made {
		s.rememberNew(e.Delivery, row)
	}
	if !r.Run(func() { r.Arrive(e.Delivery) }) {
		e.AbandonAfterStop(ctx)
	}
	return nil, true, e.Await(ctx)
}

// startRecorded calls f to start an instance. If JumpStart is enabled, it records the start first.
func (s *starter) startRecorded(ctx context.Context, start *provider.TaskMessage, event *history.ExecutionStarted, f func() error) error {
	if !s.jumpStart.Enabled {
		return f()
	}
	row, err := s.records.Record(ctx, s.partitions.Of(event.Instance.InstanceID).Name(), start, event)
	if err != nil {
		return fmt.Errorf("write JumpStart record: %w", err)
	}
	err = f()
	// A start that certainly failed must not happen later. Otherwise the record decides.
	if errors.Is(err, provider.ErrInstanceExists) || err != nil && store.WasNotApplied(err) {
		settled, cancel := outbound.Settling(ctx)
		defer cancel()
		if dropErr := s.records.Delete(settled, row); dropErr != nil {
			s.Log.Warn("cannot delete JumpStart record of a refused start", "instanceId", row.InstanceID, "error", dropErr)
		}
	}
	return err
}

// resendPending sends the start of a due, pending instance again after a client was refused its ID.
// The client may have started it before without getting a response. The process that inserted the
// row may have died before it sent the start.
func (s *starter) resendPending(ctx context.Context, state *provider.InstanceState) error {
	hasStart := s.partitions.Of(state.Instance.InstanceID).HasStart(state.Instance)
	if state.Status != history.Pending || state.ScheduledAt.After(time.Now()) || hasStart || s.resent.has(state.Instance) {
		return nil
	}
	return s.resendStart(ctx, state.Instance)
}

// resendStart sends the start of an instance again if it is still pending. It has the same
// execution ID, so the instance runs once even if there is another start message. If the instance's
// input is missing, the instance fails.
func (s *starter) resendStart(ctx context.Context, pending history.OrchestrationInstance) error {
	row, err := s.instances.Rows.Fetch(ctx, pending.InstanceID, provider.Fetch{Input: true})
	if err != nil || row == nil || row.State.Instance != pending || row.State.Status != history.Pending {
		return err
	}
	switch err := s.instances.Rows.Resolve(ctx, row, wire.MaxDecompressed); {
	case store.IsBlobGone(err):
		return s.instances.FailUnstarted(ctx, pending, err)
	case err != nil:
		return err
	}
	state := &row.State
	if now := time.Now(); isOverdue(state, now) || isInterrupted(row, now) {
		s.Log.Warn("instance is pending without a start message; sending its start again",
			"instanceId", state.Instance.InstanceID, "executionId", state.Instance.ExecutionID, "created", state.CreatedAt)
	}
	start := provider.TaskMessage{Target: state.Instance, Event: &history.ExecutionStarted{
		Header: history.NewHeader(state.CreatedAt), Instance: state.Instance,
		Name: state.Name, Version: state.Version, Input: state.Input, Tags: state.Tags,
		ScheduledStart: state.ScheduledAt, Generation: row.Generation,
	}}
	sent, err := s.sender.Send(ctx, s.partitions.Of(state.Instance.InstanceID), &wire.Envelope{Message: &start, Sender: &history.OrchestrationInstance{}})
	if err == nil {
		s.resent.add(state.Instance)
		sent.To.Announce()
	}
	return err
}

// jumpStarts resends the starts of a partition that have not arrived. It returns when ctx ends.
func (s *starter) jumpStarts(ctx context.Context, p *inbound.Partition) {
	for pause.For(ctx, s.jumpStart.Interval) {
		rows, err := s.records.OfQueue(ctx, p.Name())
		for _, row := range rows {
			if err == nil {
				err = s.resendRecorded(ctx, &row)
			}
		}
		switch {
		case err == nil:
			s.Health.OK("records of starts")
		case ctx.Err() == nil:
			s.Health.Failed("records of starts", err)
		}
	}
}

// resendRecorded processes a record: it deletes it, or resends the start. The execution ID is the same,
// so that the instance runs once even if the first start arrives later.
func (s *starter) resendRecorded(ctx context.Context, row *jumpstart.Start) error {
	stored, err := s.instances.Rows.Read(ctx, row.InstanceID)
	if err != nil {
		return err
	}
	switch row.Progress(stored, time.Now(), s.jumpStart.Timeout) {
	case jumpstart.Arrived:
		return s.records.Delete(ctx, row)
	case jumpstart.Awaited:
		return nil
	case jumpstart.Missing:
	}
	if renewed, err := s.records.Renew(ctx, row); err != nil || !renewed {
		return err
	}
	env, event, err := s.records.Envelope(ctx, row)
	if err != nil {
		return err
	}
	s.Log.Warn("JumpStart: a start has not arrived; sending it again", "instanceId", row.InstanceID, "executionId", row.ExecutionID, "recorded", row.RecordedAt)
	if stored != nil && stored.State.Instance.ExecutionID == row.ExecutionID {
		_, err = s.sender.Send(ctx, s.partitions.Of(row.InstanceID), env)
	} else {
		_, err = s.tryStart(ctx, *env.Message, event, stored) // if another instance has the ID, the next query of the record handles it
	}
	return err
}

// deleteRecords deletes all records of an instance that is purged.
func (s *starter) deleteRecords(ctx context.Context, id string) error {
	if !s.jumpStart.Enabled {
		return nil
	}
	return s.records.DeleteAll(ctx, s.partitions.Of(id).Name(), id)
}

const (
	// startOverdue is the time after which the start of a due, pending instance is considered lost.
	startOverdue = 2 * time.Minute
	// scanInterval is the time between two scans for such instances. A scan takes one request per
	// 1,000 pending instances.
	scanInterval = 5 * time.Minute

	// interruptedAfter is the age from which a direct start counts as interrupted if this process,
	// which owns the partition, does not know it. By then a message that another process has
	// enqueued or released is visible.
	interruptedAfter = 30 * time.Second
	// earlyScans is the number of scans for interrupted starts after a partition was acquired,
	// interruptedAfter apart: requests of the previous owner may be stored late. A scan for all
	// pending instances follows.
	earlyScans = 3
	// firstScanDelay is the time until the first of these scans. Partitions that are acquired
	// together share it.
	firstScanDelay = time.Second
)

// overdueStarts finds pending instances whose start is neither in a queue nor in this process, and
// sends the start again. There are two kinds:
//
//   - An interrupted start: a process inserted the row and died before it delivered the start in
//     memory. The row has [wire.DirectStartColumn], and no message is expected.
//   - A lost start: the queue was cleared, or another program wrote the row and sent no message. A
//     worker cannot distinguish it from a start that waits in the queue. It therefore considers the
//     start lost only if the queue has no visible message.
type overdueStarts struct {
	starts *starter
	rescan store.Nudge // a partition was acquired, or a start of this process was interrupted
}

// run scans for overdue starts until ctx ends.
func (o *overdueStarts) run(ctx context.Context) {
	early := 0
	for {
		wait := scanInterval
		if early > 0 {
			wait = interruptedAfter
		}
		if o.rescan.Pause(ctx, wait) {
			early = earlyScans + 1
			pause.For(ctx, firstScanDelay)
		}
		if ctx.Err() != nil {
			return
		}
		early = max(0, early-1)
		o.starts.blobs.remove(ctx, o.starts.sender, maxStartBlobs)
		if err := o.scan(ctx, early > 0); err != nil && ctx.Err() == nil {
			o.starts.Log.Warn("cannot query pending instances", "error", err)
			early = max(1, early)
		}
	}
}

// scan resends the overdue starts of the partitions that this process owns: all of them, or only
// the interrupted ones.
func (o *overdueStarts) scan(ctx context.Context, onlyInterrupted bool) error {
	s, now := o.starts, time.Now()
	if !slices.ContainsFunc(s.partitions, (*inbound.Partition).IsListening) {
		return nil
	}
	quiet := slices.DeleteFunc(slices.Clone(s.partitions), func(p *inbound.Partition) bool { return !p.IsQuiet() })
	q := instances.PendingQuery{Before: now.Add(-interruptedAfter), Direct: onlyInterrupted || len(quiet) == 0}
	oldest := map[*inbound.Partition]time.Time{}
	err := s.instances.Rows.EachPending(ctx, q, func(row *wire.InstanceRow) error {
		p, due := s.partitions.Of(row.State.Instance.InstanceID), instances.DueSince(&row.State)
		if first, known := oldest[p]; !known || due.Before(first) {
			oldest[p] = due
		}
		if !o.isOverdue(row, quiet, now) {
			return nil
		}
		return s.resendStart(ctx, row.State.Instance)
	})
	if err == nil && !onlyInterrupted {
		for _, p := range s.partitions {
			p.OldestStart.Set(oldest[p])
		}
	}
	return err
}

// isOverdue reports whether this process must resend the start of a pending instance. quiet are the
// partitions whose queues have no visible message.
func (o *overdueStarts) isOverdue(row *wire.InstanceRow, quiet []*inbound.Partition, now time.Time) bool {
	s, instance := o.starts, row.State.Instance
	p := s.partitions.Of(instance.InstanceID)
	if s.late.of(instance.InstanceID) != nil || !p.IsListening() || p.HasStart(instance) || s.resent.has(instance) {
		return false
	}
	return isInterrupted(row, now) || slices.Contains(quiet, p) && isOverdue(&row.State, now)
}

// isInterrupted reports whether a direct start is so old that a process that does not know it may
// resend it.
func isInterrupted(row *wire.InstanceRow, now time.Time) bool {
	return row.AwaitsDirectStart() && now.Sub(row.DirectStartAt) >= interruptedAfter
}

// isOverdue reports whether an instance should have started by now.
func isOverdue(s *provider.InstanceState, now time.Time) bool {
	return s.Status == history.Pending && now.Sub(instances.DueSince(s)) > startOverdue
}
