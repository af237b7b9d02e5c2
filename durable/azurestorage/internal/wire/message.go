package wire

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/uuid"
)

// An Envelope is the content of a queue message (DurableTask.AzureStorage/MessageData.cs).
type Envelope struct {
	// ActivityID is a unique ID of the message; zero in a wrapper.
	ActivityID uuid.UUID
	// Message is nil only in a wrapper.
	Message *provider.TaskMessage
	// CompressedBlobName is the name of the blob with the whole message. If it is set, this envelope
	// is a wrapper.
	CompressedBlobName string
	// SequenceNumber orders the messages of one process; messages of a checkpoint have the order of
	// its decisions. It is 0 in a wrapper.
	SequenceNumber int64
	// Episode is the number of OrchestratorStarted events in the sender's history; nil for clients.
	Episode *int
	// Sender is the sending orchestration. For the result of an activity, it is the orchestration that
	// scheduled the activity. It is &OrchestrationInstance{} for clients, and nil in a wrapper and in
	// messages from old clients.
	Sender *history.OrchestrationInstance
	// TraceContext is passed on unchanged.
	TraceContext *string
	// Scheduled is set for an activity and its result: the time of the TaskScheduled event in the
	// history. .NET does not have this member and ignores it. The time of the activity's own event
	// cannot be used, because .NET gives it another time than the event in the history
	// (DurableTask.Core/TaskOrchestrationDispatcher.cs, ProcessScheduleTaskDecision).
	Scheduled time.Time
	// Batch is the name of the entity's batch that the message belongs to, if the batch may not be
	// committed: see [EntityBatches]. A wrapper has it too. .NET ignores it.
	Batch string
}

// NewWrapper returns the envelope to enqueue for a message that is stored in a blob
// (DurableTask.AzureStorage/MessageManager.cs, SerializeMessageDataAsync).
func NewWrapper(blobName string) *Envelope { return &Envelope{CompressedBlobName: blobName} }

// EncodeEnvelope returns the JSON of e. Unlike .NET, it omits $type in dictionaries, which no reader
// needs and .NET Framework cannot resolve. Dictionaries are sorted by key.
func EncodeEnvelope(e *Envelope) ([]byte, error) {
	w := &jsonWriter{types: true, buf: make([]byte, 0, 1024+payloadSize(e))}
	w.open("DurableTask.AzureStorage.MessageData")
	w.str("ActivityId", e.ActivityID.String())
	if e.Message == nil {
		w.null("TaskMessage")
	} else {
		w.key("TaskMessage")
		if err := w.taskMessage(e.Message); err != nil {
			return nil, err
		}
	}
	w.strOrNull("CompressedBlobName", e.CompressedBlobName)
	w.int("SequenceNumber", e.SequenceNumber)
	if e.Episode != nil {
		w.int("Episode", int64(*e.Episode))
	}
	w.sender(e.Sender)
	w.optStr("SerializableTraceContext", e.TraceContext)
	if !e.Scheduled.IsZero() {
		w.time("ScheduledTimestamp", e.Scheduled)
	}
	if e.Batch != "" {
		w.str("EntityBatch", e.Batch)
	}
	w.close()
	return w.buf, nil
}

// payloadSize returns the approximate size of e's payload in JSON.
func payloadSize(e *Envelope) int {
	if e.Message == nil {
		return 0
	}
	var payload *string
	switch ev := e.Message.Event.(type) {
	case *history.ExecutionStarted:
		payload = ev.Input
	case *history.TaskScheduled:
		payload = ev.Input
	case *history.TaskCompleted:
		payload = ev.Result
	case *history.SubOrchestrationInstanceCompleted:
		payload = ev.Result
	case *history.EventRaised:
		payload = ev.Input
	}
	if payload == nil {
		return 0
	}
	return len(*payload) + len(*payload)/8
}

func (w *jsonWriter) taskMessage(m *provider.TaskMessage) error {
	w.open("DurableTask.Core.TaskMessage")
	w.key("Event")
	if err := w.event(m.Event); err != nil {
		return err
	}
	w.int("SequenceNumber", 0)
	w.key("OrchestrationInstance")
	w.instance(m.Target)
	if !hasExecutionContext(m) {
		w.null("OrchestrationExecutionContext")
	} else {
		w.key("OrchestrationExecutionContext")
		w.open("DurableTask.Core.OrchestrationExecutionContext")
		tags := m.Tags
		if tags == nil {
			tags = map[string]string{}
		}
		w.tags("OrchestrationTags", tags)
		w.close()
	}
	w.close()
	return nil
}

// hasExecutionContext reports whether .NET gives m an execution context. Work that an orchestration
// starts has one even without tags; work that an entity starts has none
// (DurableTask.Core/TaskOrchestrationDispatcher.cs, ProcessScheduleTaskDecision and
// ProcessCreateSubOrchestrationInstanceDecision; TaskEntityDispatcher.cs, ProcessSendStartMessage).
func hasExecutionContext(m *provider.TaskMessage) bool {
	switch ev := m.Event.(type) {
	case *history.TaskScheduled:
		return true
	case *history.ExecutionStarted:
		if ev.Parent != nil && !history.IsEntity(ev.Parent.Instance.InstanceID) {
			return true
		}
	}
	return m.Tags != nil
}

// sender writes the sender without $type. A client has empty strings. If the execution of an instance
// is unknown, ExecutionId is null.
func (w *jsonWriter) sender(s *history.OrchestrationInstance) {
	if s == nil {
		w.null("Sender")
		return
	}
	w.key("Sender")
	w.open("")
	w.str("InstanceId", s.InstanceID)
	if s.InstanceID == "" {
		w.str("ExecutionId", s.ExecutionID)
	} else {
		w.strOrNull("ExecutionId", s.ExecutionID)
	}
	w.close()
}

// DecodeEnvelope decodes the text of a queue message.
func DecodeEnvelope(text string) (*Envelope, error) {
	data, err := DecodeQueueText(text)
	if err != nil {
		return nil, err
	}
	return DecodeEnvelopeJSON(data)
}

// EncodeQueueText returns the text of a queue message with the given JSON.
func EncodeQueueText(json []byte, asBase64 bool) string {
	if asBase64 {
		return base64.StdEncoding.EncodeToString(json)
	}
	return string(json)
}

// DecodeQueueText returns the JSON in the text of a queue message. A text that does not start with a
// brace is Base64 (DurableTask.AzureStorage/MessageManager.cs, DeserializeQueueMessageAsync).
func DecodeQueueText(text string) ([]byte, error) {
	if strings.HasPrefix(text, "{") {
		return []byte(text), nil
	}
	json, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("decode message text: it is not JSON and not valid Base64: %w", err)
	}
	return json, nil
}

// DecodeEnvelopeJSON decodes the JSON of a queue message or of a large message's blob. It ignores
// unknown members, and $type everywhere except in the event. It fails for messages that no worker
// could process: an unknown event, or a message without a target.
func DecodeEnvelopeJSON(data []byte) (_ *Envelope, err error) {
	var wire wireEnvelope
	if err := json.Unmarshal(data, &wire); err != nil {
		return nil, fmt.Errorf("decode message: %w", err)
	}
	e := &Envelope{
		SequenceNumber: wire.SequenceNumber,
		Episode:        wire.Episode,
		TraceContext:   textOf(wire.SerializableTraceContext),
		Scheduled:      history.TruncateToTicks(wire.ScheduledTimestamp),
		Batch:          wire.EntityBatch,
	}
	if wire.ActivityID != "" {
		if e.ActivityID, err = uuid.Parse(wire.ActivityID); err != nil {
			return nil, fmt.Errorf("decode message: ActivityId %q: %w", wire.ActivityID, err)
		}
	}
	if wire.CompressedBlobName != nil {
		e.CompressedBlobName = *wire.CompressedBlobName
	}
	if wire.Sender != nil {
		sender := wire.Sender.Decode()
		e.Sender = &sender
	}
	switch {
	case wire.TaskMessage != nil:
		if e.Message, err = wire.TaskMessage.message(); err != nil {
			return nil, fmt.Errorf("decode message: %w", err)
		}
	case e.CompressedBlobName == "":
		return nil, errors.New("decode message: it has neither a TaskMessage nor a CompressedBlobName")
	}
	return e, nil
}

// wireEnvelope is the JSON form of an [Envelope].
type wireEnvelope struct {
	ActivityID               string `json:"ActivityId"`
	TaskMessage              *wireTaskMessage
	CompressedBlobName       *string
	SequenceNumber           int64
	Episode                  *int
	Sender                   *eventjson.Instance
	SerializableTraceContext json.RawMessage
	ScheduledTimestamp       time.Time
	EntityBatch              string
}

type wireTaskMessage struct {
	Event                         *eventjson.Event
	OrchestrationInstance         *eventjson.Instance
	OrchestrationExecutionContext *struct{ OrchestrationTags eventjson.Tags }
}

func (m *wireTaskMessage) message() (*provider.TaskMessage, error) {
	if m.Event == nil {
		return nil, errors.New("the TaskMessage has no Event")
	}
	if m.OrchestrationInstance == nil || m.OrchestrationInstance.Decode().InstanceID == "" {
		return nil, errors.New("the TaskMessage has no target instance")
	}
	t, err := m.Event.EventType()
	if err != nil {
		return nil, err
	}
	ev, err := m.Event.Decode(t)
	if err != nil {
		return nil, err
	}
	msg := &provider.TaskMessage{Event: ev, Target: m.OrchestrationInstance.Decode()}
	if m.OrchestrationExecutionContext != nil {
		msg.Tags = m.OrchestrationExecutionContext.OrchestrationTags
	}
	return msg, nil
}

// textOf returns the string in raw, or nil for any other value.
func textOf(raw json.RawMessage) *string {
	var s *string
	if len(raw) == 0 || json.Unmarshal(raw, &s) != nil {
		return nil
	}
	return s
}
