package embedded

import (
	"fmt"
	"log/slog"
	"time"
)

// The defaults of [Config].
const (
	DefaultLockTimeout     = time.Second
	DefaultDrainTimeout    = 5 * time.Second
	DefaultAbandonDelay    = 2 * time.Second
	DefaultMaxAbandonDelay = 10 * time.Minute
	DefaultPageSize        = 100
)

// Config says how a [Hub] behaves. The zero value works: every field that is
// zero has the default that its comment names.
type Config struct {
	// Relaxed lets writes return before the disk has them. What was acknowledged
	// then survives the death of the process, but not that of the machine: a
	// loss of power takes the last moments away. The hub is whole in either
	// case. Default: every acknowledged write is on the disk.
	Relaxed bool

	// LockTimeout is how long Open waits for another process to let go of the
	// file. Default 1 s; 1 ms to an hour.
	LockTimeout time.Duration

	// DrainTimeout is how long Run waits, after its context has ended, for work
	// that was handed out. Default 5 s; up to an hour.
	DrainTimeout time.Duration

	// AbandonDelay is the time until abandoned work is handed out again. It
	// doubles with every attempt up to MaxAbandonDelay. The defaults are those
	// of DurableTask.AzureStorage: 2 s, 10 minutes. At least 1 ms; at most a day.
	AbandonDelay    time.Duration
	MaxAbandonDelay time.Duration

	// PageSize is the number of instances on a page of a query that names none.
	// Default 100; 1 to 10,000.
	PageSize int

	// Contact is an address, such as a URL, at which this process can be asked
	// for what is in the hub. Others who find the file in use are told.
	Contact string

	// Logger receives what the hub has to say. Default [slog.Default].
	Logger *slog.Logger
}

// WithDefaults returns a copy of c in which every field has its value.
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

// Validate reports the first field whose value is out of range, with its name,
// its value and the range. Zero values are in range, since they stand for
// defaults.
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

// abandonDelay returns the time until work is handed out again that was abandoned
// at the given attempt, counted from 1
// (DurableTask.AzureStorage/Messaging/TaskHubQueue.cs, AbandonMessageAsync: the
// delay doubles up to a limit).
func (c Config) abandonDelay(attempt int) time.Duration {
	d := c.AbandonDelay
	for ; attempt > 1 && d < c.MaxAbandonDelay; attempt-- {
		d *= 2
	}
	return min(d, c.MaxAbandonDelay)
}
