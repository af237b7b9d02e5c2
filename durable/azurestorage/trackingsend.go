package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// tracks reports whether what becomes of an instance is recorded. Entities are
// not: each of their batches is an execution of its own.
func (h *TaskHub) tracks(instanceID string) bool {
	return h.cfg.Tracking && !history.IsEntity(instanceID)
}

// tracked is what is known of an execution's audit.
type tracked struct {
	column string     // of the sentinel, as it was read
	known  bool       // the following is
	before []wire.Row // of the execution before, which may not have been sent
	at     trackPosition
}

// position returns how far the audit of what is loaded has certainly come.
func (s *storedHistory) position(instanceID string) (*tracked, error) {
	t := &s.tracked
	if t.known {
		return t, nil
	}
	mark, before, err := decodeTrackMark(t.column)
	if err != nil {
		return nil, err
	}
	*t = tracked{known: true, before: before}
	if mark.ExecutionID == s.executionID {
		s.addEvents(instanceID, min(mark.Events, len(s.events)))
	}
	return t, nil
}

// addEvents moves the position on to the n-th event, and returns the rows of
// those before it that were not recorded.
func (s *storedHistory) addEvents(instanceID string, n int) (rows []wire.Row) {
	instance := history.OrchestrationInstance{InstanceID: instanceID, ExecutionID: s.executionID}
	for s.tracked.at.events < n {
		rows = s.tracked.at.add(rows, instance, s.events[s.tracked.at.events])
	}
	return rows
}

// unsent returns the rows of what is stored that may not have been sent, and
// takes them for sent.
func (s *storedHistory) unsent(instanceID string) ([]wire.Row, error) {
	t, err := s.position(instanceID)
	if err != nil {
		return nil, err
	}
	rows := append(t.before, s.addEvents(instanceID, len(s.events))...)
	t.before = nil
	return rows, nil
}

// A trackingPlan is what a commit has to say to the tracking queue, once it
// counts.
type trackingPlan struct {
	mark string // for the sentinel
	rows []wire.Row
	next trackPosition
}

// planTracking decides what to record of a checkpoint, and sends what is stored
// already and may not have been sent: the checkpoint may take its place.
func (s *session) planTracking(ctx context.Context, cp *provider.Checkpoint) error {
	s.tracking = nil
	if !s.hub.tracks(s.slot.id) {
		return nil
	}
	if err := s.trackStored(ctx); err != nil {
		return err
	}
	plan := &trackingPlan{next: s.loaded.tracked.at}
	mark := trackMark{ExecutionID: cp.Instance.ExecutionID, Events: plan.next.events}
	var before []wire.Row
	if cp.ContinuedAsNew {
		if len(s.loaded.events) > 0 {
			before = lastEpisode(plan.next, s.instance(), cp, messagesOf(s.current))
		}
		plan.next, mark.Events = trackPosition{}, 0
	}
	plan.rows = before
	for _, ev := range cp.NewEvents {
		plan.rows = plan.next.add(plan.rows, cp.Instance, ev)
	}
	var err error
	if plan.mark, err = mark.encodeWhatFits(before); err != nil {
		return err
	}
	s.tracking = plan
	return nil
}

// trackStored sends what is stored of the instance and may not have been sent.
func (s *session) trackStored(ctx context.Context) error {
	if len(s.loaded.events) == 0 && s.loaded.etag != "" { // the history of another execution
		return s.hub.trackAgain(ctx, s.slot.id)
	}
	rows, err := s.loaded.unsent(s.slot.id)
	if err != nil {
		return err
	}
	return s.hub.sendTracking(ctx, s.slot.id, rows)
}

// track sends what the commit, which counts now, has to say. Whoever takes the
// instance from here knows what it said before by the sentinel.
func (s *session) track(ctx context.Context) error {
	if s.tracking == nil {
		return nil
	}
	if err := s.hub.sendTracking(ctx, s.slot.id, s.tracking.rows); err != nil {
		return err
	}
	s.loaded.tracked = tracked{known: true, at: s.tracking.next}
	return nil
}

// noteTracking adds what the sentinel is to say of the audit, if that is anything.
func (s *session) noteTracking(notes map[string]string) {
	if s.tracking != nil && s.tracking.mark != "" {
		notes[trackingColumn] = s.tracking.mark
	}
}

// lastEpisode returns the rows of the episode in which an execution continued as
// new. Its history does not have them: it was replaced by that of the next one.
func lastEpisode(at trackPosition, old history.OrchestrationInstance, cp *provider.Checkpoint, taken []provider.TaskMessage) (rows []wire.Row) {
	now := history.NewHeader(cp.NewEvents[0].Head().Timestamp)
	end := &history.ContinueAsNew{}
	end.Header, end.Status = now, history.ContinuedAsNew
	for _, ev := range cp.NewEvents {
		if start, ok := ev.(*history.ExecutionStarted); ok {
			end.Result = start.Input
		}
	}
	rows = at.add(rows, old, &history.OrchestratorStarted{Header: now})
	for _, m := range taken {
		rows = at.add(rows, old, m.Event)
	}
	rows = at.add(rows, old, end)
	return at.add(rows, old, &history.OrchestratorCompleted{Header: now})
}

// encodeWhatFits returns the text of a mark that keeps rows of the execution
// before: whole, or without their texts, or, of more than any process takes at
// once unless it is configured to, the first and the last. What is left out is
// missing in the audit only if the worker dies before it has sent it.
func (m trackMark) encodeWhatFits(before []wire.Row) (string, error) {
	text, err := m.encode(before)
	if !errors.Is(err, errMarkTooLong) {
		return text, err
	}
	short := withoutTexts(before)
	if text, err = m.encode(short); !errors.Is(err, errMarkTooLong) {
		return text, err
	}
	return m.encode(slices.Concat(short[:1], short[len(short)-rowsOfEnd:]))
}

// rowsOfEnd is how many rows tell that an execution continued as new.
const rowsOfEnd = 3

// withoutTexts returns rows without what makes them long.
func withoutTexts(rows []wire.Row) []wire.Row {
	short := make([]wire.Row, len(rows))
	for i, row := range rows {
		short[i] = wire.Row{PartitionKey: row.PartitionKey, RowKey: row.RowKey}
		for _, p := range row.Properties {
			if p.Edm != wire.EDMString || len(p.Text) <= maxShortText {
				short[i].Properties = append(short[i].Properties, p)
			}
		}
	}
	return short
}

// maxShortText is how long a text may be that withoutTexts keeps.
const maxShortText = 40

// sendTracking sends rows of an instance to the tracking queue.
func (h *TaskHub) sendTracking(ctx context.Context, instanceID string, rows []wire.Row) error {
	if len(rows) == 0 {
		return nil
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(messagesAtOnce)
	for _, part := range wire.SplitTracking(rows) {
		group.Go(func() error {
			_, err := h.tracking.queue.Put(groupCtx, wire.EncodeQueueText([]byte(wire.RowsJSON(part)), h.cfg.QueueEncoding == Base64), 0, true)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("record what became of it: %w", err)
	}
	h.log.Debug("rows of the audit sent", "instanceId", instanceID, "rows", len(rows))
	h.tracking.wake.Give()
	return nil
}

// trackAgain sends what is stored of an instance and may not have been sent:
// somebody took messages and died before deleting them.
func (h *TaskHub) trackAgain(ctx context.Context, instanceID string) error {
	if !h.tracks(instanceID) {
		return nil
	}
	stored, err := h.loadHistory(ctx, instanceID, "")
	if err != nil {
		return err
	}
	rows, err := stored.unsent(instanceID)
	if err != nil {
		return err
	}
	if len(stored.events) == 0 {
		row, err := h.readInstanceRow(ctx, instanceID)
		if err != nil {
			return err
		}
		rows = append(rows, neverStarted(row)...)
	}
	return h.sendTracking(ctx, instanceID, rows)
}

// neverStarted returns the rows of an instance that was terminated before it
// began, of which there is no history.
func neverStarted(row *wire.InstanceRow) (rows []wire.Row) {
	if row == nil || row.State.Status != history.Terminated {
		return nil
	}
	var at trackPosition
	now := history.NewHeader(row.State.CompletedAt)
	rows = at.add(rows, row.State.Instance, &history.ExecutionTerminated{Header: now, Reason: row.State.Output})
	return at.add(rows, row.State.Instance, &history.OrchestratorCompleted{Header: now})
}
