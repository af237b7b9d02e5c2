package partition

import (
	"log/slog"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Config configures a [Partition].
type Config struct {
	// Name names the partition, or its hub, in errors.
	Name string
	// OpenCount is the number of this opening, higher than the number of each earlier one. It makes
	// the numbers of messages, activities and executions unique. At most MaxOpenCount.
	OpenCount uint64
	// CrashCount counts the processes that ended without closing the partition.
	CrashCount uint64

	// DrainTimeout limits how long Run waits for work in flight after its context has ended.
	DrainTimeout time.Duration
	// AbandonDelay is the delay before abandoned work is dispatched again. It doubles with
	// every attempt, up to MaxAbandonDelay.
	AbandonDelay, MaxAbandonDelay time.Duration
	// PageSize is the number of instances on a page if the query sets none.
	PageSize int

	// Readable returns an error if the records in memory are no longer valid, for example
	// because another process owns the partition, or the hub's file was deleted or renamed.
	// Default: always valid.
	Readable func() error
	// HighLatency means that the storage has a high latency. Reads of records that are not in
	// memory then do not block writes, and writes wait briefly for each other (see Gather of
	// logstore.WriterConfig).
	HighLatency bool
	// Error converts an error of the storage for callers. Default: unchanged.
	Error func(error) error
	// Owns reports whether an instance belongs to this partition. Default: all do.
	Owns func(id string) bool
	// Post is called with each message for an instance of another partition, in the order of
	// their numbers, after the message is durable. [Open] calls it for the messages that are
	// still unsent. Post must not block or call the partition.
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

// abandonDelay returns the delay before work that was abandoned at the given attempt, counted
// from 1, is dispatched again. It doubles up to a limit, as in
// DurableTask.AzureStorage/Messaging/TaskHubQueue.cs, AbandonMessageAsync.
func (c Config) abandonDelay(attempt int) time.Duration {
	d := c.AbandonDelay
	for ; attempt > 1 && d < c.MaxAbandonDelay; attempt-- {
		d *= 2
	}
	return min(d, c.MaxAbandonDelay)
}

// Backlog describes the work that is ready for dispatch.
type Backlog struct {
	Messages   provider.QueueLoad // to instances that are ready
	Activities provider.QueueLoad
	// StartLatency is the waiting time of the oldest ready instance that has not started.
	StartLatency time.Duration
}
