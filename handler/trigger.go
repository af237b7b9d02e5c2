package handler

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/triggers"
)

// A Trigger is a function that the Functions host runs for an event, such as a time, a message or a
// blob. Create one with [Timer], [Queue], [Blob], [ServiceBusQueue], [ServiceBusTopic], [EventHub],
// [EventGrid], [CosmosDB], [Warmup], [Manual], or, for any other event, [On]. The host needs a
// function.json for each trigger; write them with -write-functions.
//
// The type of the function's payload determines how it is decoded:
//
//   - string is the text, []byte the bytes, time.Time a time;
//   - any other type is decoded from JSON;
//   - a slice, for a trigger that supports batches, is the batch.
//
// A function fails if it returns an error, panics or exceeds its [Timeout]. The host's reaction
// depends on the trigger. For example, it redelivers a message, but runs a timer only at its next time.
type Trigger struct {
	function triggers.Function
	run      func(ctx context.Context, call *Invocation, payload json.RawMessage) error
}

// Name returns the name of the function in the host.
func (t Trigger) Name() string { return t.function.Name }

// Timer returns a function that runs on a schedule. The schedule has six fields, seconds first:
// "0 30 2 * * *" is 2:30 a.m. UTC. It may also be an interval such as "00:05:00", or a setting such as
// "%SCHEDULE%". If the app has several instances, only one of them runs it at each time.
func Timer(name, schedule string, fn func(context.Context, *Invocation, TimerInfo) error, opts ...TimerOption) Trigger {
	t := newTrigger(name, triggers.Binding{Kind: "timerTrigger", Name: "timer", Properties: triggers.Properties{"schedule": schedule}}, fn)
	t.function.Require("schedule", schedule)
	for _, o := range opts {
		o.applyTimer(&t)
	}
	return t
}

// Queue returns a function that runs for each message of a queue in Azure Storage. After five failures
// the host moves the message to the poison queue. The host expects messages in Base64 unless host.json
// configures another encoding.
func Queue[T any](name, queue string, fn func(context.Context, *Invocation, T) error, opts ...TriggerOption) Trigger {
	t := newTrigger(name, triggers.Binding{Kind: "queueTrigger", Name: "message", Properties: triggers.Properties{"queueName": queue}}, fn)
	t.function.Require("queue", queue)
	return t.with(opts)
}

// Blob returns a function that runs for each new or changed blob, with the blob's content as payload.
// The path consists of a container and a name, which may contain parameters: "pictures/{name}".
func Blob[T any](name, path string, fn func(context.Context, *Invocation, T) error, opts ...TriggerOption) Trigger {
	t := newTrigger(name, triggers.Binding{Kind: "blobTrigger", Name: "blob", Properties: triggers.Properties{"path": path}}, fn)
	t.function.Require("path", path)
	return t.with(opts)
}

// ServiceBusQueue returns a function that runs for each message of a Service Bus queue, or for a batch
// of messages if T is a slice. The host completes the message if the function succeeds and abandons it
// if the function fails.
func ServiceBusQueue[T any](name, queue string, fn func(context.Context, *Invocation, T) error, opts ...TriggerOption) Trigger {
	t := newBatchTrigger(name, triggers.Binding{Kind: "serviceBusTrigger", Name: "message", Properties: triggers.Properties{"queueName": queue}}, fn)
	t.function.Require("queue", queue)
	return t.with(opts)
}

// ServiceBusTopic is like [ServiceBusQueue], for a subscription to a topic.
func ServiceBusTopic[T any](name, topic, subscription string, fn func(context.Context, *Invocation, T) error, opts ...TriggerOption) Trigger {
	t := newBatchTrigger(name, triggers.Binding{Kind: "serviceBusTrigger", Name: "message", Properties: triggers.Properties{
		"topicName": topic, "subscriptionName": subscription,
	}}, fn)
	t.function.Require("topic", topic)
	t.function.Require("subscription", subscription)
	return t.with(opts)
}

// EventHub returns a function that runs for each event of an event hub, or for a batch of events if T
// is a slice.
func EventHub[T any](name, hub string, fn func(context.Context, *Invocation, T) error, opts ...TriggerOption) Trigger {
	t := newBatchTrigger(name, triggers.Binding{Kind: "eventHubTrigger", Name: "events", Properties: triggers.Properties{"eventHubName": hub}}, fn)
	t.function.Require("hub", hub)
	return t.with(opts)
}

// EventGrid returns a function that runs for each event of an Event Grid subscription. T is
// [GridEvent], [CloudEvent] or a type of the app.
func EventGrid[T any](name string, fn func(context.Context, *Invocation, T) error, opts ...TriggerOption) Trigger {
	return newTrigger(name, triggers.Binding{Kind: "eventGridTrigger", Name: "event"}, fn).with(opts)
}

// CosmosDB returns a function that runs for new and changed documents of a container, in the order of
// their changes within a partition.
func CosmosDB[T any](name, database, container string, fn func(context.Context, *Invocation, []T) error, opts ...TriggerOption) Trigger {
	t := newTrigger(name, triggers.Binding{Kind: "cosmosDBTrigger", Name: "documents", Properties: triggers.Properties{
		"databaseName": database, "containerName": container,
	}}, fn)
	t.function.Require("database", database)
	t.function.Require("container", container)
	return t.with(opts)
}

// Warmup returns a function that runs on a new instance of a Premium or Dedicated plan before the
// instance receives requests. Its name is always Warmup.
func Warmup(fn func(context.Context, *Invocation) error, opts ...TriggerOption) Trigger {
	t := newTrigger("Warmup", triggers.Binding{Kind: "warmupTrigger", Name: "warmup"}, ignorePayload(fn))
	return t.with(opts)
}

// Manual returns a function that an operator runs with POST /admin/functions/{name}. The request body
// is {"input": "…"}; the input is the payload.
func Manual[T any](name string, fn func(context.Context, *Invocation, T) error, opts ...TriggerOption) Trigger {
	return newTrigger(name, triggers.Binding{Kind: "manualTrigger", Name: "input"}, fn).with(opts)
}

// On returns a function for any other trigger. Kind is the trigger's type in function.json, such as
// "kafkaTrigger"; set its properties with [Property]. Triggers of the Durable Task extension are a
// configuration error, because its engine would run on the same hub.
func On[T any](name, kind string, fn func(context.Context, *Invocation, T) error, opts ...TriggerOption) Trigger {
	return newBatchTrigger(name, triggers.Binding{Kind: kind, Name: "input"}, fn).with(opts)
}

// newTrigger returns a trigger whose payload is one value.
func newTrigger[T any](name string, source triggers.Binding, fn func(context.Context, *Invocation, T) error) Trigger {
	s := triggers.ShapeOf(reflect.TypeFor[T]())
	if source.Kind == "cosmosDBTrigger" {
		s = triggers.BatchShapeOf(reflect.TypeFor[T]())
	}
	return shapedTrigger(name, source, s, fn)
}

// newBatchTrigger returns a trigger that receives batches if T is a slice.
func newBatchTrigger[T any](name string, source triggers.Binding, fn func(context.Context, *Invocation, T) error) Trigger {
	s := triggers.BatchShapeOf(reflect.TypeFor[T]())
	if source.Kind == "serviceBusTrigger" || source.Kind == "eventHubTrigger" {
		source.Set("cardinality", map[bool]string{false: "one", true: "many"}[s.Batch])
	}
	return shapedTrigger(name, source, s, fn)
}

func shapedTrigger[T any](name string, source triggers.Binding, s triggers.Shape, fn func(context.Context, *Invocation, T) error) Trigger {
	if s.IsBinary() {
		source.Set("dataType", "binary")
	}
	t := Trigger{function: triggers.Function{Name: name, Source: source}}
	if fn == nil {
		t.function.Problem(fmt.Errorf("function %q has no Go function", name))
	}
	t.run = func(ctx context.Context, call *Invocation, raw json.RawMessage) error {
		var payload T
		if err := s.Decode(raw, &payload); err != nil {
			return fmt.Errorf("decode the payload as %T: %w", payload, err)
		}
		return fn(ctx, call, payload)
	}
	return t
}

// ignorePayload wraps fn in a function that has a payload.
func ignorePayload(fn func(context.Context, *Invocation) error) func(context.Context, *Invocation, json.RawMessage) error {
	if fn == nil {
		return nil
	}
	return func(ctx context.Context, call *Invocation, _ json.RawMessage) error { return fn(ctx, call) }
}

func (t Trigger) with(opts []TriggerOption) Trigger {
	for _, o := range opts {
		o.applyTrigger(&t)
	}
	return t
}

// describe returns the functions of triggers, for function.json.
func describe(all []Trigger) []*triggers.Function {
	functions := make([]*triggers.Function, len(all))
	for i := range all {
		functions[i] = &all[i].function
	}
	return functions
}

// TimerInfo is the payload of a [Timer].
type TimerInfo struct {
	// ScheduleStatus is nil if the host does not monitor the schedule: the interval is less than a
	// minute, or the timer has [NoMonitor].
	ScheduleStatus *ScheduleStatus
	// IsPastDue reports that the function runs late because the app was not running.
	IsPastDue bool
}

// A ScheduleStatus holds the times of a timer's previous and next run, and of the last change of this
// record.
type ScheduleStatus struct {
	Last, Next, LastUpdated time.Time
}

// A GridEvent is an event in the Event Grid schema.
type GridEvent[T any] struct {
	ID              string    `json:"id"`
	Topic           string    `json:"topic"`
	Subject         string    `json:"subject"`
	EventType       string    `json:"eventType"`
	EventTime       time.Time `json:"eventTime"`
	DataVersion     string    `json:"dataVersion"`
	MetadataVersion string    `json:"metadataVersion"`
	Data            T         `json:"data"`
}

// A CloudEvent is an event in the CloudEvents 1.0 schema.
type CloudEvent[T any] struct {
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject"`
	Time            time.Time `json:"time"`
	SpecVersion     string    `json:"specversion"`
	DataContentType string    `json:"datacontenttype"`
	Data            T         `json:"data"`
}
