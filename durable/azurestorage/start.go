package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/jumpstart"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/uuid"
)

// starter starts instances.
type starter struct {
	hub     *TaskHub
	records *jumpstart.Records
	again   recentExecutions // whose starts this process has sent again
	blobs   startBlobs
}

// start starts an instance with the given event.
func (s *starter) start(ctx context.Context, start provider.TaskMessage, event history.ExecutionStarted, refuse []history.RuntimeStatus) error {
	if err := s.hub.resources.ensureCreated(ctx); err != nil {
		return err
	}
	s.removeBlobs(ctx)
	if event.Instance.ExecutionID == "" {
		event.Instance.ExecutionID = strings.ReplaceAll(uuid.NewString(), "-", "")
	}
	generation := event.Generation
	if generation == nil {
		event.Generation = new(0)
	}
	start.Event, start.Target = &event, event.Instance
	return s.startRecorded(ctx, &start, &event, func() error { return s.startUnlessRefused(ctx, start, event, generation, refuse) })
}

// maxReplaceAttempts is how often a start tries to replace an instance whose row its worker
// writes at the same time.
const maxReplaceAttempts = 5

// startUnlessRefused starts an instance, in the place of one that has its ID if
// that is not in one of the statuses in refuse.
func (s *starter) startUnlessRefused(ctx context.Context, start provider.TaskMessage, event history.ExecutionStarted, generation *int, refuse []history.RuntimeStatus) error {
	start.Event = &event
	begun := s.hub.begun.of(event.Instance.InstanceID)
	before, err := s.startOver(ctx, start, &event, nil)
	if before == nil || err != nil {
		return err
	}
	now := *before // what is remembered of the row stays as the row says
	before = &now
	begun.tell(&before.State)
	for n := 1; n <= maxReplaceAttempts && !slices.Contains(refuse, before.State.Status); n++ {
		if generation == nil {
			event.Generation = new(before.State.Generation + 1)
		}
		seen := before.State
		before, err = s.startOver(ctx, start, &event, before)
		if before == nil || err != nil {
			return err
		}
		// If it is not the same, or a later generation of it, another client was faster.
		if now := before.State; now.Instance != seen.Instance && (now.FirstCreatedAt.IsZero() || !now.FirstCreatedAt.Equal(seen.FirstCreatedAt)) {
			break
		}
	}
	if err := s.sendPending(ctx, &before.State); err != nil {
		return fmt.Errorf("instance %s is pending; send its start again: %w", event.Instance.InstanceID, err)
	}
	return &provider.InstanceExistsError{InstanceID: event.Instance.InstanceID, Status: before.State.Status}
}

// startOver starts an instance in the place of the one that has the row before, or
// one whose ID is free if that is nil. If another has the ID, it returns its row.
func (s *starter) startOver(ctx context.Context, start provider.TaskMessage, event *history.ExecutionStarted, before *wire.InstanceRow) (taken *wire.InstanceRow, err error) {
	p := s.hub.partitionOf(start.Target.InstanceID)
	out := &outgoing{
		queue: p.queue, partition: p, duplicates: true,
		env: &wire.Envelope{Message: &start, Sender: &history.OrchestrationInstance{}},
	}
	s.hub.sender.reserve([]*outgoing{out}) // it is claimed if this process runs the partition
	if before == nil {
		if row, begun, err := s.startDirectly(ctx, out, event); begun {
			return row, err
		}
	}
	sent, err := s.hub.sender.post(ctx, out)
	if err != nil {
		s.blobs.remember(out.blob)
		return nil, err
	}
	row, made, err := s.hub.instances.Rows.Create(ctx, event, before, out.blob)
	switch {
	case errors.Is(err, instances.ErrPurged):
		s.retract(ctx, sent)
		return s.startOver(ctx, start, event, nil)
	case err == nil && row.State.Instance.ExecutionID == event.Instance.ExecutionID:
		if before == nil && made && sent.claimed != nil {
			s.knowNew(sent.claimed, row)
		}
		row = nil
	case err == nil || store.WasNotApplied(err):
		s.retract(ctx, sent)
		return row, err
	}
	s.hub.sender.handOver(ctx, []sentMessage{sent}) // its receiver checks whether the row is there
	return row, err
}

// knowNew remembers that there is nothing of the instance that d starts but its row, which
// this process has just inserted.
func (s *starter) knowNew(d *delivery, row *wire.InstanceRow) {
	row.State.Input = nil // it is in the message, and can be large
	s.hub.instances.CachedRows.Put(row.State.Instance.InstanceID, row)
	d.fresh = instances.NewInstance(row)
}

// startDirectly is startOver for an ID that may be free, if this process runs the partition.
// It inserts the row and then hands the start over in memory, as [TaskHub.sendDirectly] does
// an event. If this process dies before the history is written, no caller was told of the
// instance. Its start is sent when a client starts it again (see sendPending), or later by a
// worker (see [overdueStarts]). begun is false if the start has to be sent before the row: it
// is not due yet, or large, so that the row names the blob that it is in.
func (s *starter) startDirectly(ctx context.Context, out *outgoing, event *history.ExecutionStarted) (taken *wire.InstanceRow, begun bool, err error) {
	h, r := s.hub, out.partition.currentReading()
	if !out.claim || r == nil || !provider.Due(*out.env.Message).IsZero() {
		return nil, false, nil
	}
	e, size, err := h.newDirectEvent(out)
	if err != nil {
		h.sender.unclaim(out)
		return nil, true, err
	}
	if size > wire.LargeMessageThreshold {
		return nil, false, nil
	}
	row, made, err := h.instances.Rows.CreateDirect(ctx, event)
	switch {
	case errors.Is(err, instances.ErrPurged):
		h.sender.unclaim(out)
		taken, err = s.startOver(ctx, *out.env.Message, event, nil)
		return taken, true, err
	case err == nil && row.State.Instance.ExecutionID == event.Instance.ExecutionID:
	case err == nil || store.WasNotApplied(err):
		h.sender.unclaim(out)
		return row, true, err
	default: // it is sent, since the row may be there; its receiver looks
		if !r.spawn(func() { e.d.handBack(r.work, 0) }) {
			e.handBackLate(ctx)
		}
		return nil, true, err
	}
	if made {
		s.knowNew(e.d, row)
	}
	if !r.run(func() { r.arrive(e.d) }) {
		e.handBackLate(ctx)
	}
	return nil, true, e.await(ctx)
}

// startRecorded makes a start by f, with a record of it beside.
func (s *starter) startRecorded(ctx context.Context, start *provider.TaskMessage, event *history.ExecutionStarted, f func() error) error {
	if !s.hub.cfg.JumpStart.Enabled {
		return f()
	}
	row, err := s.records.Record(ctx, s.hub.partitionOf(event.Instance.InstanceID).queue.Name, start, event)
	if err != nil {
		return fmt.Errorf("record it: %w", err)
	}
	err = f()
	// What is known not to have happened must not happen later either. When the
	// fate is not known, the record decides it.
	if errors.Is(err, provider.ErrInstanceExists) || err != nil && store.WasNotApplied(err) {
		settled, cancel := settling(ctx)
		defer cancel()
		if dropErr := s.records.Drop(settled, row); dropErr != nil {
			s.hub.log.Warn("record of a start that was refused could not be deleted", "instanceId", row.InstanceID, "error", dropErr)
		}
	}
	return err
}

// sendPending sends the start of an instance that is due and pending, for a client that was
// refused its ID: that may be the client which started it and got no answer, and the process
// which inserted the row may have died before anything had the start.
func (s *starter) sendPending(ctx context.Context, state *provider.InstanceState) error {
	h := s.hub
	hasStart := h.partitionOf(state.Instance.InstanceID).currentReading() != nil && h.inbox.hasStart(state.Instance)
	if state.Status != history.Pending || state.ScheduledAt.After(time.Now()) || hasStart || s.again.has(state.Instance) {
		return nil
	}
	return s.startAgain(ctx, state.Instance)
}

// startAgain sends the start of an instance again if it is pending still. The
// execution is the same, so that it is run once even if there is another message. An
// instance whose input is gone fails.
func (s *starter) startAgain(ctx context.Context, pending history.OrchestrationInstance) error {
	h := s.hub
	row, err := h.instances.Rows.Fetch(ctx, pending.InstanceID, provider.Fetch{Input: true})
	if err != nil || row == nil || row.State.Instance != pending || row.State.Status != history.Pending {
		return err
	}
	switch err := h.instances.Rows.Resolve(ctx, row, wire.MaxDecompressed); {
	case store.IsBlobGone(err):
		return h.instances.FailUnstarted(ctx, pending, err)
	case err != nil:
		return err
	}
	state := &row.State
	if now := time.Now(); isOverdue(state, now) || isInterrupted(row, now) {
		h.log.Warn("instance is pending and its start message is missing: it is sent again",
			"instanceId", state.Instance.InstanceID, "executionId", state.Instance.ExecutionID, "created", state.CreatedAt)
	}
	start := provider.TaskMessage{Target: state.Instance, Event: &history.ExecutionStarted{
		Header: history.NewHeader(state.CreatedAt), Instance: state.Instance,
		Name: state.Name, Version: state.Version, Input: state.Input, Tags: state.Tags,
		ScheduledStart: state.ScheduledAt, Generation: row.Generation,
	}}
	p := h.partitionOf(state.Instance.InstanceID)
	sent, err := h.sender.send(ctx, p.queue, &wire.Envelope{Message: &start, Sender: &history.OrchestrationInstance{}})
	if err == nil {
		s.again.add(state.Instance)
		sent.partition = p
		h.sender.wake(sent)
	}
	return err
}

// jumpStarts sends those starts of a partition again that have not arrived, for as long as it
// is read.
func (s *starter) jumpStarts(ctx context.Context, p *partition) {
	for pause.For(ctx, s.hub.cfg.JumpStart.Interval) {
		rows, err := s.records.Of(ctx, p.queue.Name)
		for _, row := range rows {
			if err == nil {
				err = s.jumpStart(ctx, &row)
			}
		}
		switch {
		case err == nil:
			s.hub.health.OK("records of starts")
		case ctx.Err() == nil:
			s.hub.health.Failed("records of starts", err)
		}
	}
}

// jumpStart does what is to be done about a record now. A start that is sent again has the
// same execution ID, so that the instance is not run twice if it arrives after all.
func (s *starter) jumpStart(ctx context.Context, row *jumpstart.Start) error {
	h := s.hub
	there, err := h.instances.Rows.Read(ctx, row.InstanceID)
	if err != nil {
		return err
	}
	switch row.Progress(there, time.Now(), h.cfg.JumpStart.Timeout) {
	case jumpstart.Arrived:
		return s.records.Drop(ctx, row)
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
	h.log.Warn("JumpStart: a start has not arrived and is sent again", "instanceId", row.InstanceID, "executionId", row.ExecutionID, "recorded", row.RecordedAt)
	if there != nil && there.State.Instance.ExecutionID == row.ExecutionID {
		_, err = h.sender.send(ctx, h.partitionOf(row.InstanceID).queue, env)
	} else {
		_, err = s.startOver(ctx, *env.Message, event, there) // if another has the ID, the next look finds out
	}
	return err
}

// dropRecords deletes all records of an instance that is purged.
func (s *starter) dropRecords(ctx context.Context, id string) error {
	if !s.hub.cfg.JumpStart.Enabled {
		return nil
	}
	return s.records.DropAll(ctx, s.hub.partitionOf(id).queue.Name, id)
}

const (
	// startOverdue is for how long an instance may be pending before its start is
	// looked for.
	startOverdue = 2 * time.Minute
	// overdueInterval is between two looks for such instances. Each takes one request for
	// every 1,000 pending instances.
	overdueInterval = 5 * time.Minute

	// interruptedAfter is the age from which a direct start counts as interrupted if this
	// process, which owns the partition, does not know it. By then a message that another
	// process has put or handed back is visible.
	interruptedAfter = 30 * time.Second
	// looksSoon is the number of looks for interrupted starts after a partition was
	// acquired, interruptedAfter apart: what the previous owner has in flight may be stored
	// late. A look for all pending instances follows.
	looksSoon = 3
	// firstLook is the time until the first of these looks. Partitions that are acquired
	// together share it.
	firstLook = time.Second
)

// overdueStarts finds pending instances whose start is neither in a queue nor in this
// process, and sends the start again. There are two kinds:
//
//   - An interrupted start: the process died that had inserted the row and was to hand the
//     start over in memory. The row has [wire.DirectStartColumn], and no message is waited for.
//   - A lost start: the queue was cleared, or another program wrote the row and sent no
//     message. A worker cannot tell it from a start that waits in the queue, so it takes
//     the queue's word, once no visible message is left.
type overdueStarts struct {
	hub  *TaskHub
	soon store.Nudge // a partition was acquired, or a start of this process was interrupted
}

// run looks for overdue starts until ctx ends.
func (o *overdueStarts) run(ctx context.Context) {
	soon := 0
	for {
		wait := overdueInterval
		if soon > 0 {
			wait = interruptedAfter
		}
		if o.soon.Pause(ctx, wait) {
			soon = looksSoon + 1
			pause.For(ctx, firstLook)
		}
		if ctx.Err() != nil {
			return
		}
		soon = max(0, soon-1)
		o.hub.starts.removeBlobs(ctx)
		if err := o.look(ctx, soon > 0); err != nil && ctx.Err() == nil {
			o.hub.log.Warn("could not look for instances that are pending for long", "error", err)
			soon = max(1, soon)
		}
	}
}

// look sends the overdue starts of the partitions that this process owns: all, or only the
// interrupted ones.
func (o *overdueStarts) look(ctx context.Context, onlyInterrupted bool) error {
	h, now := o.hub, time.Now()
	if !slices.ContainsFunc(h.partitions, (*partition).isListening) {
		return nil
	}
	quiet := slices.DeleteFunc(slices.Clone(h.partitions), func(p *partition) bool { return !p.isQuiet() })
	q := instances.PendingQuery{Before: now.Add(-interruptedAfter), Direct: onlyInterrupted || len(quiet) == 0}
	return h.instances.Rows.EachPending(ctx, q, func(row *wire.InstanceRow) error {
		if !o.isOverdue(row, quiet, now) {
			return nil
		}
		return h.starts.startAgain(ctx, row.State.Instance)
	})
}

// isOverdue reports whether this process is to send the start of a pending instance again.
// No visible message is left in the queues of quiet.
func (o *overdueStarts) isOverdue(row *wire.InstanceRow, quiet []*partition, now time.Time) bool {
	h, instance := o.hub, row.State.Instance
	p := h.partitionOf(instance.InstanceID)
	if _, writes := h.pendingRows.Load(instance.InstanceID); writes || !p.isListening() || h.inbox.hasStart(instance) || h.starts.again.has(instance) {
		return false
	}
	return isInterrupted(row, now) || slices.Contains(quiet, p) && isOverdue(&row.State, now)
}

// isInterrupted reports whether a direct start is so old that a process which does not
// know it can send it again.
func isInterrupted(row *wire.InstanceRow, now time.Time) bool {
	return row.AwaitsDirectStart() && now.Sub(row.DirectStartAt) >= interruptedAfter
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
