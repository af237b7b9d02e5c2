package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A Portable is a [Provider] whose hub can be copied to and from that of
// another one, with all that is under way.
type Portable interface {
	// Export hands everything that is in the hub to w: first the instances, then
	// the activities that are to be run, then the messages, of one sender in the
	// order in which they were sent. It fails with [ErrHubBusy] if the hub is
	// being worked on. It changes nothing that a worker or a client could see
	// afterwards.
	Export(ctx context.Context, w HubWriter, o ExportOptions) error

	// Import calls fill with what fills the hub, and makes what fill wrote
	// durable before it returns. It fails with [ErrHubNotEmpty] if there is
	// something in the hub, and with [ErrHubBusy] if that is being worked on. If
	// it fails later, the hub is left incomplete, and has to be deleted.
	Import(ctx context.Context, fill func(w HubWriter) error) error

	// Totals counts what is in the hub, while nobody works on it.
	Totals(ctx context.Context) (Totals, error)
}

// A HubWriter takes the contents of a hub, one by one. What it is given belongs
// to it.
type HubWriter interface {
	// Instance takes an instance, with all of its fields, and the history of its
	// current execution, which is empty if that has not begun.
	Instance(ctx context.Context, state *InstanceState, past []history.Event) error
	// Activity takes one that is to be run, or to be run again.
	Activity(ctx context.Context, task TaskMessage) error
	// Message takes a message that is on its way to an instance, where it is to
	// arrive when it is [Due].
	Message(ctx context.Context, msg TaskMessage) error
}

// ExportOptions say how [Portable.Export] proceeds.
type ExportOptions struct {
	// IgnoreHidden leaves behind what is in the storage and cannot be read,
	// rather than failing because of it. Mostly that is timers of executions
	// that are over.
	IgnoreHidden bool
	// Notice is told, in a sentence, what the export waits for or leaves behind.
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

// ErrHubBusy says that a worker has the hub, so that its contents change.
var ErrHubBusy = errors.New("the task hub is being worked on")

// ErrHubNotEmpty says that there is something in a hub that was to be filled.
var ErrHubNotEmpty = errors.New("the task hub is not empty")

// CopyHub copies the contents of one hub into another, which must be empty, and
// compares what is there afterwards with what was copied. It calls progress,
// which may be nil, with what was copied so far.
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

// A countingWriter counts what it passes on.
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
