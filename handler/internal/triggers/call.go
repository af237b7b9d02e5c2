package triggers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
)

// A Call holds the values of one invocation of a function. Its zero value has no inputs
// and no outputs. Its methods may be called concurrently.
type Call struct {
	metadata map[string]json.RawMessage
	data     map[string]json.RawMessage // inputs, by their names in lower case
	outputs  []Binding

	mu      sync.Mutex // protects the following
	closed  bool       // the function has returned, or is no longer waited for
	items   map[string][]Item
	lines   []string
	failure error // the first item that cannot be written
}

// errNoInvocation refuses a request that is not the host's.
var errNoInvocation = errors.New(`the body is no invocation; want a JSON object with "Data" and "Metadata"`)

// Read fills a call with what the host sends to run f, and returns the trigger's value
// (azure-functions-host: Workers/Http/HttpScriptInvocationContext.cs).
func (c *Call) Read(body io.Reader, f *Function) (payload json.RawMessage, err error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("read the invocation: %w", err)
	}
	var envelope struct{ Data, Metadata map[string]json.RawMessage }
	if err := json.Unmarshal(text, &envelope); err != nil || envelope.Data == nil {
		return nil, errNoInvocation
	}
	c.metadata, c.data = envelope.Metadata, make(map[string]json.RawMessage, len(envelope.Data))
	for _, name := range slices.Sorted(maps.Keys(envelope.Data)) {
		c.data[strings.ToLower(name)] = envelope.Data[name]
	}
	for _, b := range f.Bindings {
		if b.Out {
			c.outputs = append(c.outputs, b)
		}
	}
	payload, ok := c.Input(f.Source.Name)
	if !ok {
		return nil, fmt.Errorf("the host sent no %q: write the function.json of function %s anew", f.Source.Name, f.Name)
	}
	return payload, nil
}

// Input returns the value of an input.
func (c *Call) Input(name string) (json.RawMessage, bool) {
	raw, ok := c.data[strings.ToLower(name)]
	return raw, ok
}

// Metadata decodes the trigger's metadata into a struct or map that into points to.
func (c *Call) Metadata(into any) error { return decodeFields(c.metadata, into) }

// Retry decodes the host's account of retries into a struct that into points to, and
// leaves it alone if there is none.
func (c *Call) Retry(into any) error {
	raw, ok := c.metadata["RetryContext"]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("decode the retry context: %w", err)
	}
	return nil
}

// Log adds a line for the host's log.
func (c *Call) Log(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.lines = append(c.lines, line)
	}
}

// HasOutput reports whether the function has an output of that name.
func (c *Call) HasOutput(name string) bool {
	return slices.ContainsFunc(c.outputs, func(b Binding) bool { return b.Name == name })
}

// Put keeps an item of an output, or the reason why there is none, for the end of the call.
func (c *Call) Put(output string, item Item, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil && c.failure == nil:
		c.failure = err
	case err == nil && !c.closed:
		if c.items == nil {
			c.items = map[string][]Item{}
		}
		c.items[output] = append(c.items[output], item)
	}
}

// Abandon closes a call whose function failed or is no longer waited for, and returns its
// log lines.
func (c *Call) Abandon() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return slices.Clone(c.lines)
}

// A Result is the answer to an invocation. It is never empty: the host would wait for ever.
type Result struct {
	Outputs     map[string]json.RawMessage
	Logs        []string
	ReturnValue json.RawMessage
}

// Result closes the call and returns its result. It fails if an item cannot be written.
func (c *Call) Result() (Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	result := Result{Outputs: map[string]json.RawMessage{}, Logs: append([]string{}, c.lines...)}
	if c.failure != nil {
		return result, c.failure
	}
	for _, b := range c.outputs {
		items := c.items[b.Name]
		if len(items) == 0 {
			continue
		}
		value, err := OutputValue(b.Kind, items)
		if err != nil {
			return result, fmt.Errorf("output %q %w", b.Name, err)
		}
		if b.Name == ReturnName {
			result.ReturnValue = value
		} else {
			result.Outputs[b.Name] = value
		}
	}
	return result, nil
}
