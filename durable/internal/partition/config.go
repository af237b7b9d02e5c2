package partition

import (
	"log/slog"
	"time"
)

// Config configures a [Partition].
type Config struct {
	// Name names the partition, or its hub, in errors.
	Name string
	// Opens is how often the partition was opened, with this time. No two partitions
	// that are open at different times have the same.
	Opens uint64
	// Crashes is how often a process died that had the partition open.
	Crashes uint64

	// DrainTimeout is how long Run waits for work in flight after its context has
	// ended.
	DrainTimeout time.Duration
	// AbandonDelay is the time until abandoned work is dispatched again. It doubles
	// with every attempt up to MaxAbandonDelay.
	AbandonDelay, MaxAbandonDelay time.Duration
	// PageSize is the number of instances on a page if the query does not set one.
	PageSize int

	// Readable returns why the records in memory do not count any more, nil if they do.
	// Default: they do.
	Readable func() error
	// Slow says that the storage takes long, so that writes must not wait for reads of
	// records that are not in memory, and pay if they wait a little for each other
	// (Gather of logstore.WriterConfig).
	Slow bool
	// Error returns an error of the storage as callers know it. Default: as it is.
	Error func(error) error
	// Owns reports whether an instance is the partition's. Default: every one is.
	Owns func(id string) bool
	// Post is called with each message for an instance of another partition, once it is
	// durable, in the order of their numbers, and with those that were left when the
	// partition is opened. It must not block or call the partition.
	Post func(Outgoing)

	// Logger is the partition's logger.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Readable == nil {
		c.Readable = func() error { return nil }
	}
	if c.Error == nil {
		c.Error = func(err error) error { return err }
	}
	if c.Owns == nil {
		c.Owns = func(string) bool { return true }
	}
	return c
}

// abandonDelay returns the time until work that was abandoned at the given attempt,
// counted from 1, is dispatched again
// (DurableTask.AzureStorage/Messaging/TaskHubQueue.cs, AbandonMessageAsync: the
// delay doubles up to a limit).
func (c Config) abandonDelay(attempt int) time.Duration {
	d := c.AbandonDelay
	for ; attempt > 1 && d < c.MaxAbandonDelay; attempt-- {
		d *= 2
	}
	return min(d, c.MaxAbandonDelay)
}
