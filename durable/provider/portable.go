package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Portable is a [Provider] whose hub, including running instances, can be copied to and from a
// hub of another provider.
type Portable interface {
	// Export writes everything in the hub to w: first the instances, then the pending
	// activities, then the messages. Messages of one sender keep the order in which they were
	// sent. Export fails with [ErrHubBusy] if a worker is running. It makes no change that a
	// worker or a client can see.
	Export(ctx context.Context, w HubWriter, o ExportOptions) error

	// Import calls fill with a writer to the hub. Everything that fill has written is durable
	// when Import returns. Import may add messages that only this provider needs, such as timers
	// of ended instances. Import fails with [ErrHubNotEmpty] if the hub is not empty, and with
	// [ErrHubBusy] if a worker is running. After any other error, and after an error of fill, the
	// hub is incomplete and must be deleted.
	Import(ctx context.Context, fill func(w HubWriter) error) error

	// Totals counts the contents of the hub. No worker may be running.
	Totals(ctx context.Context) (Totals, error)
}

// HubWriter writes the contents of a hub, one item at a time. It keeps references to its
// arguments.
type HubWriter interface {
	// Instance writes an instance, with all fields of its state, and the history of its current
	// execution. past is empty if the execution has not run yet.
	Instance(ctx context.Context, state *InstanceState, past []history.Event) error
	// Activity writes a pending activity.
	Activity(ctx context.Context, task TaskMessage) error
	// Message writes a message to an instance. It is delivered at its [DueTime].
	Message(ctx context.Context, msg TaskMessage) error
}

// ExportOptions configure [Portable.Export].
type ExportOptions struct {
	// IgnoreHidden skips messages that are hidden in the storage and cannot be read. Without
	// it, Export fails because of them. Most of these messages are timers of executions that
	// have ended.
	IgnoreHidden bool
	// Notice is called with a sentence for each thing that the export waits for or skips. It
	// may be nil.
	Notice func(string)
}

// Totals counts the contents of a hub.
type Totals struct {
	Instances  int `json:"instances"`
	Events     int `json:"events"` // in all histories
	Activities int `json:"activities"`
	Messages   int `json:"messages"` // includes timers
}

// String lists the counts.
func (t Totals) String() string {
	return fmt.Sprintf("%d instances with %d events, %d activities, %d messages", t.Instances, t.Events, t.Activities, t.Messages)
}

// ErrHubBusy means that a worker of the hub is running.
var ErrHubBusy = errors.New("the task hub is in use by a worker")

// ErrHubNotEmpty is the error of an import into a hub that contains data.
var ErrHubNotEmpty = errors.New("the task hub is not empty")

// CopyHub copies the contents of one hub to another, which must be empty, and compares the
// totals. It calls progress, which may be nil, with the totals so far. If it returns an error
// and totals that are not zero, the target is incomplete and must be deleted.
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
		return copied, fmt.Errorf("count the contents of the target: %w", err)
	}
	counted := found
	counted.Messages = min(found.Messages, copied.Messages) // the target may have added messages, so the comparison can miss a lost one
	if counted != copied {
		return copied, fmt.Errorf("the target contains %v, but %v were copied", found, copied)
	}
	return copied, nil
}

// countingWriter counts the items that it passes on to another writer.
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
