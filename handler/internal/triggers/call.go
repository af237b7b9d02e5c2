package triggers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Call holds the values of one invocation of a function. The zero value has no inputs and no outputs.
// Its methods may be called concurrently.
type Call struct {
	metadata map[string]json.RawMessage
	data     map[string]json.RawMessage // inputs by name in lower case
	outputs  []Binding

	mu      sync.Mutex // guards the fields below
	closed  bool       // the function has returned or was abandoned
	items   map[string][]Item
	lines   []string
	failure error // the first item that cannot be written
}

// errNoInvocation reports a request that is not an invocation by the host.
var errNoInvocation = errors.New(`the body is not an invocation; want a JSON object with "Data" and "Metadata"`)

// Read fills the call from the host's request to run f, and returns the value of the trigger
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
		return nil, fmt.Errorf("the host sent no %q: run -write-functions again for function %s", f.Source.Name, f.Name)
	}
	return payload, nil
}

// Input returns the value of an input.
func (c *Call) Input(name string) (json.RawMessage, bool) {
	raw, ok := c.data[strings.ToLower(name)]
	return raw, ok
}

// Metadata decodes the trigger's metadata into a pointer to a struct or map.
func (c *Call) Metadata(into any) error { return decodeFields(c.metadata, into) }

// Retry decodes the host's retry context into a pointer to a struct. Without a retry context it does
// nothing.
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

// Log adds a line to the host's log of this invocation.
func (c *Call) Log(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.lines = append(c.lines, line)
	}
}

// HasOutput reports whether the function has an output with the given name.
func (c *Call) HasOutput(name string) bool {
	return slices.ContainsFunc(c.outputs, func(b Binding) bool { return b.Name == name })
}

// Put adds an item to an output, or records the error of its encoding. [Call.Result] uses both.
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

// Abandon closes the call of a function that failed or timed out, and returns its log lines.
func (c *Call) Abandon() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return slices.Clone(c.lines)
}

// A Result is the answer to an invocation. It is never empty, because the host would wait forever.
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

// grace is the longest time that a function may continue after its context has ended.
const grace = 2 * time.Second

// Run runs fn, the Go function of the named function, for at most limit. If fn panics, it has failed.
// If fn does not return soon after its context has ended, it has failed, too: Run leaves its goroutine
// running and returns before the host kills the program (azure-functions-host:
// WebHost/WebScriptHostExceptionHandler.cs).
func Run(ctx context.Context, name string, limit time.Duration, log *slog.Logger, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("function %s exceeded its time limit of %v", name, limit))
	defer cancel()
	done := make(chan error, 1)
	go func() { // received below, unless fn does not return
		err := errGoexit
		defer func() { done <- err }()
		err = guard(ctx, log, fn)
	}()
	select {
	case err := <-done:
		return withCauseOf(ctx, err)
	case <-ctx.Done():
	}
	patience := time.NewTimer(min(grace, limit/10))
	defer patience.Stop()
	select {
	case err := <-done:
		return withCauseOf(ctx, err)
	case <-patience.C:
		return fmt.Errorf("%w; it still runs: a function must return when its context ends", context.Cause(ctx))
	}
}

// errGoexit is the error of a function that called runtime.Goexit.
var errGoexit = errors.New("the function ended its goroutine with runtime.Goexit")

// withCauseOf adds the cause of ctx to a deadline error.
func withCauseOf(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// guard calls fn. It logs a panic with its stack and returns it as an error.
func guard(ctx context.Context, log *slog.Logger, fn func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("a function panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return fn(ctx)
}
