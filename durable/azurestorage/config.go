package azurestorage

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/metric"
)

// The defaults of [Config], which are those of the Durable Functions extension
// 3.x where that has the setting.
const (
	DefaultTaskHub                        = "TestHubName"
	DefaultTrackingStoreNamePrefix        = "DurableTask"
	DefaultPartitionCount                 = 4
	DefaultControlQueueBatchSize          = 32
	DefaultControlQueueBufferThreshold    = 256
	DefaultControlQueueVisibilityTimeout  = 5 * time.Minute
	DefaultWorkItemQueueVisibilityTimeout = 5 * time.Minute
	DefaultMaxQueuePollingInterval        = 30 * time.Second
	DefaultActivitiesPerCore              = 10
	DefaultLeaseInterval                  = 30 * time.Second
	DefaultLeaseAcquireInterval           = 10 * time.Second
	DefaultDrainTimeout                   = 5 * time.Second
	DefaultHistoryCacheBytes              = 64 << 20
	DefaultLastUpdatedTolerance           = 3 * time.Second
)

// Config says how a [TaskHub] behaves. The zero value works: every field that
// is zero has the default that its comment names.
type Config struct {
	// TaskHub is the name that all of the hub's storage resources begin with.
	// Default "TestHubName"; 3 to 45 letters and digits, a letter first.
	TaskHub string

	// TrackingStoreNamePrefix is what the names of the tables with histories and
	// instances begin with, instead of the hub's name, if the connection has a
	// tracking store ([Connection.WithTrackingStore]); else it is not used. Hubs
	// that share such an account must have prefixes of their own, since they
	// would share these tables. Default "DurableTask"; 1 to 54 letters and digits,
	// a letter first.
	TrackingStoreNamePrefix string

	// PartitionCount is the number of control queues. All workers and clients of
	// a hub must agree on it. Default 4; 1 to 16.
	PartitionCount int

	// ControlQueueBatchSize is the number of messages that one receive from a
	// control queue asks for. Default 32; 1 to 32.
	ControlQueueBatchSize int

	// ControlQueueBufferThreshold is the number of control-queue messages that
	// may be in memory, over all partitions, waiting or handed out. Default 256;
	// 1 to 1000.
	ControlQueueBufferThreshold int

	// ControlQueueVisibilityTimeout and WorkItemQueueVisibilityTimeout bound for
	// how long a received message stays hidden from other workers without being
	// renewed. Messages are renewed for as long as this process has them, so what
	// the time decides is how soon the messages of a worker that died are seen
	// again; a message is never hidden for longer than LeaseInterval at a time.
	// Default 5 minutes; 1 to 60 minutes.
	ControlQueueVisibilityTimeout  time.Duration
	WorkItemQueueVisibilityTimeout time.Duration

	// MaxQueuePollingInterval is the longest pause between two looks at an empty
	// queue. Default 30 s; at least 50 ms, at most an hour.
	MaxQueuePollingInterval time.Duration

	// QueueEncoding is how messages are written. Both forms are always read.
	// Default [UTF8].
	QueueEncoding QueueEncoding

	// MaxConcurrentActivities is the number of work items that this process may
	// hold at once. Default 10 for each core; at least 1.
	MaxConcurrentActivities int

	// WorkerID names this process in the partitions table. It must differ from
	// that of every other process on the hub. Default: host name, process ID and
	// a random part.
	WorkerID string

	// PartitionManager is how workers agree on who reads which control queue. All
	// workers of a hub must have the same. Default [TablePartitions].
	PartitionManager PartitionManager

	// AppLease says how apps that share the hub take turns.
	AppLease AppLease

	// JumpStart says whether starts are recorded, and sent again if they do not
	// arrive. Default: they are not.
	JumpStart JumpStart

	// Tracking says whether an audit is kept: every event of every orchestration,
	// in a table to which rows are only added. It costs a queue message for each
	// checkpoint, and what it takes to move that into the table. All workers of a
	// hub must agree: any of them may be the one that moves it. Default: none.
	Tracking bool

	// SetAsideUndecodable says what becomes of messages that this worker cannot decode
	// and has received ten times, which takes some 17 minutes: they go to queues beside
	// those that they were in, until [TaskHub.RetryUndecodable] puts them back. Default:
	// they stay, hidden for ten minutes at a time, since another worker of the hub may
	// be able to decode them. Those whose blob is gone are set aside in any case.
	SetAsideUndecodable bool

	// LeaseInterval is how long a partition stays this worker's without being
	// renewed. Default 30 s; at least 1 s, and 15 to 60 whole seconds for a blob
	// partition manager.
	LeaseInterval time.Duration

	// LeaseAcquireInterval is how often the partitions table is looked at:
	// leases are renewed, acquired and evened out then. Default 10 s; less than
	// LeaseInterval.
	LeaseAcquireInterval time.Duration

	// DrainTimeout is how long Run waits, after its context has ended, for work
	// that was handed out. Default 5 s.
	DrainTimeout time.Duration

	// HistoryCacheBytes bounds the memory in which histories of instances that go
	// on are kept between their episodes, so that they need not be read again,
	// roughly and in bytes. Default 64 MiB; none is kept if it is negative.
	HistoryCacheBytes int

	// LastUpdatedTolerance is by how much the time of the last update in an
	// instance's row may be behind the last checkpoint. A checkpoint that would
	// change no more of the row than that is not written to it. Default 3 s; with
	// a negative value the row is written with every checkpoint, as .NET does.
	LastUpdatedTolerance time.Duration

	// Logger receives what the hub has to say. Default [slog.Default].
	Logger *slog.Logger

	// MeterProvider receives what the hub has to count and to time: leases, ages
	// of messages, storage operations and so on. Default: nobody.
	MeterProvider metric.MeterProvider

	// Transport carries the requests to the storage services. Default: a
	// *http.Client that the hub has for itself.
	Transport policy.Transporter
}

// WithDefaults returns a copy of c in which every field has its value.
func (c Config) WithDefaults() Config {
	set(&c.TaskHub, DefaultTaskHub)
	set(&c.TrackingStoreNamePrefix, DefaultTrackingStoreNamePrefix)
	set(&c.PartitionCount, DefaultPartitionCount)
	set(&c.ControlQueueBatchSize, DefaultControlQueueBatchSize)
	set(&c.ControlQueueBufferThreshold, DefaultControlQueueBufferThreshold)
	set(&c.ControlQueueVisibilityTimeout, DefaultControlQueueVisibilityTimeout)
	set(&c.WorkItemQueueVisibilityTimeout, DefaultWorkItemQueueVisibilityTimeout)
	set(&c.MaxQueuePollingInterval, DefaultMaxQueuePollingInterval)
	set(&c.MaxConcurrentActivities, DefaultActivitiesPerCore*runtime.NumCPU())
	set(&c.LeaseInterval, DefaultLeaseInterval)
	set(&c.LeaseAcquireInterval, DefaultLeaseAcquireInterval)
	set(&c.DrainTimeout, DefaultDrainTimeout)
	set(&c.HistoryCacheBytes, DefaultHistoryCacheBytes)
	set(&c.LastUpdatedTolerance, DefaultLastUpdatedTolerance)
	c.AppLease = c.AppLease.withDefaults()
	c.JumpStart = c.JumpStart.withDefaults()
	if c.WorkerID == "" {
		c.WorkerID = newWorkerID()
	}
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

// newWorkerID returns a name that no other process has, even one with the same
// process ID in another container of the same host name.
func newWorkerID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), uuid.NewString()[:8])
}

// Validate reports the first field whose value is out of range, with its name,
// its value and the range. Zero values are in range, since they stand for
// defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	if err := ValidateHubName(c.TaskHub); err != nil {
		return fmt.Errorf("TaskHub: %w", err)
	}
	if err := ValidateTrackingPrefix(c.TrackingStoreNamePrefix); err != nil {
		return fmt.Errorf("TrackingStoreNamePrefix: %w", err)
	}
	for _, f := range []struct {
		name           string
		value, lo, top int
	}{
		{"PartitionCount", c.PartitionCount, 1, 16},
		{"ControlQueueBatchSize", c.ControlQueueBatchSize, 1, 32},
		{"ControlQueueBufferThreshold", c.ControlQueueBufferThreshold, 1, 1000},
		{"MaxConcurrentActivities", c.MaxConcurrentActivities, 1, 100_000},
	} {
		if f.value < f.lo || f.value > f.top {
			return fmt.Errorf("%s is %d; want %d to %d", f.name, f.value, f.lo, f.top)
		}
	}
	for _, f := range []struct {
		name           string
		value, lo, top time.Duration
	}{
		{"ControlQueueVisibilityTimeout", c.ControlQueueVisibilityTimeout, minVisibilityTimeout, time.Hour},
		{"WorkItemQueueVisibilityTimeout", c.WorkItemQueueVisibilityTimeout, minVisibilityTimeout, time.Hour},
		{"MaxQueuePollingInterval", c.MaxQueuePollingInterval, store.MinPollingInterval, time.Hour},
		{"LeaseInterval", c.LeaseInterval, time.Second, time.Hour},
		{"LeaseAcquireInterval", c.LeaseAcquireInterval, 10 * time.Millisecond, time.Hour},
		{"DrainTimeout", c.DrainTimeout, 0, time.Hour},
	} {
		if f.value < f.lo || f.value > f.top {
			return fmt.Errorf("%s is %v; want %v to %v", f.name, f.value, f.lo, f.top)
		}
	}
	if c.LeaseAcquireInterval >= c.LeaseInterval {
		return fmt.Errorf("LeaseAcquireInterval is %v; want less than LeaseInterval, which is %v", c.LeaseAcquireInterval, c.LeaseInterval)
	}
	if c.PartitionManager < 0 || int(c.PartitionManager) >= len(partitionManagerNames) {
		return fmt.Errorf("PartitionManager is %v; want TablePartitions, SafeBlobLeases or LegacyBlobLeases", c.PartitionManager)
	}
	if c.PartitionManager != TablePartitions && (c.LeaseInterval < 15*time.Second || c.LeaseInterval > time.Minute) {
		return fmt.Errorf("LeaseInterval is %v; want 15s to 1m0s, which is what leases of blobs can be", c.LeaseInterval)
	}
	if err := c.AppLease.validate(); err != nil {
		return err
	}
	if err := c.JumpStart.validate(); err != nil {
		return err
	}
	if c.QueueEncoding != UTF8 && c.QueueEncoding != Base64 {
		return fmt.Errorf("QueueEncoding is %v; want UTF8 or Base64", c.QueueEncoding)
	}
	return nil
}

// minVisibilityTimeout is a variable so that tests can let messages come back
// within seconds.
var minVisibilityTimeout = time.Minute

// QueueEncoding says how the text of a queue message holds the JSON. Readers
// tell the two apart by themselves, but .NET workers and clients before version
// 2.0.0 of DurableTask.AzureStorage understand Base64 only.
type QueueEncoding int

// The encodings.
const (
	UTF8   QueueEncoding = iota // the JSON itself; the default
	Base64                      // standard Base64 of the JSON, with padding
)

// String returns the name that .NET gives the encoding.
func (e QueueEncoding) String() string {
	switch e {
	case UTF8:
		return "UTF8"
	case Base64:
		return "Base64"
	}
	return fmt.Sprintf("QueueEncoding(%d)", int(e))
}

// AppLease says how apps that share a hub take turns: only the workers of the
// app that holds the lease, the primary one, read the control queues. All
// workers of an app hold it together.
type AppLease struct {
	// Disabled has this worker read the queues whatever other apps do.
	Disabled bool
	// AppName tells apps apart. Default: the variable WEBSITE_SITE_NAME or
	// DTFX_APP_NAME, else empty, which all apps outside of Azure have in common.
	AppName string
	// Interval is how long the lease lasts without being renewed. Default 60 s;
	// 15 to 60 s, in whole seconds.
	Interval time.Duration
	// RenewInterval is how often it is renewed. Default 25 s; less than Interval.
	RenewInterval time.Duration
	// AcquireInterval is how often a secondary app tries to get it. Default 5
	// minutes.
	AcquireInterval time.Duration
}

// The defaults of [AppLease]
// (DurableTask.AzureStorage/Partitioning/AppLeaseOptions.cs).
const (
	DefaultAppLeaseInterval        = time.Minute
	DefaultAppLeaseRenewInterval   = 25 * time.Second
	DefaultAppLeaseAcquireInterval = 5 * time.Minute
)

func (a AppLease) withDefaults() AppLease {
	set(&a.Interval, DefaultAppLeaseInterval)
	set(&a.RenewInterval, DefaultAppLeaseRenewInterval)
	set(&a.AcquireInterval, DefaultAppLeaseAcquireInterval)
	for _, name := range []string{"WEBSITE_SITE_NAME", "DTFX_APP_NAME"} { // DurableTask.Core/Common/Utils.cs, AppName
		if a.AppName == "" {
			a.AppName = os.Getenv(name)
		}
	}
	return a
}

func (a AppLease) validate() error {
	switch {
	case a.Interval < 15*time.Second || a.Interval > time.Minute:
		return fmt.Errorf("AppLease.Interval is %v; want 15s to 1m0s", a.Interval)
	case a.RenewInterval <= 0 || a.RenewInterval >= a.Interval:
		return fmt.Errorf("AppLease.RenewInterval is %v; want less than Interval, which is %v", a.RenewInterval, a.Interval)
	case a.AcquireInterval <= 0 || a.AcquireInterval > 24*time.Hour:
		return fmt.Errorf("AppLease.AcquireInterval is %v; want more than 0 and at most 24h0m0s", a.AcquireInterval)
	}
	return nil
}

// JumpStart has clients record each start in a table of its own before they
// send it, as the Durable Task Framework did on Service Bus. A worker looks at
// the records of its partitions, and sends a start again that was recorded but
// has not arrived: the client died in between, or the storage refused the
// message. It costs three storage operations a start, and a look at the table
// for each partition every Interval.
type JumpStart struct {
	// Enabled turns it on, for this client and this worker.
	Enabled bool
	// Timeout is how long a start may take to arrive before it is sent again.
	// Default 10 minutes; 1 s to a day.
	Timeout time.Duration
	// Interval is how often a worker looks. Default 5 s; 10 ms to an hour.
	Interval time.Duration
}

// The defaults of [JumpStart].
const (
	DefaultJumpStartTimeout  = 10 * time.Minute
	DefaultJumpStartInterval = 5 * time.Second
)

func (j JumpStart) withDefaults() JumpStart {
	set(&j.Timeout, DefaultJumpStartTimeout)
	set(&j.Interval, DefaultJumpStartInterval)
	return j
}

func (j JumpStart) validate() error {
	switch {
	case j.Timeout < time.Second || j.Timeout > 24*time.Hour:
		return fmt.Errorf("JumpStart.Timeout is %v; want 1s to 24h0m0s", j.Timeout)
	case j.Interval < 10*time.Millisecond || j.Interval > time.Hour:
		return fmt.Errorf("JumpStart.Interval is %v; want 10ms to 1h0m0s", j.Interval)
	}
	return nil
}

// A PartitionManager is a way to keep who reads which control queue. Workers of
// one hub must all use the same: they do not see each other's leases otherwise.
type PartitionManager int

const (
	// TablePartitions keeps a row for each partition in the hub's partitions
	// table. It is the default of the .NET extension 3.x.
	TablePartitions PartitionManager = iota
	// SafeBlobLeases keeps two blobs for each partition, one that says who is to
	// have it and one that says who has it. It is the default of the .NET
	// extension 2.x.
	SafeBlobLeases
	// LegacyBlobLeases keeps one blob for each partition. While a partition moves
	// from or to a worker in .NET, both may read its queue for some seconds; each
	// instance is still written by one of them only.
	LegacyBlobLeases
)

var partitionManagerNames = [...]string{"table", "safe blob-lease", "legacy blob-lease"}

// String returns the manager's name, such as "table".
func (m PartitionManager) String() string {
	if m < 0 || int(m) >= len(partitionManagerNames) {
		return fmt.Sprintf("PartitionManager(%d)", int(m))
	}
	return partitionManagerNames[m]
}

// A PartitionManagerError says that workers are at work on a hub that keep its
// partitions in another way than this one. Each would read all queues.
type PartitionManagerError struct {
	TaskHub    string
	Configured PartitionManager
	Active     PartitionManager
}

// Error names both managers.
func (e *PartitionManagerError) Error() string {
	return fmt.Sprintf("task hub %s is being worked on with the %s partition manager, but the %s partition manager is configured here: "+
		"configure the same everywhere (useTablePartitionManagement, useLegacyPartitionManagement), or stop the other workers first",
		e.TaskHub, e.Active, e.Configured)
}
