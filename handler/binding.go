package handler

import (
	"fmt"
	"reflect"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/triggers"
)

// An Input is an input binding: a value that the host reads before it runs a function. Pass it as an
// option of the trigger, and read it with [Input.Of]:
//
//	var limits = handler.BlobInput[Limits]("limits", "settings/limits.json")
//
//	handler.Queue("Check", "orders", check, limits)
//
// T is decoded like the payload of a [Trigger].
type Input[T any] struct {
	binding triggers.Binding
	shape   triggers.Shape
}

// BlobInput returns an input that reads a blob. The path may contain parameters of the trigger's path,
// such as "thumbnails/{name}".
func BlobInput[T any](name, path string, opts ...BindingOption) Input[T] {
	return newInput[T](triggers.Binding{Kind: "blob", Name: name, Properties: triggers.Properties{"path": path}}, opts)
}

// InputOf returns an input of any binding type. Kind is the type in function.json; set its properties
// with [Property].
func InputOf[T any](name, kind string, opts ...BindingOption) Input[T] {
	return newInput[T](triggers.Binding{Kind: kind, Name: name}, opts)
}

func newInput[T any](b triggers.Binding, opts []BindingOption) Input[T] {
	s := triggers.ShapeOf(reflect.TypeFor[T]())
	s.MayBeMissing = true
	if s.IsBinary() {
		b.Set("dataType", "binary")
	}
	for _, o := range opts {
		o.applyBinding(&b)
	}
	return Input[T]{b, s}
}

func (in Input[T]) applyTrigger(t *Trigger) {
	t.function.Bindings = append(t.function.Bindings, in.binding)
}
func (in Input[T]) applyTimer(t *Trigger) { in.applyTrigger(t) }

// Of returns the value of the input for call. If the blob or document does not exist, it returns the
// zero value of T. It fails if the function was registered without this input, or if the value cannot
// be decoded.
func (in Input[T]) Of(call *Invocation) (T, error) {
	var value T
	raw, ok := call.values.Input(in.binding.Name)
	if !ok {
		return value, fmt.Errorf("function %s has no input %q: pass it to the function as an option, and run -write-functions again",
			call.Function, in.binding.Name)
	}
	if err := in.shape.Decode(raw, &value); err != nil {
		return value, fmt.Errorf("decode input %q of function %s as %T: %w", in.binding.Name, call.Function, value, err)
	}
	return value, nil
}

// An Output is an output binding: messages, blobs or documents that the host writes after a function
// succeeds. Pass it as an option of the trigger, and add items with [Output.Put]:
//
//	var letters = handler.QueueOutput[Letter]("letters", "letters-to-send")
//
//	handler.Timer("Remind", "0 0 9 * * *", remind, letters)
//
// A string or []byte is written unchanged, any other type as JSON.
type Output[T any] struct{ binding triggers.Binding }

// QueueOutput returns an output that writes messages to a queue in Azure Storage.
func QueueOutput[T any](name, queue string, opts ...BindingOption) Output[T] {
	return newOutput[T](triggers.Binding{Kind: "queue", Name: name, Properties: triggers.Properties{"queueName": queue}}, opts)
}

// BlobOutput returns an output that writes a blob, at most once per run. The path may contain
// parameters of the trigger's path.
func BlobOutput[T any](name, path string, opts ...BindingOption) Output[T] {
	return newOutput[T](triggers.Binding{Kind: "blob", Name: name, Properties: triggers.Properties{"path": path}}, opts)
}

// ServiceBusOutput returns an output that writes messages to a Service Bus queue.
func ServiceBusOutput[T any](name, queue string, opts ...BindingOption) Output[T] {
	return newOutput[T](triggers.Binding{Kind: "serviceBus", Name: name, Properties: triggers.Properties{"queueName": queue}}, opts)
}

// EventHubOutput returns an output that writes events to an event hub.
func EventHubOutput[T any](name, hub string, opts ...BindingOption) Output[T] {
	return newOutput[T](triggers.Binding{Kind: "eventHub", Name: name, Properties: triggers.Properties{"eventHubName": hub}}, opts)
}

// CosmosDBOutput returns an output that writes documents to a Cosmos DB container.
func CosmosDBOutput[T any](name, database, container string, opts ...BindingOption) Output[T] {
	return newOutput[T](triggers.Binding{Kind: "cosmosDB", Name: name, Properties: triggers.Properties{
		"databaseName": database, "containerName": container,
	}}, opts)
}

// OutputOf returns an output of any binding type. Kind is the type in function.json; set its properties
// with [Property].
func OutputOf[T any](name, kind string, opts ...BindingOption) Output[T] {
	return newOutput[T](triggers.Binding{Kind: kind, Name: name}, opts)
}

func newOutput[T any](b triggers.Binding, opts []BindingOption) Output[T] {
	b.Out = true
	for _, o := range opts {
		o.applyBinding(&b)
	}
	return Output[T]{b}
}

func (o Output[T]) applyTrigger(t *Trigger) {
	t.function.Bindings = append(t.function.Bindings, o.binding)
}
func (o Output[T]) applyTimer(t *Trigger) { o.applyTrigger(t) }

// Put adds items to the output of call. If an item cannot be encoded, or if the function was registered
// without this output, the run fails when the function returns.
func (o Output[T]) Put(call *Invocation, items ...T) {
	for _, item := range items {
		encoded, err := triggers.Encode(o.binding.Kind, item)
		switch {
		case err != nil:
			err = fmt.Errorf("encode output %q as %T: %w", o.binding.Name, item, err)
		case !call.values.HasOutput(o.binding.Name):
			err = fmt.Errorf("function %s has no output %q: pass it to the function as an option, and run -write-functions again", call.Function, o.binding.Name)
		}
		call.values.Put(o.binding.Name, encoded, err)
	}
}

// A TriggerOption configures a trigger: [Timeout], [FixedRetry], [ExponentialRetry], [Connection],
// [Property], or any [Input] or [Output].
type TriggerOption interface{ applyTrigger(*Trigger) }

// A TimerOption configures a [Timer]: [RunOnStartup], [NoMonitor], or any TriggerOption except
// [Connection].
type TimerOption interface{ applyTimer(*Trigger) }

// A BindingOption configures an [Input] or an [Output]. [Connection] implements it, and [Property] returns
// one.
type BindingOption interface{ applyBinding(*triggers.Binding) }

// Timeout is the longest duration of one run of a function. When it expires, the run's context is
// canceled and the run fails. The default is slightly less than functionTimeout in host.json, and at
// most [DefaultInvocationTimeout]. A Timeout must be less than functionTimeout, because the host kills
// the program when a run exceeds that.
type Timeout time.Duration

func (d Timeout) applyTrigger(t *Trigger) { t.function.Timeout = time.Duration(d) }
func (d Timeout) applyTimer(t *Trigger)   { d.applyTrigger(t) }

// Connection names the setting that holds the connection of a binding: a connection string, or the
// prefix of the settings of an identity-based connection. Storage bindings use AzureWebJobsStorage by
// default.
type Connection string

func (n Connection) applyTrigger(t *Trigger)          { n.applyBinding(&t.function.Source) }
func (n Connection) applyBinding(b *triggers.Binding) { b.Set("connection", string(n)) }

// Property sets a property of a binding in function.json that has no option of its own, such as
// Property("isSessionsEnabled", true). The value is encoded as JSON.
func Property(name string, value any) interface {
	TriggerOption
	TimerOption
	BindingOption
} {
	return property{name, value}
}

type property struct {
	name  string
	value any
}

func (p property) applyTrigger(t *Trigger)          { p.applyBinding(&t.function.Source) }
func (p property) applyTimer(t *Trigger)            { p.applyBinding(&t.function.Source) }
func (p property) applyBinding(b *triggers.Binding) { b.Set(p.name, p.value) }

type startupOption struct{}

func (startupOption) applyTimer(t *Trigger) { t.function.Source.Set("runOnStartup", true) }

// RunOnStartup also runs a timer whenever the host starts, which includes every new instance of the
// app. Do not use it in production.
var RunOnStartup TimerOption = startupOption{}

type monitorOption struct{}

func (monitorOption) applyTimer(t *Trigger) { t.function.Source.Set("useMonitor", false) }

// NoMonitor makes the host keep no record of a timer's runs. If a run is missed while the app is stopped, the
// host does not run it later.
var NoMonitor TimerOption = monitorOption{}

// A retryOption sets a function's retry policy.
type retryOption triggers.RetryPolicy

func (o *retryOption) applyTrigger(t *Trigger) { t.function.Retry = (*triggers.RetryPolicy)(o) }
func (o *retryOption) applyTimer(t *Trigger)   { o.applyTrigger(t) }

// FixedRetry retries a failed function up to the given number of times, with a pause before each retry.
// It retries forever if most is -1. The host counts the retries in memory. To retry across restarts,
// call a durable activity with a retry policy instead.
func FixedRetry(most int, pause time.Duration) interface {
	TriggerOption
	TimerOption
} {
	return &retryOption{Strategy: "fixedDelay", MaxRetryCount: most, DelayInterval: settings.FormatTimeSpan(pause)}
}

// ExponentialRetry is like [FixedRetry], but the pause grows from shortest to longest.
func ExponentialRetry(most int, shortest, longest time.Duration) interface {
	TriggerOption
	TimerOption
} {
	return &retryOption{
		Strategy: "exponentialBackoff", MaxRetryCount: most,
		MinimumInterval: settings.FormatTimeSpan(shortest), MaximumInterval: settings.FormatTimeSpan(longest),
	}
}
