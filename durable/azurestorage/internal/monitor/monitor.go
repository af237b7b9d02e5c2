// Package monitor reports to the operator of a task hub: log lines, metrics, outages of the storage account,
// and counts of routine events.
package monitor

import (
	"log/slog"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
)

// A Monitor reports to the operator of the hub, and has the clocks of the process. Each part of the
// hub that reports or holds a lease embeds it.
type Monitor struct {
	Log     *slog.Logger
	Meter   *metering.Hub
	Health  *health
	Routine *routine
	Clock   *clocks.Clock
}

// New returns a monitor that reports to log and meter.
func New(log *slog.Logger, meter *metering.Hub, clock *clocks.Clock) *Monitor {
	return &Monitor{Log: log, Meter: meter, Health: &health{log: log}, Routine: &routine{log: log}, Clock: clock}
}
