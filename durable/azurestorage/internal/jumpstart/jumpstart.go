// Package jumpstart keeps the records of starts by which a start that has not arrived is
// sent again, and decides when it is. It sends nothing.
package jumpstart

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Progress is how far a recorded start has come.
type Progress int

// How far a start has come.
const (
	Awaited Progress = iota // it may arrive yet
	Arrived                 // it has, or another took its place
	Missing                 // it has not in all that time
)

// Start is the record of a start. The rows of one partition are
// together, so that the worker that has it reads no others.
type Start struct {
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

// Progress returns how far a start has come, by the row of the instance that has
// its ID now, nil if there is none.
func (r *Start) Progress(there *wire.InstanceRow, now time.Time, timeout time.Duration) Progress {
	if there != nil {
		state := &there.State
		ours := state.Instance.ExecutionID == r.ExecutionID
		// An older row belongs to an instance that the start replaces; a newer one to
		// the execution of the start, or a later one.
		if ours && state.Status != history.Pending || !ours && (!state.Status.IsTerminal() || !state.CreatedAt.Before(r.RecordedAt)) {
			return Arrived
		}
	}
	since := r.SentAt
	if r.DueAt.After(since) {
		since = r.DueAt
	}
	if now.Sub(since) < timeout {
		return Awaited
	}
	return Missing
}

// maxInline is the greatest size in bytes of a message that is kept in a row.
const maxInline = wire.MaxColumnUnits

func (r Start) keys() wire.Row {
	return wire.Row{PartitionKey: r.Queue, RowKey: wire.EscapeKey(r.InstanceID) + "|" + r.ExecutionID}
}

func (r Start) entity() wire.Row {
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

func decode(raw []byte) (Start, error) {
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
		return Start{}, fmt.Errorf("decode record of a start: %w", err)
	}
	return Start{
		Queue: c.PartitionKey, InstanceID: c.InstanceID, ExecutionID: c.ExecutionID, RecordedAt: c.RecordedTime.Time, SentAt: c.JumpStartTime.Time,
		DueAt: c.ScheduledStartTime.Time, Message: c.Message, Blob: c.MessageBlobName, ETag: c.ETag,
	}, nil
}

// Records are the records of the starts of a hub.
type Records struct {
	Table *store.Table
	Blobs *store.Container // for large starts
}

// Record records a start that is about to be sent to a control queue.
func (r *Records) Record(ctx context.Context, queue string, start *provider.TaskMessage, event *history.ExecutionStarted) (*Start, error) {
	text, err := wire.EncodeEnvelope(&wire.Envelope{Message: start, Sender: &history.OrchestrationInstance{}})
	if err != nil {
		return nil, err
	}
	row := &Start{
		Queue: queue, InstanceID: event.Instance.InstanceID, ExecutionID: event.Instance.ExecutionID,
		RecordedAt: event.Timestamp, SentAt: event.Timestamp, DueAt: event.ScheduledStart, Message: string(text),
	}
	if len(text) > maxInline {
		row.Blob = wire.EscapeKey(row.InstanceID) + "/jumpstart-" + row.ExecutionID + ".json.gz"
		if err := r.Blobs.Write(ctx, row.Blob, text); err != nil {
			return nil, err
		}
	}
	err = store.Retry(ctx, "record the start of instance "+row.InstanceID, func(ctx context.Context) error {
		_, err := r.Table.Insert(ctx, row.entity())
		return err
	})
	if err != nil && !store.IsConflict(err) { // in a conflict it was an earlier attempt of ours
		return nil, err
	}
	return row, nil
}

// Drop deletes the record of a start that has arrived or is not to.
func (r *Records) Drop(ctx context.Context, row *Start) error {
	if row.Blob != "" {
		if err := r.Blobs.Remove(ctx, row.Blob); err != nil {
			return err
		}
	}
	return r.Table.Remove(ctx, row.keys())
}

// Of returns the records of a control queue.
func (r *Records) Of(ctx context.Context, queue string) ([]Start, error) {
	var rows []Start
	err := r.Table.All(ctx, store.Query{Filter: "PartitionKey eq '" + store.Doubled(queue) + "'"}, func(raw []byte) error {
		row, err := decode(raw)
		if err == nil {
			rows = append(rows, row)
		}
		return err
	})
	return rows, err
}

// DropAll deletes all records of an instance, whose starts go to a control queue.
func (r *Records) DropAll(ctx context.Context, queue, id string) error {
	prefix := wire.EscapeKey(id) + "|"
	filter := fmt.Sprintf("PartitionKey eq '%s' and RowKey ge '%s' and RowKey lt '%s'",
		store.Doubled(queue), store.Doubled(prefix), store.Doubled(strings.TrimSuffix(prefix, "|")+"}"))
	return r.Table.All(ctx, store.Query{Filter: filter}, func(raw []byte) error {
		row, err := decode(raw)
		if err != nil {
			return err
		}
		if row.InstanceID != id {
			return nil
		}
		return r.Drop(ctx, &row)
	})
}

// Renew notes that a start is sent again now; false means that another worker was faster.
func (r *Records) Renew(ctx context.Context, row *Start) (bool, error) {
	row.SentAt = time.Now()
	_, err := r.Table.Replace(ctx, row.entity(), row.ETag)
	if store.IsConflict(err) {
		return false, nil
	}
	return err == nil, err
}

// Envelope returns the message of a start, and its event.
func (r *Records) Envelope(ctx context.Context, row *Start) (*wire.Envelope, *history.ExecutionStarted, error) {
	text := row.Message
	if row.Blob != "" {
		raw, err := r.Blobs.Read(ctx, row.Blob)
		if err != nil {
			return nil, nil, err
		}
		text = string(raw)
	}
	env, err := wire.DecodeEnvelope(text)
	if err != nil {
		return nil, nil, fmt.Errorf("recorded start of instance %q: %w", row.InstanceID, err)
	}
	if env.Message == nil {
		return nil, nil, fmt.Errorf("recorded start of instance %q has no message", row.InstanceID)
	}
	event, ok := env.Message.Event.(*history.ExecutionStarted)
	if !ok {
		return nil, nil, fmt.Errorf("recorded start of instance %q is %s", row.InstanceID, env.Message.Event.Type())
	}
	return env, event, nil
}
