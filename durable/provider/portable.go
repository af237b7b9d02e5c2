package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Portable is a [Provider] whose hub can be copied to and from a hub of another
// provider, with running instances.
type Portable interface {
	// Export writes everything in the hub to w: first the instances, then the pending
	// activities, then the messages, those of one sender in the order in which they
	// were sent. It fails with [ErrHubBusy] if a worker is running. It changes nothing
	// that a worker or a client can see.
	Export(ctx context.Context, w HubWriter, o ExportOptions) error

	// Import calls fill with a writer to the hub, and makes everything that fill wrote
	// durable before it returns. It fails with [ErrHubNotEmpty] if the hub is not
	// empty, and with [ErrHubBusy] if a worker is running. After any other error the
	// hub is incomplete and has to be deleted.
	Import(ctx context.Context, fill func(w HubWriter) error) error

	// Totals counts the contents of the hub. No worker may be running.
	Totals(ctx context.Context) (Totals, error)
}

// HubWriter writes the contents of a hub, one by one. It keeps its arguments.
type HubWriter interface {
	// Instance writes an instance, with all of its fields, and the history of its
	// current execution, which is empty if that has not begun.
	Instance(ctx context.Context, state *InstanceState, past []history.Event) error
	// Activity writes a pending activity.
	Activity(ctx context.Context, task TaskMessage) error
	// Message writes a message to an instance, to be delivered when it is [Due].
	Message(ctx context.Context, msg TaskMessage) error
}

// ExportOptions configure [Portable.Export].
type ExportOptions struct {
	// IgnoreHidden leaves out messages that are hidden in the storage and cannot be
	// read, instead of failing because of them. Most often they are timers of
	// executions that have ended.
	IgnoreHidden bool
	// Notice is called with a sentence for what the export waits for or leaves out.
	// It may be nil.
	Notice func(string)
}

// Totals count the contents of a hub.
type Totals struct {
	Instances  int `json:"instances"`
	Events     int `json:"events"` // in the histories
	Activities int `json:"activities"`
	Messages   int `json:"messages"` // timers are among them
}

// String lists the counts.
func (t Totals) String() string {
	return fmt.Sprintf("%d instances with %d events, %d activities, %d messages", t.Instances, t.Events, t.Activities, t.Messages)
}

// ErrHubBusy is the error of an operation on a hub that has a running worker.
var ErrHubBusy = errors.New("the task hub is being worked on")

// ErrHubNotEmpty is the error of an import into a hub that is not empty.
var ErrHubNotEmpty = errors.New("the task hub is not empty")

// CopyHub copies the contents of one hub to another, which must be empty, and
// compares the totals. It calls progress, which may be nil, with the totals so far.
func CopyHub(ctx context.Context, from, to Portable, o ExportOptions, progress func(Totals)) (Totals, error) {
	var copied Totals
	err := to.Import(ctx, func(w HubWriter) error {
		copied = Totals{}
		err := from.Export(ctx, &countingWriter{to: w, totals: &copied, progress: progress}, o)
		if err != nil {
			return fmt.Errorf("read the source: %w", err)
		}
		return nil
	})
	if err != nil {
		return copied, err
	}
	found, err := to.Totals(ctx)
	if err != nil {
		return copied, fmt.Errorf("count what is in the target: %w", err)
	}
	if found != copied {
		return copied, fmt.Errorf("the target has %v, but what was copied is %v", found, copied)
	}
	return copied, nil
}

// countingWriter counts what it writes to another writer.
type countingWriter struct {
	to       HubWriter
	totals   *Totals
	progress func(Totals)
}

func (c *countingWriter) Instance(ctx context.Context, state *InstanceState, past []history.Event) error {
	if err := c.to.Instance(ctx, state, past); err != nil {
		return err
	}
	c.count(Totals{Instances: 1, Events: len(past)})
	return nil
}

func (c *countingWriter) Activity(ctx context.Context, task TaskMessage) error {
	if err := c.to.Activity(ctx, task); err != nil {
		return err
	}
	c.count(Totals{Activities: 1})
	return nil
}

func (c *countingWriter) Message(ctx context.Context, msg TaskMessage) error {
	if err := c.to.Message(ctx, msg); err != nil {
		return err
	}
	c.count(Totals{Messages: 1})
	return nil
}

func (c *countingWriter) count(one Totals) {
	c.totals.Instances += one.Instances
	c.totals.Events += one.Events
	c.totals.Activities += one.Activities
	c.totals.Messages += one.Messages
	if c.progress != nil {
		c.progress(*c.totals)
	}
}
