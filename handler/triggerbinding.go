package handler

import (
	"fmt"
	"reflect"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/triggers"
)

// An Input is something that the host reads before it starts a function, and
// hands over with the payload. It is an option of the function that has it:
//
//	var limits = handler.BlobInput[Limits]("limits", "settings/limits.json")
//
//	handler.Queue("Check", "orders", check, limits)
//
// T follows the rules of a [Trigger]'s payload.
type Input[T any] struct {
	binding triggers.Binding
	shape   triggers.Shape
}

// BlobInput is a blob. Its path may name parts of the trigger's:
// "thumbnails/{name}".
func BlobInput[T any](name, path string, opts ...BindingOption) Input[T] {
	return newInput[T](triggers.Binding{Kind: "blob", Name: name, Properties: triggers.Properties{"path": path}}, opts)
}

// InputOf is an input of any type: kind is its type in function.json, and its
// [Property] options what else it needs there.
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

// Of returns the input of a call. What does not exist, such as a blob of that
// name, is the zero value of T.
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

// An Output is something that the host writes when a function has returned
// without an error: a message, a blob, a document. It is an option of the
// function that has it:
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

// BlobOutput is a blob, which a call can write once. Its path may name parts of
// the trigger's.
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

// OutputOf is an output of any type: kind is its type in function.json, and its
// [Property] options what else it needs there.
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

// Put adds items to what is written when the function of this call returns. An
// item that cannot be written makes the call fail.
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
