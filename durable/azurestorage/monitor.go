package azurestorage

import (
	"log/slog"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
)

// A monitor reports to the operator of the hub, and has the clocks of the process. Each part of the
// hub that reports or holds a lease embeds it.
type monitor struct {
	log     *slog.Logger
	meter   *metering.Hub
	health  *health
	routine *routine
	clock   *clocks.Clock
}

func newMonitor(log *slog.Logger, meter *metering.Hub, clock *clocks.Clock) *monitor {
	return &monitor{log: log, meter: meter, health: &health{log: log}, routine: &routine{log: log}, clock: clock}
}
