// Package jumpstart records starts, so that a worker can repeat a start whose message was lost.
//
// A client records a start before it sends the start message. The worker that owns the instance's
// partition checks the records ([Start.Progress]): it deletes the record of a start that has arrived,
// and sends a missing start again. This package stores records and decides; it sends no messages.
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

// Progress is the state of a recorded start.
type Progress int

// The states.
const (
	Awaited Progress = iota // may still arrive
	Arrived                 // has started, or another instance has replaced it
	Missing                 // has not arrived within the timeout
)

// Start is the record of a start. The partition key is the control queue, so a worker reads only the
// records of its own partitions.
type Start struct {
	Queue       string // control queue of the instance; the partition key
	InstanceID  string
	ExecutionID string
	RecordedAt  time.Time // timestamp of the start event
	SentAt      time.Time // when the message was last sent
	DueAt       time.Time // scheduled start; zero means immediately
	Message     string    // the envelope; empty if it is stored in Blob
	Blob        string
	ETag        string // set when the record is read
}

// Progress returns the state of the start. there is the current row of the instance ID, nil if the ID
// has no row. A start is missing if timeout has passed since it was sent or due.
func (r *Start) Progress(there *wire.InstanceRow, now time.Time, timeout time.Duration) Progress {
	if there != nil {
		state := &there.State
		ours := state.Instance.ExecutionID == r.ExecutionID
		// An older row belongs to an instance that this start replaces. A newer row belongs to this
		// start's execution or to a later one.
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

// maxInline is the maximum size in bytes of a message that is stored in the row.
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

// Records stores the records of a hub's starts.
type Records struct {
	Table *store.Table
	Blobs *store.Container // for large messages
}

// Record stores the record of a start that will be sent to a control queue.
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
	if err != nil && !store.IsConflict(err) { // a conflict means that an earlier attempt succeeded
		return nil, err
	}
	return row, nil
}

// Delete deletes the record of a start that has arrived or must not be repeated.
func (r *Records) Delete(ctx context.Context, row *Start) error {
	if row.Blob != "" {
		if err := r.Blobs.Remove(ctx, row.Blob); err != nil {
			return err
		}
	}
	return r.Table.Remove(ctx, row.keys())
}

// OfQueue returns all records of a control queue.
func (r *Records) OfQueue(ctx context.Context, queue string) ([]Start, error) {
	var rows []Start
	err := r.Table.All(ctx, store.Query{Filter: "PartitionKey eq '" + store.EscapeOData(queue) + "'"}, func(raw []byte) error {
		row, err := decode(raw)
		if err == nil {
			rows = append(rows, row)
		}
		return err
	})
	return rows, err
}

// DeleteAll deletes all records of an instance. queue is the control queue of the instance.
func (r *Records) DeleteAll(ctx context.Context, queue, id string) error {
	prefix := wire.EscapeKey(id) + "|"
	filter := fmt.Sprintf("PartitionKey eq '%s' and RowKey ge '%s' and RowKey lt '%s'",
		store.EscapeOData(queue), store.EscapeOData(prefix), store.EscapeOData(strings.TrimSuffix(prefix, "|")+"}"))
	return r.Table.All(ctx, store.Query{Filter: filter}, func(raw []byte) error {
		row, err := decode(raw)
		if err != nil {
			return err
		}
		if row.InstanceID != id {
			return nil
		}
		return r.Delete(ctx, &row)
	})
}

// Renew records that the start is sent again now. It returns false if another worker was faster.
func (r *Records) Renew(ctx context.Context, row *Start) (bool, error) {
	row.SentAt = time.Now()
	_, err := r.Table.Replace(ctx, row.entity(), row.ETag)
	if store.IsConflict(err) {
		return false, nil
	}
	return err == nil, err
}

// Envelope returns the message of a start and its event.
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
