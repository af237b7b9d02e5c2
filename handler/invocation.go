package handler

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// An Invocation is one run of a [Trigger]'s function: what came with the
// payload, and what the function leaves behind. Its methods may be called from
// several goroutines until the function returns. A test of a function may make
// one itself.
type Invocation struct {
	// ID is the host's name for this run, Function that of the function.
	ID       string
	Function string

	// Client starts and asks for instances of the app's task hub.
	Client *durable.Client

	// Retry is nil unless the function has a retry policy and the host keeps
	// account of it.
	Retry *RetryContext

	logger   *slog.Logger
	data     map[string]json.RawMessage // inputs, by their names in lower case
	metadata map[string]json.RawMessage
	outputs  []binding

	mu      sync.Mutex // protects the following
	closed  bool       // the function has returned, or is no longer waited for
	items   map[string][]outputItem
	lines   []string
	failure error // the first item that cannot be written
}

// A RetryContext says which try a run is.
type RetryContext struct {
	RetryCount    int // 0 for the first
	MaxRetryCount int // -1: without end
	Exception     json.RawMessage
}

// Metadata decodes what the trigger tells besides the payload into a struct,
// whose fields are found by their names as encoding/json does, or into a map.
// Fields may be text, numbers, times, bytes, slices of these, or structs:
//
//	var message struct {
//		ID            string
//		DequeueCount  int
//		InsertionTime time.Time
//	}
//	err := call.Metadata(&message)
//
// Names that are in the path of a trigger, "pictures/{name}", are among them;
// and the properties of a payload that is a JSON object, which may hide others.
func (c *Invocation) Metadata(into any) error {
	if err := decodeFields(c.metadata, into); err != nil {
		return fmt.Errorf("decode the metadata of function %s: %w", c.Function, err)
	}
	return nil
}

// Logf adds a line to the log that the host keeps of this run. It appears there
// when the function has returned without an error; if it fails, the lines go to
// the app's log.
func (c *Invocation) Logf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.lines = append(c.lines, fmt.Sprintf(format, args...))
	}
}

// Logger returns the app's logger with the function and the ID of this run.
func (c *Invocation) Logger() *slog.Logger {
	if c.logger == nil {
		return slog.Default()
	}
	return c.logger
}

func (c *Invocation) input(name string) (json.RawMessage, bool) {
	raw, ok := c.data[strings.ToLower(name)]
	return raw, ok
}

// put keeps an item, or the reason why there is none, for the end of the call.
func (c *Invocation) put(output string, item outputItem, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	declared := slices.ContainsFunc(c.outputs, func(b binding) bool { return b.name == output })
	if err == nil && !declared {
		err = fmt.Errorf("function %s has no output %q: give it to the function as an option, and write its function.json anew", c.Function, output)
	}
	if err != nil {
		if c.failure == nil {
			c.failure = err
		}
		return
	}
	if !c.closed {
		if c.items == nil {
			c.items = map[string][]outputItem{}
		}
		c.items[output] = append(c.items[output], item)
	}
}

// abandon ends a call whose function is no longer waited for, and returns the
// lines that it has left.
func (c *Invocation) abandon() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return slices.Clone(c.lines)
}

// errNoInvocation says that a request is none of the host's.
var errNoInvocation = errors.New(`the body is no invocation: it must be a JSON object with "Data" and "Metadata"`)

// readInvocation makes an Invocation from what the host sends
// (azure-functions-host: Workers/Http/HttpScriptInvocationContext.cs). Payload
// is the trigger's part of it.
func readInvocation(body io.Reader, t Trigger) (call *Invocation, payload json.RawMessage, err error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, nil, fmt.Errorf("read the invocation: %w", err)
	}
	var envelope struct{ Data, Metadata map[string]json.RawMessage }
	if err := json.Unmarshal(text, &envelope); err != nil || envelope.Data == nil {
		return nil, nil, errNoInvocation
	}
	call = &Invocation{
		Function: t.name,
		data:     make(map[string]json.RawMessage, len(envelope.Data)),
		metadata: envelope.Metadata,
	}
	for _, name := range slices.Sorted(maps.Keys(envelope.Data)) {
		call.data[strings.ToLower(name)] = envelope.Data[name]
	}
	for _, b := range t.bindings {
		if b.out {
			call.outputs = append(call.outputs, b)
		}
	}
	if raw, ok := envelope.Metadata["RetryContext"]; ok {
		if err := json.Unmarshal(raw, &call.Retry); err != nil {
			return nil, nil, fmt.Errorf("decode the retry context: %w", err)
		}
	}
	payload, ok := call.input(t.source.name)
	if !ok {
		return nil, nil, fmt.Errorf("the host sent no %q: write the function.json of function %s anew", t.source.name, t.name)
	}
	return call, payload, nil
}
