package embedded

import (
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// Defaults of [Config].
const (
	DefaultLockTimeout     = time.Second
	DefaultDrainTimeout    = 5 * time.Second
	DefaultAbandonDelay    = 2 * time.Second
	DefaultMaxAbandonDelay = 10 * time.Minute
	DefaultPageSize        = 100
)

// Config configures a [Hub]. A zero field has the default that its comment states.
type Config struct {
	// Relaxed lets writes return before they are on the disk. Acknowledged writes then survive a
	// crash of the process. A crash of the machine or a power loss can lose the most recent ones;
	// the hub stays consistent. Default: an acknowledged write is on the disk.
	Relaxed bool

	// AllowNetworkFile opens a file on a network file system (NFS, SMB or CIFS, such as Azure
	// Files). Without it, Open fails with a *[NetworkFileError]. Locks and memory maps are not safe
	// there, and two processes can damage the file. Linux only; other platforms do not check.
	AllowNetworkFile bool

	// LockTimeout limits how long Open waits for another process to close the file. Default 1 s;
	// 1 ms to an hour.
	LockTimeout time.Duration

	// DrainTimeout limits how long Run waits for work in flight after its context has ended.
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

	// Contact is an address of this process, such as the URL of its management API. Other processes
	// that try to open the file get it as [HeldError.Contact].
	Contact string

	// Logger is the hub's logger. Default [slog.Default].
	Logger *slog.Logger

	// MeterProvider receives the metrics of the hub: waiting work and free disk space. Default: no
	// metrics.
	MeterProvider metric.MeterProvider

	compact bool // compact the file even if little of it is free
}

// WithDefaults returns a copy of c in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	set(&c.LockTimeout, DefaultLockTimeout)
	set(&c.DrainTimeout, DefaultDrainTimeout)
	set(&c.AbandonDelay, DefaultAbandonDelay)
	set(&c.MaxAbandonDelay, max(DefaultMaxAbandonDelay, c.AbandonDelay))
	set(&c.PageSize, DefaultPageSize)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate returns an error that names the first field that is out of range, its value and the
// range. Zero fields have their defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	const day = 24 * time.Hour
	for _, f := range []struct {
		name           string
		value, lo, top time.Duration
	}{
		{"LockTimeout", c.LockTimeout, time.Millisecond, time.Hour},
		{"DrainTimeout", c.DrainTimeout, 0, time.Hour},
		{"AbandonDelay", c.AbandonDelay, time.Millisecond, day},
		{"MaxAbandonDelay", c.MaxAbandonDelay, c.AbandonDelay, day},
	} {
		if f.value < f.lo || f.value > f.top {
			return fmt.Errorf("%s is %v; want %v to %v", f.name, f.value, f.lo, f.top)
		}
	}
	if c.PageSize < 1 || c.PageSize > 10_000 {
		return fmt.Errorf("PageSize is %d; want 1 to 10000", c.PageSize)
	}
	return nil
}
