package azurestorage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// JumpStart has clients record each start in a table of its own before they
// send it, as the Durable Task Framework did on Service Bus. A worker looks at
// the records of its partitions, and sends a start again that was recorded but
// has not arrived: the client died in between, or the storage refused the
// message. It costs three storage operations a start, and a look at the table
// for each partition every Interval.
type JumpStart struct {
	// Enabled turns it on, for this client and this worker.
	Enabled bool
	// Timeout is how long a start may take to arrive before it is sent again.
	// Default 10 minutes; 1 s to a day.
	Timeout time.Duration
	// Interval is how often a worker looks. Default 5 s; 10 ms to an hour.
	Interval time.Duration
}

// The defaults of [JumpStart].
const (
	DefaultJumpStartTimeout  = 10 * time.Minute
	DefaultJumpStartInterval = 5 * time.Second
)

func (j JumpStart) withDefaults() JumpStart {
	set(&j.Timeout, DefaultJumpStartTimeout)
	set(&j.Interval, DefaultJumpStartInterval)
	return j
}

func (j JumpStart) validate() error {
	switch {
	case j.Timeout < time.Second || j.Timeout > 24*time.Hour:
		return fmt.Errorf("JumpStart.Timeout is %v; want 1s to 24h0m0s", j.Timeout)
	case j.Interval < 10*time.Millisecond || j.Interval > time.Hour:
		return fmt.Errorf("JumpStart.Interval is %v; want 10ms to 1h0m0s", j.Interval)
	}
	return nil
}

// A jumpStartRow is the record of a start. The rows of one partition are
// together, so that the worker that has it reads no others.
type jumpStartRow struct {
	Queue       string // the control queue that the start goes to; the partition key
	InstanceID  string
	ExecutionID string
	RecordedAt  time.Time // the start's own time
	SentAt      time.Time // when it was sent, or sent again
	DueAt       time.Time // zero: at once
	Message     string    // the envelope; empty if it is in Blob
	Blob        string
	ETag        string // as read
}

// maxInlineStart is how many bytes of a message are kept in a row.
const maxInlineStart = wire.MaxColumnUnits

func (r jumpStartRow) keys() wire.Row {
	return wire.Row{PartitionKey: r.Queue, RowKey: wire.EscapeKey(r.InstanceID) + "|" + r.ExecutionID}
}

func (r jumpStartRow) entity() wire.Row {
	e := r.keys()
	e.SetString("InstanceId", r.InstanceID)
	e.SetString("ExecutionId", r.ExecutionID)
	e.SetTime("RecordedTime", r.RecordedAt)
	e.SetTime("JumpStartTime", r.SentAt)
	e.SetOptionalTime("ScheduledStartTime", r.DueAt)
	if r.Blob != "" {
		e.SetString("MessageBlobName", r.Blob)
	} else {
		e.SetString("Message", r.Message)
	}
	return e
}

func decodeJumpStartRow(raw []byte) (jumpStartRow, error) {
	var c struct {
		ETag               string `json:"odata.etag"`
		PartitionKey       string
		InstanceID         string `json:"InstanceId"`
		ExecutionID        string `json:"ExecutionId"`
		RecordedTime       eventjson.Time
		JumpStartTime      eventjson.Time
		ScheduledStartTime eventjson.Time
		Message            string
		MessageBlobName    string
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return jumpStartRow{}, fmt.Errorf("decode record of a start: %w", err)
	}
	return jumpStartRow{
		Queue: c.PartitionKey, InstanceID: c.InstanceID, ExecutionID: c.ExecutionID, RecordedAt: c.RecordedTime.Time, SentAt: c.JumpStartTime.Time,
		DueAt: c.ScheduledStartTime.Time, Message: c.Message, Blob: c.MessageBlobName, ETag: c.ETag,
	}, nil
}

// recordStart records a start that is about to be sent.
func (h *TaskHub) recordStart(ctx context.Context, start *provider.TaskMessage, event *history.ExecutionStarted) (*jumpStartRow, error) {
	text, err := wire.EncodeEnvelope(&wire.Envelope{Message: start, Sender: &history.OrchestrationInstance{}})
	if err != nil {
		return nil, err
	}
	row := &jumpStartRow{
		Queue: h.partitionOf(event.Instance.InstanceID).queue.Name, InstanceID: event.Instance.InstanceID, ExecutionID: event.Instance.ExecutionID,
		RecordedAt: event.Timestamp, SentAt: event.Timestamp, DueAt: event.ScheduledStart, Message: string(text),
	}
	if len(text) > maxInlineStart {
		row.Blob = wire.EscapeKey(row.InstanceID) + "/jumpstart-" + row.ExecutionID + ".json.gz"
		if err := h.largeMessages.Write(ctx, row.Blob, text); err != nil {
			return nil, err
		}
	}
	err = store.Retry(ctx, "record the start of instance "+row.InstanceID, func(ctx context.Context) error {
		_, err := h.jumpStartTable.Insert(ctx, row.entity())
		return err
	})
	if err != nil && !store.IsConflict(err) { // in a conflict it was an earlier attempt of ours
		return nil, err
	}
	return row, nil
}

// dropStart deletes the record of a start that has arrived or is not to.
func (h *TaskHub) dropStart(ctx context.Context, row *jumpStartRow) error {
	if row.Blob != "" {
		if err := h.largeMessages.Remove(ctx, row.Blob); err != nil {
			return err
		}
	}
	return h.jumpStartTable.Remove(ctx, row.keys())
}

// jumpStarts looks at the records of a partition for as long as it is read.
func (p *partition) jumpStarts(r *reading) {
	h := p.hub
	for store.Sleep(r.ctx, h.cfg.JumpStart.Interval) {
		rows, err := h.recordedStarts(r.ctx, p.queue.Name)
		for _, row := range rows {
			if err == nil {
				err = h.jumpStart(r.ctx, &row)
			}
		}
		switch {
		case err == nil:
			h.health.OK("records of starts")
		case r.ctx.Err() == nil:
			h.health.Failed("records of starts", err)
		}
	}
}

func (h *TaskHub) recordedStarts(ctx context.Context, queue string) ([]jumpStartRow, error) {
	var rows []jumpStartRow
	err := h.jumpStartTable.All(ctx, store.Query{Filter: "PartitionKey eq '" + store.Doubled(queue) + "'"}, func(raw []byte) error {
		row, err := decodeJumpStartRow(raw)
		if err == nil {
			rows = append(rows, row)
		}
		return err
	})
	return rows, err
}

// jumpStart does what is to be done about a record now.
func (h *TaskHub) jumpStart(ctx context.Context, row *jumpStartRow) error {
	there, err := h.instances.Rows.Read(ctx, row.InstanceID)
	if err != nil {
		return err
	}
	switch judgeRecord(row, there, time.Now(), h.cfg.JumpStart.Timeout) {
	case startArrived:
		return h.dropStart(ctx, row)
	case startMissing:
		return h.sendAgain(ctx, row, there)
	case startAwaited:
	}
	return nil
}

// A startVerdict says how far a recorded start has come.
type startVerdict int

const (
	startAwaited startVerdict = iota // it may arrive yet
	startArrived                     // it has, or another took its place
	startMissing                     // it has not in all that time
)

// judgeRecord says how far a start has come, by the row of the instance that has
// its ID now, nil if there is none.
func judgeRecord(row *jumpStartRow, there *wire.InstanceRow, now time.Time, timeout time.Duration) startVerdict {
	if there != nil {
		state := &there.State
		ours := state.Instance.ExecutionID == row.ExecutionID
		// A row that is older is that of an instance which the start is to replace;
		// one that is not is of an execution that came of the start, or later.
		if ours && state.Status != history.Pending || !ours && (!state.Status.IsTerminal() || !state.CreatedAt.Before(row.RecordedAt)) {
			return startArrived
		}
	}
	since := row.SentAt
	if row.DueAt.After(since) {
		since = row.DueAt
	}
	if now.Sub(since) < timeout {
		return startAwaited
	}
	return startMissing
}

// sendAgain sends a start whose message has not arrived. Its execution ID is the
// same, so that the instance is not run twice if it arrives after all.
func (h *TaskHub) sendAgain(ctx context.Context, row *jumpStartRow, there *wire.InstanceRow) error {
	row.SentAt = time.Now()
	if _, err := h.jumpStartTable.Replace(ctx, row.entity(), row.ETag); err != nil {
		if store.IsConflict(err) {
			return nil // another worker was faster
		}
		return err
	}
	text := row.Message
	if row.Blob != "" {
		raw, err := h.largeMessages.Read(ctx, row.Blob)
		if err != nil {
			return err
		}
		text = string(raw)
	}
	env, err := wire.DecodeEnvelope(text)
	if err != nil {
		return fmt.Errorf("recorded start of instance %q: %w", row.InstanceID, err)
	}
	if env.Message == nil {
		return fmt.Errorf("recorded start of instance %q has no message", row.InstanceID)
	}
	event, ok := env.Message.Event.(*history.ExecutionStarted)
	if !ok {
		return fmt.Errorf("recorded start of instance %q is %s", row.InstanceID, env.Message.Event.Type())
	}
	h.log.Warn("JumpStart: a start has not arrived and is sent again", "instanceId", row.InstanceID, "executionId", row.ExecutionID, "recorded", row.RecordedAt)
	switch {
	case there != nil && there.State.Instance.ExecutionID == row.ExecutionID:
		_, err = h.send(ctx, h.partitionOf(row.InstanceID).queue, env, true)
	default:
		_, err = h.startOver(ctx, *env.Message, event, there) // if another has the ID, the next look finds out
	}
	return err
}

// dropStarts deletes all records of an instance that is purged.
func (h *TaskHub) dropStarts(ctx context.Context, id string) error {
	if !h.cfg.JumpStart.Enabled {
		return nil
	}
	prefix := wire.EscapeKey(id) + "|"
	filter := fmt.Sprintf("PartitionKey eq '%s' and RowKey ge '%s' and RowKey lt '%s'",
		store.Doubled(h.partitionOf(id).queue.Name), store.Doubled(prefix), store.Doubled(strings.TrimSuffix(prefix, "|")+"}"))
	return h.jumpStartTable.All(ctx, store.Query{Filter: filter}, func(raw []byte) error {
		row, err := decodeJumpStartRow(raw)
		if err != nil {
			return err
		}
		if row.InstanceID != id {
			return nil
		}
		return h.dropStart(ctx, &row)
	})
}

// startRecorded makes a start by f, with a record of it beside.
func (h *TaskHub) startRecorded(ctx context.Context, start *provider.TaskMessage, event *history.ExecutionStarted, f func() error) error {
	if !h.cfg.JumpStart.Enabled {
		return f()
	}
	row, err := h.recordStart(ctx, start, event)
	if err != nil {
		return fmt.Errorf("record it: %w", err)
	}
	err = f()
	// What is known not to have happened must not happen later either. When the
	// fate is not known, the record decides it.
	if errors.Is(err, provider.ErrInstanceExists) || err != nil && store.WasNotApplied(err) {
		settled, cancel := settling(ctx)
		defer cancel()
		if dropErr := h.dropStart(settled, row); dropErr != nil {
			h.log.Warn("record of a start that was refused could not be deleted", "instanceId", row.InstanceID, "error", dropErr)
		}
	}
	return err
}
