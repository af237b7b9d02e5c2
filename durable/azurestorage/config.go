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

// The defaults of [Config]. They equal the defaults of the Durable Functions extension 3.x where it
// has the setting.
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

// Config configures a [TaskHub]. A field that is zero has the default in its comment, so the zero
// value is valid.
type Config struct {
	// TaskHub is the prefix of the names of all storage resources of the hub. Default
	// "TestHubName"; 3 to 45 ASCII letters and digits, starting with a letter.
	TaskHub string

	// TrackingStoreNamePrefix replaces the hub's name in the names of the History and Instances
	// tables if the connection has a tracking store ([Connection.WithTrackingStore]). Otherwise it
	// has no effect. Hubs that share a tracking store need different prefixes, or they would share
	// these tables. Default "DurableTask"; 1 to 54 ASCII letters and digits, starting with a
	// letter.
	TrackingStoreNamePrefix string

	// PartitionCount is the number of control queues. All workers and clients of a hub must use the
	// same number; with another one the first use of the hub fails with a *[PartitionCountError].
	// Default 4; 1 to 16.
	PartitionCount int

	// ControlQueueBatchSize is the maximum number of messages per receive from a control queue.
	// Default 32; 1 to 32.
	ControlQueueBatchSize int

	// ControlQueueBufferThreshold is the maximum number of control-queue messages in memory, over
	// all partitions, buffered or dispatched. Default 256; 1 to 1000.
	ControlQueueBufferThreshold int

	// ControlQueueVisibilityTimeout and WorkItemQueueVisibilityTimeout are the times for which a
	// received message stays hidden from other workers unless it is renewed. This process renews
	// the messages that it holds, so the timeout only decides how soon the messages of a dead
	// worker reappear. If LeaseInterval is shorter, it applies instead. While the queues are slow,
	// the timeouts are up to four times as long. Default 5 minutes; 1 to 60 minutes.
	ControlQueueVisibilityTimeout  time.Duration
	WorkItemQueueVisibilityTimeout time.Duration

	// MaxQueuePollingInterval is the longest pause between two polls of an empty queue. Default 30
	// s; 50 ms to 1 hour.
	MaxQueuePollingInterval time.Duration

	// QueueEncoding is the encoding of sent messages. Received messages may have either encoding.
	// Default [UTF8].
	QueueEncoding QueueEncoding

	// MaxConcurrentActivities is the maximum number of work items that this process holds at the
	// same time. Default 10 per core; 1 to 100,000.
	MaxConcurrentActivities int

	// WorkerID names this process in the partitions table. It must be unique among the processes of
	// the hub. Default: host name, process ID and a random part.
	WorkerID string

	// PartitionManager selects how the workers divide the control queues. All workers of a hub must
	// use the same one. Default [TablePartitions].
	PartitionManager PartitionManager

	// AppLease configures the lease of the primary app, for apps that share the hub.
	AppLease AppLease

	// JumpStart makes clients record their starts, so that a start that does not arrive is sent
	// again. Default: disabled.
	JumpStart JumpStart

	// Tracking enables the audit: an append-only table with every event of every orchestration.
	// Each checkpoint costs one additional queue message and the requests that move it into the
	// table. All workers of a hub must use the same value, because any of them may move the
	// messages. Default false.
	Tracking bool

	// SetAsideUndecodable makes the worker move a message that it cannot decode to a separate queue
	// after ten receives, which takes about 17 minutes. [TaskHub.RetryUndecodable] moves these
	// messages back. Default false: the message stays in its queue, hidden for ten minutes at a
	// time. Another worker of the hub may be able to decode it. A message whose blob is missing is
	// moved in any case, after five receives.
	SetAsideUndecodable bool

	// LeaseInterval is the duration of a partition lease unless it is renewed. Default 30 s; 1 s to
	// 1 hour. A blob partition manager needs 15 to 60 whole seconds.
	LeaseInterval time.Duration

	// LeaseAcquireInterval is the time between two passes over the partitions, which renew, acquire
	// and balance leases. Default 10 s; less than LeaseInterval.
	LeaseAcquireInterval time.Duration

	// DrainTimeout limits how long Run waits for dispatched work after its context has ended.
	// Default 5 s; at most 1 hour.
	DrainTimeout time.Duration

	// HistoryCacheBytes is the approximate maximum size in bytes of the cache of histories. An
	// instance whose history is cached need not be read again for its next episode. Default 64 MiB;
	// a negative value disables the cache.
	HistoryCacheBytes int

	// LastUpdatedTolerance is the permitted lag of the last-updated time in an instance's row
	// behind its last checkpoint. A checkpoint that would change no other column does not write the
	// row. Default 3 s; with a negative value every checkpoint writes the row, as in .NET.
	LastUpdatedTolerance time.Duration

	// Logger receives the log messages of the hub. Default [slog.Default].
	Logger *slog.Logger

	// MeterProvider receives the metrics of the hub, such as leases, message ages and storage
	// operations. Default: no metrics.
	MeterProvider metric.MeterProvider

	// Transport sends the requests to the storage services. Default: an *http.Client that only this
	// hub uses.
	Transport policy.Transporter
}

// WithDefaults returns a copy of c in which every zero field has its default.
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

// newWorkerID returns a unique name. The random part distinguishes containers with the same host
// name and process ID.
func newWorkerID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), uuid.NewString()[:8])
}

// Validate returns an error with the name, value and range of the first field that is out of range.
// A zero field is valid, because it stands for its default.
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
		return fmt.Errorf("LeaseInterval is %v; want 15s to 1m0s for blob leases", c.LeaseInterval)
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

// minVisibilityTimeout is a variable so that tests can use timeouts of seconds.
var minVisibilityTimeout = time.Minute

// QueueEncoding is the encoding of the JSON in a queue message. This package detects it on receive.
// .NET workers and clients before version 2.0.0 of DurableTask.AzureStorage understand only Base64.
type QueueEncoding int

// The encodings.
const (
	UTF8   QueueEncoding = iota // the JSON itself; the default
	Base64                      // standard Base64 of the JSON, with padding
)

// String returns .NET's name of the encoding.
func (e QueueEncoding) String() string {
	switch e {
	case UTF8:
		return "UTF8"
	case Base64:
		return "Base64"
	}
	return fmt.Sprintf("QueueEncoding(%d)", int(e))
}

// AppLease configures the lease of the primary app. If several apps share a hub, only the workers
// of the app that holds the lease read the control queues. All workers of an app hold the lease
// together.
type AppLease struct {
	// Disabled makes this worker read the queues without the lease.
	Disabled bool
	// AppName identifies the app. Default: the variable WEBSITE_SITE_NAME, or else DTFX_APP_NAME,
	// or else empty, which is the same name for all apps outside of Azure.
	AppName string
	// Interval is the duration of the lease unless it is renewed. Default 60 s; 15 to 60 whole
	// seconds.
	Interval time.Duration
	// RenewInterval is the time between two renewals. Default 25 s; less than Interval.
	RenewInterval time.Duration
	// AcquireInterval is the time between two attempts of a secondary app to acquire the lease.
	// Default 5 minutes; at most 24 hours.
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

// JumpStart makes clients record each start in a separate table before they send it, like the
// Durable Task Framework on Service Bus. A worker reads the records of its partitions and sends a
// start again if it has not arrived. That happens if the client died or the storage rejected the
// message. A start costs three additional storage operations. Each partition costs one query per
// Interval.
type JumpStart struct {
	// Enabled enables JumpStart for this client and this worker.
	Enabled bool
	// Timeout is the time after which a start that has not arrived is sent again. Default 10
	// minutes; 1 s to 24 hours.
	Timeout time.Duration
	// Interval is the time between two queries of a worker. Default 5 s; 10 ms to 1 hour.
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

// A PartitionManager is a way to assign control queues to workers. All workers of a hub must use
// the same one, because they see only leases of their own kind.
type PartitionManager int

const (
	// TablePartitions stores one row per partition in the hub's partitions table. It is the default
	// of the .NET extension 3.x.
	TablePartitions PartitionManager = iota
	// SafeBlobLeases uses two leased blobs per partition: one for the intended owner and one for
	// the current owner. It is the default of the .NET extension 2.x.
	SafeBlobLeases
	// LegacyBlobLeases uses one leased blob per partition. While a partition moves from or to a
	// .NET worker, both workers may read its queue for some seconds. Even then only one of them can
	// commit a checkpoint of an instance.
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

// A PartitionManagerError means that other workers run the hub with a different partition manager.
// Both sides would read all queues.
type PartitionManagerError struct {
	TaskHub    string
	Configured PartitionManager
	Active     PartitionManager
}

// Error names both partition managers.
func (e *PartitionManagerError) Error() string {
	return fmt.Sprintf("workers of task hub %s use the %s partition manager, but this app is configured to use the %s partition manager: "+
		"configure the same everywhere (useTablePartitionManagement, useLegacyPartitionManagement), or stop the other workers first",
		e.TaskHub, e.Active, e.Configured)
}
