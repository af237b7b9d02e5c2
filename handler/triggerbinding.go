package handler

import (
	"fmt"
	"reflect"
)

// properties are those of a binding that its type needs.
type properties map[string]any

// A binding is one entry of a function.json.
type binding struct {
	kind       string // its type, "queueTrigger"
	name       string
	out        bool
	properties properties
}

func (b *binding) set(name string, value any) {
	if b.properties == nil {
		b.properties = properties{}
	}
	b.properties[name] = value
}

// returnName is the name of an output that is a function's return value. For us
// it is an output like any other.
const returnName = "$return"

// An Input is something that the host reads before it starts a function, and
// hands over with the payload. It is an option of the function that has it:
//
//	var limits = handler.BlobInput[Limits]("limits", "settings/limits.json")
//
//	handler.Queue("Check", "orders", check, limits)
//
// T follows the rules of a [Trigger]'s payload.
type Input[T any] struct {
	binding binding
	shape   valueShape
}

// BlobInput is a blob. Its path may name parts of the trigger's:
// "thumbnails/{name}".
func BlobInput[T any](name, path string, opts ...BindingOption) Input[T] {
	return newInput[T](binding{kind: "blob", name: name, properties: properties{"path": path}}, opts)
}

// InputOf is an input of any type: kind is its type in function.json, and its
// [Property] options what else it needs there.
func InputOf[T any](name, kind string, opts ...BindingOption) Input[T] {
	return newInput[T](binding{kind: kind, name: name}, opts)
}

func newInput[T any](b binding, opts []BindingOption) Input[T] {
	s := shapeOf(reflect.TypeFor[T]())
	s.mayLack = true
	if s.kind == binaryShape {
		b.set("dataType", "binary")
	}
	for _, o := range opts {
		o.applyBinding(&b)
	}
	return Input[T]{b, s}
}

func (in Input[T]) applyTrigger(t *Trigger) { t.bindings = append(t.bindings, in.binding) }
func (in Input[T]) applyTimer(t *Trigger)   { in.applyTrigger(t) }

// Of returns the input of a call. What does not exist, such as a blob of that
// name, is the zero value of T.
func (in Input[T]) Of(call *Invocation) (T, error) {
	var value T
	raw, ok := call.input(in.binding.name)
	if !ok {
		return value, fmt.Errorf("function %s has no input %q: give it to the function as an option, and write its function.json anew",
			call.Function, in.binding.name)
	}
	if err := in.shape.decode(raw, &value); err != nil {
		return value, fmt.Errorf("decode input %q of function %s as %T: %w", in.binding.name, call.Function, value, err)
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
type Output[T any] struct{ binding binding }

// QueueOutput is a queue in Azure Storage.
func QueueOutput[T any](name, queue string, opts ...BindingOption) Output[T] {
	return newOutput[T](binding{kind: "queue", name: name, properties: properties{"queueName": queue}}, opts)
}

// BlobOutput is a blob, which a call can write once. Its path may name parts of
// the trigger's.
func BlobOutput[T any](name, path string, opts ...BindingOption) Output[T] {
	return newOutput[T](binding{kind: "blob", name: name, properties: properties{"path": path}}, opts)
}

// ServiceBusOutput is a Service Bus queue.
func ServiceBusOutput[T any](name, queue string, opts ...BindingOption) Output[T] {
	return newOutput[T](binding{kind: "serviceBus", name: name, properties: properties{"queueName": queue}}, opts)
}

// EventHubOutput is an event hub.
func EventHubOutput[T any](name, hub string, opts ...BindingOption) Output[T] {
	return newOutput[T](binding{kind: "eventHub", name: name, properties: properties{"eventHubName": hub}}, opts)
}

// CosmosDBOutput is a container of Cosmos DB.
func CosmosDBOutput[T any](name, database, container string, opts ...BindingOption) Output[T] {
	return newOutput[T](binding{kind: "cosmosDB", name: name, properties: properties{
		"databaseName": database, "containerName": container,
	}}, opts)
}

// OutputOf is an output of any type: kind is its type in function.json, and its
// [Property] options what else it needs there.
func OutputOf[T any](name, kind string, opts ...BindingOption) Output[T] {
	return newOutput[T](binding{kind: kind, name: name}, opts)
}

func newOutput[T any](b binding, opts []BindingOption) Output[T] {
	b.out = true
	for _, o := range opts {
		o.applyBinding(&b)
	}
	return Output[T]{b}
}

func (o Output[T]) applyTrigger(t *Trigger) { t.bindings = append(t.bindings, o.binding) }
func (o Output[T]) applyTimer(t *Trigger)   { o.applyTrigger(t) }

// Put adds items to what is written when the function of this call returns. An
// item that cannot be written makes the call fail.
func (o Output[T]) Put(call *Invocation, items ...T) {
	for _, item := range items {
		encoded, err := encodeItem(o.binding.kind, item)
		if err != nil {
			err = fmt.Errorf("encode output %q as %T: %w", o.binding.name, item, err)
		}
		call.put(o.binding.name, encoded, err)
	}
}
