package handler

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/triggers"
)

// A Trigger is a function that the Functions host starts, for a time, a message or a blob:
// [Timer], [Queue], [Blob], [ServiceBusQueue], [ServiceBusTopic], [EventHub], [EventGrid],
// [CosmosDB], [Warmup], [Manual], and [On] for every other trigger. The host needs its
// function.json, which -write-functions writes.
//
// The function's type says how its payload is decoded:
//
//   - string is the text, []byte the bytes, time.Time a time;
//   - any other type is decoded from JSON;
//   - a slice, for a trigger that supports batches, is the batch.
//
// A function that returns an error, panics or exceeds its [Timeout] has failed. What the
// host does then depends on the trigger: it delivers a message again, a timer waits for its
// next time.
type Trigger struct {
	function triggers.Function
	run      func(ctx context.Context, call *Invocation, payload json.RawMessage) error
}

// Name returns the function's name in the host.
func (t Trigger) Name() string { return t.function.Name }

// Timer is a function that runs by a schedule: six fields, seconds first, "0 30 2 * * *" for
// 2:30 a.m. UTC; or an interval, "00:05:00"; or a setting, "%SCHEDULE%". One of the app's
// instances runs it.
func Timer(name, schedule string, fn func(context.Context, *Invocation, TimerInfo) error, opts ...TimerOption) Trigger {
	t := newTrigger(name, triggers.Binding{Kind: "timerTrigger", Name: "timer", Properties: triggers.Properties{"schedule": schedule}}, fn)
	t.function.Require("schedule", schedule)
	for _, o := range opts {
		o.applyTimer(&t)
	}
	return t
}

// Queue is a function that runs for each message of a queue in Azure Storage. After five
// failures the host moves a message to the poison queue. It expects Base64 in messages
// unless host.json says otherwise.
func Queue[T any](name, queue string, fn func(context.Context, *Invocation, T) error, opts ...TriggerOption) Trigger {
	t := newTrigger(name, triggers.Binding{Kind: "queueTrigger", Name: "message", Properties: triggers.Properties{"queueName": queue}}, fn)
	t.function.Require("queue", queue)
	return t.with(opts)
}

// Blob is a function that runs for each blob that is new or changed, with its content. Path
// is the blob's container and name, which may have parameters: "pictures/{name}".
func Blob[T any](name, path string, fn func(context.Context, *Invocation, T) error, opts ...TriggerOption) Trigger {
	t := newTrigger(name, triggers.Binding{Kind: "blobTrigger", Name: "blob", Properties: triggers.Properties{"path": path}}, fn)
	t.function.Require("path", path)
	return t.with(opts)
}

// ServiceBusQueue is a function that runs for each message of a Service Bus
// queue or, if T is a slice, for several at once. The message is completed when
// it returns, and abandoned when it fails.
func ServiceBusQueue[T any](name, queue string, fn func(context.Context, *Invocation, T) error, opts ...TriggerOption) Trigger {
	t := newBatchTrigger(name, triggers.Binding{Kind: "serviceBusTrigger", Name: "message", Properties: triggers.Properties{"queueName": queue}}, fn)
	t.function.Require("queue", queue)
	return t.with(opts)
}

// ServiceBusTopic is [ServiceBusQueue] for a subscription to a topic.
func ServiceBusTopic[T any](name, topic, subscription string, fn func(context.Context, *Invocation, T) error, opts ...TriggerOption) Trigger {
	t := newBatchTrigger(name, triggers.Binding{Kind: "serviceBusTrigger", Name: "message", Properties: triggers.Properties{
		"topicName": topic, "subscriptionName": subscription,
	}}, fn)
	t.function.Require("topic", topic)
	t.function.Require("subscription", subscription)
	return t.with(opts)
}

// EventHub is a function that runs for the events of an event hub, in batches if T is a
// slice.
func EventHub[T any](name, hub string, fn func(context.Context, *Invocation, T) error, opts ...TriggerOption) Trigger {
	t := newBatchTrigger(name, triggers.Binding{Kind: "eventHubTrigger", Name: "events", Properties: triggers.Properties{"eventHubName": hub}}, fn)
	t.function.Require("hub", hub)
	return t.with(opts)
}

// EventGrid is a function that runs for each event of an Event Grid
// subscription. T is [GridEvent], [CloudEvent] or a type of the app's own.
func EventGrid[T any](name string, fn func(context.Context, *Invocation, T) error, opts ...TriggerOption) Trigger {
	return newTrigger(name, triggers.Binding{Kind: "eventGridTrigger", Name: "event"}, fn).with(opts)
}

// CosmosDB is a function that runs for the documents of a container that are
// new or changed, in the order in which they changed within a partition.
func CosmosDB[T any](name, database, container string, fn func(context.Context, *Invocation, []T) error, opts ...TriggerOption) Trigger {
	t := newTrigger(name, triggers.Binding{Kind: "cosmosDBTrigger", Name: "documents", Properties: triggers.Properties{
		"databaseName": database, "containerName": container,
	}}, fn)
	t.function.Require("database", database)
	t.function.Require("container", container)
	return t.with(opts)
}

// Warmup is a function that runs on a new instance of a Premium or Dedicated plan before it
// gets requests. Its name is always Warmup.
func Warmup(fn func(context.Context, *Invocation) error, opts ...TriggerOption) Trigger {
	t := newTrigger("Warmup", triggers.Binding{Kind: "warmupTrigger", Name: "warmup"}, ignorePayload(fn))
	return t.with(opts)
}

// Manual is a function that an operator runs with POST /admin/functions/{name} and the body
// {"input": "…"}, whose input is the payload.
func Manual[T any](name string, fn func(context.Context, *Invocation, T) error, opts ...TriggerOption) Trigger {
	return newTrigger(name, triggers.Binding{Kind: "manualTrigger", Name: "input"}, fn).with(opts)
}

// On is a function with any other trigger. Kind is the trigger's type in function.json, such
// as "kafkaTrigger"; [Property] options set its other properties. Triggers of the Durable
// Task extension are refused: two engines would work on one hub.
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

// newBatchTrigger returns a trigger that supports batches if T is a slice.
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

// ignorePayload returns fn as a function with a payload.
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

// describe returns the host's description of triggers.
func describe(all []Trigger) []*triggers.Function {
	functions := make([]*triggers.Function, len(all))
	for i := range all {
		functions[i] = &all[i].function
	}
	return functions
}

// TimerInfo is the payload of a [Timer].
type TimerInfo struct {
	// ScheduleStatus is nil for a schedule that the host does not monitor: an interval
	// of less than a minute, or a timer with [NoMonitor].
	ScheduleStatus *ScheduleStatus
	// IsPastDue says that the function runs late, since the app was not running.
	IsPastDue bool
}

// A ScheduleStatus says when a timer ran and will run.
type ScheduleStatus struct {
	Last, Next, LastUpdated time.Time
}

// A GridEvent is an event in the schema of Event Grid.
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

// A CloudEvent is an event in the schema of CloudEvents 1.0.
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
