package handler

import (
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/triggers"
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

	logger *slog.Logger
	values triggers.Call
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
	if err := c.values.Metadata(into); err != nil {
		return fmt.Errorf("decode the metadata of function %s: %w", c.Function, err)
	}
	return nil
}

// Logf adds a line to the log that the host keeps of this run. It appears there
// when the function has returned without an error; if it fails, the lines go to
// the app's log.
func (c *Invocation) Logf(format string, args ...any) {
	c.values.Log(fmt.Sprintf(format, args...))
}

// Logger returns the app's logger with the function and the ID of this run.
func (c *Invocation) Logger() *slog.Logger {
	if c.logger == nil {
		return slog.Default()
	}
	return c.logger
}
