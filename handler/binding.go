package handler

import (
	"fmt"
	"reflect"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/triggers"
)

// An Input is a value that the host reads before it starts a function. It is an option of
// the function:
//
//	var limits = handler.BlobInput[Limits]("limits", "settings/limits.json")
//
//	handler.Queue("Check", "orders", check, limits)
//
// T is decoded as a [Trigger]'s payload.
type Input[T any] struct {
	binding triggers.Binding
	shape   triggers.Shape
}

// BlobInput is a blob. Its path may have parameters of the trigger's: "thumbnails/{name}".
func BlobInput[T any](name, path string, opts ...BindingOption) Input[T] {
	return newInput[T](triggers.Binding{Kind: "blob", Name: name, Properties: triggers.Properties{"path": path}}, opts)
}

// InputOf is an input of any type. Kind is its type in function.json; [Property] options set
// its other properties.
func InputOf[T any](name, kind string, opts ...BindingOption) Input[T] {
	return newInput[T](triggers.Binding{Kind: kind, Name: name}, opts)
}

func newInput[T any](b triggers.Binding, opts []BindingOption) Input[T] {
	s := triggers.ShapeOf(reflect.TypeFor[T]())
	s.MayLack = true
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

// Of returns the input of a call, the zero value of T if it does not exist.
func (in Input[T]) Of(call *Invocation) (T, error) {
	var value T
	raw, ok := call.values.Input(in.binding.Name)
	if !ok {
		return value, fmt.Errorf("function %s has no input %q: give it to the function as an option, and write its function.json anew",
			call.Function, in.binding.Name)
	}
	if err := in.shape.Decode(raw, &value); err != nil {
		return value, fmt.Errorf("decode input %q of function %s as %T: %w", in.binding.Name, call.Function, value, err)
	}
	return value, nil
}

// An Output is a message, blob or document that the host writes after a function returned
// without an error. It is an option of the function:
//
//	var letters = handler.QueueOutput[Letter]("letters", "letters-to-send")
//
//	handler.Timer("Remind", "0 0 9 * * *", remind, letters)
//
// A string or []byte is written as it is, anything else as JSON.
type Output[T any] struct{ binding triggers.Binding }

// QueueOutput is a queue in Azure Storage.
func QueueOutput[T any](name, queue string, opts ...BindingOption) Output[T] {
	return newOutput[T](triggers.Binding{Kind: "queue", Name: name, Properties: triggers.Properties{"queueName": queue}}, opts)
}

// BlobOutput is a blob, which a call can write once. Its path may have parameters of the
// trigger's.
func BlobOutput[T any](name, path string, opts ...BindingOption) Output[T] {
	return newOutput[T](triggers.Binding{Kind: "blob", Name: name, Properties: triggers.Properties{"path": path}}, opts)
}

// ServiceBusOutput is a Service Bus queue.
func ServiceBusOutput[T any](name, queue string, opts ...BindingOption) Output[T] {
	return newOutput[T](triggers.Binding{Kind: "serviceBus", Name: name, Properties: triggers.Properties{"queueName": queue}}, opts)
}

// EventHubOutput is an event hub.
func EventHubOutput[T any](name, hub string, opts ...BindingOption) Output[T] {
	return newOutput[T](triggers.Binding{Kind: "eventHub", Name: name, Properties: triggers.Properties{"eventHubName": hub}}, opts)
}

// CosmosDBOutput is a container of Cosmos DB.
func CosmosDBOutput[T any](name, database, container string, opts ...BindingOption) Output[T] {
	return newOutput[T](triggers.Binding{Kind: "cosmosDB", Name: name, Properties: triggers.Properties{
		"databaseName": database, "containerName": container,
	}}, opts)
}

// OutputOf is an output of any type. Kind is its type in function.json; [Property] options
// set its other properties.
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

// Put adds items to an output of a call. The call fails if one cannot be written.
func (o Output[T]) Put(call *Invocation, items ...T) {
	for _, item := range items {
		encoded, err := triggers.Encode(o.binding.Kind, item)
		switch {
		case err != nil:
			err = fmt.Errorf("encode output %q as %T: %w", o.binding.Name, item, err)
		case !call.values.HasOutput(o.binding.Name):
			err = fmt.Errorf("function %s has no output %q: give it to the function as an option, and write its function.json anew", call.Function, o.binding.Name)
		}
		call.values.Put(o.binding.Name, encoded, err)
	}
}

// A TriggerOption is an option of a function: [Timeout], [FixedRetry], [ExponentialRetry],
// [Connection], [Property], and every [Input] and [Output].
type TriggerOption interface{ applyTrigger(*Trigger) }

// A TimerOption is an option of a [Timer]: [RunOnStartup], [NoMonitor], and every
// TriggerOption except Connection.
type TimerOption interface{ applyTimer(*Trigger) }

// A BindingOption is an option of an [Input] or [Output]: [Connection] and [Property].
type BindingOption interface{ applyBinding(*triggers.Binding) }

// Timeout bounds one run of a function, as a [time.Duration]. Its context ends then, and a
// run that goes on has failed. The default is a little less than host.json's
// functionTimeout, at most 30 minutes. The host kills the program when a run exceeds
// functionTimeout, so Timeout must be less.
type Timeout time.Duration

func (d Timeout) applyTrigger(t *Trigger) { t.function.Timeout = time.Duration(d) }
func (d Timeout) applyTimer(t *Trigger)   { d.applyTrigger(t) }

// Connection is the name of the setting with a binding's connection: a connection string, or
// the prefix of settings for an identity. The default of storage bindings is
// AzureWebJobsStorage.
type Connection string

func (n Connection) applyTrigger(t *Trigger)          { n.applyBinding(&t.function.Source) }
func (n Connection) applyBinding(b *triggers.Binding) { b.Set("connection", string(n)) }

// Property sets a property of a binding in function.json for which there is no other option:
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

// RunOnStartup also runs a timer when the host starts, on each instance that is added, too.
// Do not use it in production.
var RunOnStartup TimerOption = startupOption{}

type monitorOption struct{}

func (monitorOption) applyTimer(t *Trigger) { t.function.Source.Set("useMonitor", false) }

// NoMonitor turns off the host's record of a timer's runs: a run that was missed while the
// app was stopped is not made up for.
var NoMonitor TimerOption = monitorOption{}

// A retryOption sets the retry policy of a function.
type retryOption triggers.RetryPolicy

func (o *retryOption) applyTrigger(t *Trigger) { t.function.Retry = (*triggers.RetryPolicy)(o) }
func (o *retryOption) applyTimer(t *Trigger)   { o.applyTrigger(t) }

// FixedRetry retries a function that fails up to most times, -1 for no limit, with a pause
// before each retry. The host keeps the count in memory; use a durable activity with a
// retry policy to survive restarts.
func FixedRetry(most int, pause time.Duration) interface {
	TriggerOption
	TimerOption
} {
	return &retryOption{Strategy: "fixedDelay", MaxRetryCount: most, DelayInterval: settings.FormatTimeSpan(pause)}
}

// ExponentialRetry is [FixedRetry] with a pause that grows from shortest to
// longest.
func ExponentialRetry(most int, shortest, longest time.Duration) interface {
	TriggerOption
	TimerOption
} {
	return &retryOption{
		Strategy: "exponentialBackoff", MaxRetryCount: most,
		MinimumInterval: settings.FormatTimeSpan(shortest), MaximumInterval: settings.FormatTimeSpan(longest),
	}
}
