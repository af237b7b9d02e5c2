package azurestorage

import (
	"log/slog"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
)

// A monitor reports to the operator of the hub. Each part of the hub that reports embeds it.
type monitor struct {
	log     *slog.Logger
	meter   *metering.Hub
	health  *health
	routine *routine
}

func newMonitor(log *slog.Logger, meter *metering.Hub) *monitor {
	return &monitor{log: log, meter: meter, health: &health{log: log}, routine: &routine{log: log}}
}
