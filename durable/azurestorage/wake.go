package azurestorage

import (
	"context"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Wake-ups
//
// While steps of an instance run, no message announces their results. After a crash, another message
// must wake the instance. The session keeps one hidden until a checkpoint leaves no step: the start of
// the execution, if a checkpoint of the session has consumed it, or else a message of
// [provider.WakeSteps], enqueued before the history is written.
//
// A start that is delivered in memory wakes the instance while the row is Pending (see
// [overdueStarts]). It is enqueued before the row changes, usually by its client after
// [outbound.EnqueueAfter].

// keepWake selects the message that wakes the instance after a crash, before the checkpoint is
// written. If no step runs, the previous one becomes one of the consumed messages.
func (c *commit) keepWake(ctx context.Context) error {
	if c.wake != nil && (!c.cp.StepsRunning || c.wake.Target() != c.cp.Instance) {
		c.takeWake()
	}
	if !c.cp.StepsRunning || c.wake != nil {
		return nil
	}
	if at := slices.IndexFunc(c.Current, func(d *inflight.Delivery) bool { return d.Wakes(c.cp.Instance) }); at >= 0 {
		c.wake = c.Current[at]
		c.Current = slices.Delete(slices.Clone(c.Current), at, at+1)
	} else {
		var err error
		if c.wake, err = c.enqueueWake(ctx); err != nil {
			return err
		}
	}
	c.wake.FreeRoom()
	return nil
}

// enqueueWake enqueues a hidden message that wakes the instance, and returns its delivery.
func (c *commit) enqueueWake(ctx context.Context) (*inflight.Delivery, error) {
	execution := c.cp.Instance
	msg := provider.WakeSteps(execution, time.Now())
	return c.sender.KeepHidden(ctx, c.Partition, &wire.Envelope{Message: &msg, Sender: &execution})
}
