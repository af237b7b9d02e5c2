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

// MaxPartitionCount is the maximum number of partitions of a hub.
const MaxPartitionCount = 64

// Config configures a [Hub]. A zero field has the default that its comment states.
type Config struct {
	// TaskHub is the name of the hub, see [azurestorage.ValidateHubName]. Default
	// [azurestorage.DefaultTaskHub].
	TaskHub string

	// PartitionCount is the number of partitions of a new hub. It cannot be changed later: opening
	// a hub with another number fails with a *[azurestorage.PartitionCountError]. Default 4;
	// 1 to 64.
	PartitionCount int

	// LeaseInterval is the lease duration of a partition's log. If the owner dies, another process
	// takes over after this time. Default 30 s; 15 s to a minute, in whole seconds.
	LeaseInterval time.Duration

	// MaxPollingInterval is the maximum time between two polls of the mailbox of a partition that
	// has work. The interval is much shorter while mail arrives. An idle mailbox is polled every
	// 30 s, and when a sender announces mail, which takes up to 5 s. Default 1 s; 10 ms to a
	// minute.
	MaxPollingInterval time.Duration

	// BalanceInterval is the interval of heartbeats. A worker without a heartbeat for three
	// intervals counts as dead. A new worker gets partitions from other workers after three
	// intervals. Default 5 s; 100 ms to a minute.
	BalanceInterval time.Duration

	// DrainTimeout limits the wait of Run for work in flight after its context has ended.
	// Default 5 s; at most an hour.
	DrainTimeout time.Duration

	// AbandonDelay is the delay before abandoned work is dispatched again. It doubles with each
	// attempt, up to MaxAbandonDelay. The defaults are the same as in DurableTask.AzureStorage: 2 s
	// and 10 minutes. At least 1 ms; at most a day.
	AbandonDelay    time.Duration
	MaxAbandonDelay time.Duration

	// PageSize is the number of instances on a page if the query does not set one. Default 100; 1
	// to 10,000.
	PageSize int

	// WorkerID identifies this process among the hub's workers. Default: the host name, the process
	// ID and a random part.
	WorkerID string

	// Build names the program and its version for diagnostics. Only the first 200 bytes are stored.
	// Default: empty.
	Build string

	// Logger is the hub's logger. Default [slog.Default].
	Logger *slog.Logger

	// MeterProvider receives the hub's metrics: owned partitions, their backlogs, and the durations
	// of storage requests. Default: none.
	MeterProvider metric.MeterProvider

	// Transport sends the requests to the blob service. Default: an HTTP client of the hub.
	Transport policy.Transporter
}

// WithDefaults returns a copy of c in which zero fields have their defaults. Build, MeterProvider
// and Transport stay as they are.
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

// Validate returns an error that names the first field that is out of range, its value and the
// range. Zero fields have their defaults.
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
