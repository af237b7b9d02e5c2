package partitionlog

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"go.opentelemetry.io/otel/metric"
)

// Defaults of [Config].
const (
	DefaultPartitionCount     = 4
	DefaultLeaseInterval      = 30 * time.Second
	DefaultMaxPollingInterval = time.Second
	DefaultBalanceInterval    = 5 * time.Second
	DefaultDrainTimeout       = 5 * time.Second
	DefaultAbandonDelay       = 2 * time.Second
	DefaultMaxAbandonDelay    = 10 * time.Minute
	DefaultPageSize           = 100
)

// MaxPartitionCount is how many partitions a hub has at most.
const MaxPartitionCount = 64

// Config configures a [Hub]. Each field that is zero has the default that its comment
// names.
type Config struct {
	// TaskHub is the name of the hub, see [azurestorage.ValidateHubName]. Default
	// [azurestorage.DefaultTaskHub].
	TaskHub string

	// PartitionCount is the number of partitions of a hub that is made. It never changes:
	// a hub of another number is refused with a *[azurestorage.PartitionCountError]. Default
	// 4; 1 to 64.
	PartitionCount int

	// LeaseInterval is how long a partition stays with an owner that has died. Default
	// 30 s; 15 s to a minute, in whole seconds.
	LeaseInterval time.Duration

	// MaxPollingInterval is the longest time between two looks into the mailbox of a
	// partition that has work. It is much shorter while there is mail. A partition without work
	// and mail looks every 30 s, and when a sender announces mail, which takes up to 5 s.
	// Default 1 s; 10 ms to a minute.
	MaxPollingInterval time.Duration

	// BalanceInterval is how often a worker says that it works, and looks who else does.
	// Who says nothing for three times as long does not count. Other workers give a worker
	// partitions when it has worked for three times as long. Default 5 s; 100 ms to a minute.
	BalanceInterval time.Duration

	// DrainTimeout is how long Run waits for work in flight after its context has
	// ended. Default 5 s; up to an hour.
	DrainTimeout time.Duration

	// AbandonDelay is the time until abandoned work is dispatched again. It doubles with
	// every attempt up to MaxAbandonDelay. The defaults are those of
	// DurableTask.AzureStorage: 2 s, 10 minutes. At least 1 ms; at most a day.
	AbandonDelay    time.Duration
	MaxAbandonDelay time.Duration

	// PageSize is the number of instances on a page if the query does not set one.
	// Default 100; 1 to 10,000.
	PageSize int

	// WorkerID names this process among the hub's workers. Default: the host's name, the
	// process ID and a random part.
	WorkerID string

	// Build says which program this process is, for those who look at the hub: its name and
	// version, for example. Of a long text the first 200 bytes count. Default: nothing.
	Build string

	// Logger is the hub's logger. Default [slog.Default].
	Logger *slog.Logger

	// MeterProvider receives the metrics of the hub: which partitions this process has,
	// what waits in them, and the times of storage requests. Default: nobody.
	MeterProvider metric.MeterProvider

	// Transport carries the requests to the blob service. Default: a client of the hub's
	// own.
	Transport policy.Transporter
}

// WithDefaults returns a copy of c in which every field but Build and the last two has its value.
func (c Config) WithDefaults() Config {
	c.TaskHub = cmp.Or(c.TaskHub, azurestorage.DefaultTaskHub)
	c.PartitionCount = cmp.Or(c.PartitionCount, DefaultPartitionCount)
	c.LeaseInterval = cmp.Or(c.LeaseInterval, DefaultLeaseInterval)
	c.MaxPollingInterval = cmp.Or(c.MaxPollingInterval, DefaultMaxPollingInterval)
	c.BalanceInterval = cmp.Or(c.BalanceInterval, DefaultBalanceInterval)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	c.AbandonDelay = cmp.Or(c.AbandonDelay, DefaultAbandonDelay)
	c.MaxAbandonDelay = cmp.Or(c.MaxAbandonDelay, max(DefaultMaxAbandonDelay, c.AbandonDelay))
	c.PageSize = cmp.Or(c.PageSize, DefaultPageSize)
	if c.WorkerID == "" {
		c.WorkerID = azurestorage.Config{}.WithDefaults().WorkerID
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Validate returns an error that names the first field that is out of range, its value
// and the range. A zero field is in range and has its default.
func (c Config) Validate() error {
	c = c.WithDefaults()
	if err := azurestorage.ValidateHubName(c.TaskHub); err != nil {
		return fmt.Errorf("TaskHub: %w", err)
	}
	const day = 24 * time.Hour
	for _, f := range []struct {
		name           string
		value, lo, top time.Duration
	}{
		{"LeaseInterval", c.LeaseInterval, 15 * time.Second, time.Minute},
		{"MaxPollingInterval", c.MaxPollingInterval, 10 * time.Millisecond, time.Minute},
		{"BalanceInterval", c.BalanceInterval, 100 * time.Millisecond, time.Minute},
		{"DrainTimeout", c.DrainTimeout, 0, time.Hour},
		{"AbandonDelay", c.AbandonDelay, time.Millisecond, day},
		{"MaxAbandonDelay", c.MaxAbandonDelay, c.AbandonDelay, day},
	} {
		if f.value < f.lo || f.value > f.top {
			return fmt.Errorf("%s is %v; want %v to %v", f.name, f.value, f.lo, f.top)
		}
	}
	if c.LeaseInterval%time.Second != 0 {
		return fmt.Errorf("LeaseInterval is %v; want whole seconds", c.LeaseInterval)
	}
	for _, f := range []struct {
		name       string
		value, top int
	}{{"PartitionCount", c.PartitionCount, MaxPartitionCount}, {"PageSize", c.PageSize, 10_000}} {
		if f.value < 1 || f.value > f.top {
			return fmt.Errorf("%s is %d; want 1 to %d", f.name, f.value, f.top)
		}
	}
	return nil
}
