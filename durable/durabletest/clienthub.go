package durabletest

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// clientHub is the hub that clients use. It returns the hub's time and replaces random execution IDs with
// sequential ones, so that every run of a test is identical.
type clientHub struct {
	*memhub.Hub
	hub *Hub
}

var (
	_ provider.Client   = (*clientHub)(nil)
	_ provider.Clock    = (*clientHub)(nil)
	_ provider.Purger   = (*clientHub)(nil)
	_ provider.Rewinder = (*clientHub)(nil)
)

// Now implements provider.Clock.
func (c *clientHub) Now() time.Time { return c.hub.Now() }

// StartInstance implements provider.Client.
func (c *clientHub) StartInstance(ctx context.Context, start provider.TaskMessage, refuse []history.RuntimeStatus) error {
	e := new(*start.Event.(*history.ExecutionStarted))
	e.Instance.ExecutionID = c.hub.newExecutionID()
	start.Event, start.Target = e, e.Instance
	return c.Hub.StartInstance(ctx, start, refuse)
}
