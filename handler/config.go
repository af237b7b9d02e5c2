package handler

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
)

// Defaults of [Config] and [Load].
const (
	DefaultPort           = 8080
	DefaultRoutePrefix    = "api"
	DefaultConnectionName = "Storage"

	// defaultFlatHub is the default hub name for a host.json in the flat schema.
	defaultFlatHub = "DurableFunctionsHub"

	// DefaultShutdownTimeout is the default limit of a graceful shutdown.
	DefaultShutdownTimeout = 7 * time.Second

	// DefaultDrainTimeout is the default time for running activities and episodes to complete during a
	// shutdown. It leaves time to release leases even if the parent process has died, which halves the
	// shutdown timeout.
	DefaultDrainTimeout = 2500 * time.Millisecond
)

// Default limits of request bodies.
const (
	// DefaultMaxRequestBody is the largest request body in bytes, the limit of the Functions host
	// (azure-functions-host: FUNCTIONS_REQUEST_BODY_SIZE_LIMIT).
	DefaultMaxRequestBody = 100 << 20
	// DefaultMaxRequestBodies is the largest total size in bytes of the bodies of all requests in
	// flight.
	DefaultMaxRequestBodies = 256 << 20
)

// shortestKey is the recommended minimum length of a key in characters.
const shortestKey = 16

// Config configures a [Server]. The zero value is a standalone server on 127.0.0.1:8080 with an empty
// route prefix and no storage connection. [Load] reads the Config of a program from host.json and the
// environment.
type Config struct {
	// Address is the host and port to listen on. Default: "127.0.0.1:8080".
	Address string

	// BehindHost reports that the Functions host started this program. All requests then come through
	// the host, and the program stops when its parent process dies.
	BehindHost bool

	// Root is the folder of host.json. Relative paths of a local hub file start here.
	Root string

	// RoutePrefix is the path prefix of all routes, without a leading or trailing slash. Empty means no
	// prefix. [Load] sets it to "api" by default.
	RoutePrefix string

	// SiteHostname is the public host name of the app. URLs contain it if a request does not provide a
	// host name.
	SiteHostname string

	// ConnectionName is the name of the storage connection. URLs of the management API contain it.
	// Default: "Storage".
	ConnectionName string

	// TrackingStoreConnectionName is the name of the connection to a separate account for the hub's
	// tables and blobs. Empty means that they are in the account of the queues.
	TrackingStoreConnectionName string

	// Connection is the resolved storage connection of the hub.
	Connection azurestorage.Connection

	// Storage configures the task hub in Azure Storage. Worker configures the worker that runs its functions.
	// A Storage or Worker without a Logger uses the Logger below.
	Storage azurestorage.Config
	Worker  durable.Config

	// StorageType selects the store of the hub: Azure Storage (Connection, Storage), a local file
	// (Embedded), or partition logs (Connection, PartitionLog). Storage.TaskHub names the hub in all
	// three. A PartitionLog without a DrainTimeout, WorkerID, MeterProvider or Transport uses the value of
	// Storage; its Logger is always Storage's.
	StorageType  StorageType
	Embedded     EmbeddedConfig
	PartitionLog partitionlog.Config

	// EventGrid configures the publication of status changes to an Event Grid topic.
	EventGrid EventGridConfig

	// Overridable decides which existing instances a new start with the same ID may replace.
	Overridable durable.OverridableStates

	// Key is the key that callers of the management API must send in the parameter code or in the
	// header x-functions-key. It may be empty if the server listens only on this machine, or behind
	// the host, which checks its own keys.
	Key string

	// ReadKey is a second key that grants read-only access. It requires a Key and must differ from it.
	ReadKey string

	// TraceURL is the URL of a trace, to which the console links. It must start with http or https;
	// {traceId} and {spanId} are replaced. Empty means no links to traces.
	TraceURL string

	// UseForwardedHost makes a standalone server take the origin of URLs from the headers
	// X-Forwarded-Host and X-Forwarded-Proto. Set it only behind a proxy that sets them.
	UseForwardedHost bool

	// MaxRequestBody is the largest request body in bytes, [DefaultMaxRequestBody] by default. A larger
	// body gets status 413. MaxRequestBodies is the largest total size of the bodies of all requests in
	// flight, [DefaultMaxRequestBodies] by default and at least MaxRequestBody. A request above it gets
	// status 503.
	MaxRequestBody, MaxRequestBodies int64

	// Provider stores the hub instead of the store that StorageType selects, if not nil.
	Provider provider.Provider

	// FunctionTimeout is the host's time limit of an invocation, after which the host kills the program. A
	// function with a [Trigger] is stopped shortly before that. Behind the host, zero means its default: 5
	// minutes on the Consumption plan, otherwise 30 minutes. A negative value means that the host has no
	// limit; in a standalone server, zero means the same. The limit of a function is then
	// [DefaultInvocationTimeout].
	FunctionTimeout time.Duration

	// ShutdownTimeout limits a graceful shutdown. Default: 7 s. If the parent process has died, half of
	// it applies.
	ShutdownTimeout time.Duration

	// LogLevel is the lowest level that [Main] logs.
	LogLevel slog.Level

	// LogJSON makes [Main] write its log as JSON, one object per line, instead of text.
	LogJSON bool

	// Logger is the server's logger. Default: [slog.Default].
	Logger *slog.Logger

	// Notices are remarks on the configuration, each a sentence. The server logs them at start.
	Notices []string

	// Problem describes the errors in the configuration. If it is not nil, the server answers every request
	// with status 503 and this text.
	Problem error

	// plan is the hosting plan, if [Load] detected it.
	plan settings.Plan

	// forwards is the value of enableForwardingHttpRequest (azure-functions-host:
	// Workers/Http/DefaultHttpWorkerService.cs).
	forwards bool

	// onDevMachine reports that the host is `func start` of Core Tools.
	onDevMachine bool

	// metrics serves the metrics, or is nil.
	metrics http.Handler

	// sources maps the full path of each setting to its source. It is nil if the program created the
	// Config itself.
	sources map[string]string
}

// WithDefaults returns a copy of c in which zero fields have their default values.
func (c Config) WithDefaults() Config {
	if c.Address == "" {
		c.Address = net.JoinHostPort("127.0.0.1", strconv.Itoa(DefaultPort))
	}
	if c.ConnectionName == "" {
		c.ConnectionName = DefaultConnectionName
	}
	if c.Storage.TaskHub == "" {
		c.Storage.TaskHub = azurestorage.DefaultTaskHub
	}
	c.MaxRequestBody = cmp.Or(c.MaxRequestBody, DefaultMaxRequestBody)
	c.MaxRequestBodies = cmp.Or(c.MaxRequestBodies, DefaultMaxRequestBodies)
	if c.ShutdownTimeout == 0 {
		c.ShutdownTimeout = DefaultShutdownTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Storage.Logger == nil {
		c.Storage.Logger = c.Logger
	}
	if c.Worker.Logger == nil {
		c.Worker.Logger = c.Logger
	}
	return c
}

// withMetrics returns a copy of c whose metrics go to page, unless page is nil.
func (c Config) withMetrics(page MetricsPage) Config {
	switch {
	case page == nil:
		return c
	case c.BehindHost:
		c.Notices = append(slices.Clone(c.Notices), "The app serves no metrics at "+management.MetricsPath+
			" behind the Functions host, where a request reaches any one of the processes. Export them over OTLP instead.")
		return c
	case c.Worker.Metrics.Provider != nil:
		c.Notices = append(slices.Clone(c.Notices), "The app has two receivers of metrics and sends them only to "+management.MetricsPath+
			". Set OTEL_METRICS_EXPORTER=none to turn off the other one, or remove Metrics from handler.App.")
	}
	c.metrics, c.Worker.Metrics.Provider, c.Storage.MeterProvider, c.PartitionLog.MeterProvider = page, page, page, page
	return c
}

// checkExposure returns an error if other machines can reach the server and it has no key, or if a read key
// does not restrict anything.
func (c Config) checkExposure() error {
	if c.ReadKey != "" && (c.Key == "" || c.Key == c.ReadKey) {
		return errors.New("DURABLE_READ_KEY requires a different DURABLE_KEY: set DURABLE_KEY, too")
	}
	if c.BehindHost || c.Key != "" || web.IsLoopback(c.Address) {
		return nil
	}
	callers := "the management API"
	if c.metrics != nil {
		callers += " and of " + management.MetricsPath
	}
	return fmt.Errorf("other machines can reach the address %s: set DURABLE_KEY, the key for callers of %s", c.Address, callers)
}

// withoutSecrets returns a copy of c that masks secrets in its problem, its notices and its logs.
func (c Config) withoutSecrets() Config {
	c.Problem = secrets.Error(c.Problem)
	c.Notices = slices.Clone(c.Notices)
	for i, notice := range c.Notices {
		c.Notices[i] = secrets.Mask(notice)
	}
	c.Logger, c.Storage.Logger, c.Worker.Logger = secrets.Logger(c.Logger), secrets.Logger(c.Storage.Logger), secrets.Logger(c.Worker.Logger)
	return c
}

// effective returns the settings with their effective values, with secrets masked.
func (c Config) effective() []settings.EffectiveSetting {
	c = c.WithDefaults()
	c.Worker, c.PartitionLog, c.Storage = c.Worker.WithDefaults(), c.partitionLogConfig().WithDefaults(), c.Storage.WithDefaults()
	return settings.Effective(settingRows(), &c, c.sources)
}

// isLocalOnly reports whether the app needs no key because only this machine should call it. See
// [web.Config].
func (c Config) isLocalOnly() bool {
	if c.BehindHost {
		return c.onDevMachine
	}
	return c.Key == ""
}

// scaling returns the values that determine the recommended number of workers.
func (c Config) scaling() (maxActivities, maxOrchestrators int, polling time.Duration) {
	worker := c.Worker.WithDefaults()
	polling = c.Storage.WithDefaults().MaxQueuePollingInterval
	if c.StorageType == PartitionLog {
		polling = c.partitionLogConfig().WithDefaults().MaxPollingInterval
	}
	return worker.MaxConcurrentActivities, worker.MaxConcurrentOrchestrators, polling
}

// mode returns how the program was started, for the log.
func (c Config) mode() string {
	if c.BehindHost {
		return "Functions host"
	}
	return "standalone"
}

// report returns the answer to GET configuration.
func (c Config) report() management.Configuration {
	payload := management.Configuration{
		Mode: c.mode(), Plan: c.plan.String(), Address: secrets.Mask(c.Address), AppRoot: secrets.Mask(c.Root), LogLevel: strings.ToLower(c.LogLevel.String()),
		Key: maskedKey(c.Key), ReadKey: maskedKey(c.ReadKey), Settings: c.effective(), Notices: append([]string{}, c.Notices...), Problems: []string{},
	}
	if c.Problem != nil {
		payload.Problems = strings.Split(c.Problem.Error(), "\n")
	}
	return payload
}

// maskedKey returns a masked key, or "none".
func maskedKey(key string) string {
	if key == "" {
		return "none"
	}
	return "***"
}

// servesConsole reports whether the app serves the web console. On Azure anyone can call the console's
// function, so the app must have a key.
func (c Config) servesConsole() bool { return !c.BehindHost || c.onDevMachine || c.Key != "" }

// hubFile returns the path of the hub's local file.
func (c Config) hubFile() string {
	path := c.Embedded.Path
	if path == "" {
		path = DefaultHubFile(c.Storage.TaskHub)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.Root, path)
	}
	return path
}

// crashFile returns the path of the file that records crashes of this process. For a hub in a local
// file it is beside that file. It returns "" if no suitable folder exists.
func (c Config) crashFile() string {
	if c.StorageType == Embedded {
		return c.hubFile() + ".crashes"
	}
	machine, err := os.Hostname()
	if err != nil {
		return ""
	}
	folder, err := os.UserCacheDir() // other users could write to a folder for temporary files
	if err != nil {
		return ""
	}
	folder = filepath.Join(folder, "durablefunctions")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return ""
	}
	return filepath.Join(folder, c.Storage.TaskHub+"."+machine+".crashes") // several machines may share the folder
}

// withTrackingStore adds the separate account for tables and blobs to connection, if one is configured
// (WebJobs.Extensions.DurableTask/AzureStorageDurabilityProviderFactory.cs,
// GetAzureStorageOrchestrationServiceSettings).
func (c Config) withTrackingStore(connection azurestorage.Connection, vars settings.Variables) (azurestorage.Connection, error) {
	if c.TrackingStoreConnectionName == "" {
		return connection, nil
	}
	tracking, err := azurestorage.ResolveConnection(c.TrackingStoreConnectionName, vars.Connection)
	if err != nil {
		return azurestorage.Connection{}, fmt.Errorf("%s: %w", trackingConnectionPath, err)
	}
	return connection.WithTrackingStore(tracking), nil
}

// storageNotice describes a hub in a local file and how to move it to Azure Storage. It returns "" for
// other hubs.
func (c Config) storageNotice() string {
	if c.StorageType != Embedded || c.Provider != nil {
		return ""
	}
	mode := "every acknowledged write is on the disk"
	if c.Embedded.Relaxed {
		mode = "relaxed: a machine crash can lose the last moments"
	}
	return fmt.Sprintf("The task hub is in the local file %s (%s). To keep it in Azure Storage, set the connection AzureWebJobsStorage; "+
		"`hub copy embedded azurestorage` copies the content of the file there.", c.hubFile(), mode)
}

// hubLog returns log with the name of the task hub.
func (c Config) hubLog(log *slog.Logger) *slog.Logger { return log.With("taskHub", c.Storage.TaskHub) }

// embeddedConfig returns the configuration of a hub in a local file.
func (c Config) embeddedConfig() embedded.Config {
	return embedded.Config{Relaxed: c.Embedded.Relaxed, AllowNetworkFile: c.Embedded.AllowNetworkFile, DrainTimeout: c.Storage.DrainTimeout, Logger: c.Storage.Logger, MeterProvider: c.Storage.MeterProvider}
}

// partitionLogConfig returns the configuration of a hub in partition logs.
func (c Config) partitionLogConfig() partitionlog.Config {
	cfg, s := c.PartitionLog, c.Storage
	cfg.TaskHub, cfg.Logger = s.TaskHub, s.Logger
	cfg.DrainTimeout, cfg.WorkerID = cmp.Or(cfg.DrainTimeout, s.DrainTimeout), cmp.Or(cfg.WorkerID, s.WorkerID)
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = s.MeterProvider
	}
	if cfg.Transport == nil {
		cfg.Transport = s.Transport
	}
	return cfg
}

// hostLimit returns the host's time limit of an invocation, or 0 for no limit.
func (c Config) hostLimit() time.Duration {
	switch {
	case c.FunctionTimeout > 0:
		return c.FunctionTimeout
	case c.FunctionTimeout < 0 || !c.BehindHost:
		return 0
	case c.plan == settings.PlanConsumption:
		return 5 * time.Minute
	}
	return 30 * time.Minute
}

// functionTimeoutText returns the host's time limit in the format of host.json.
func (c Config) functionTimeoutText() string {
	c.BehindHost = true
	if limit := c.hostLimit(); limit > 0 {
		return settings.FormatTimeSpan(limit)
	}
	return "-1"
}

// timeLimitOf returns the time limit of a run of t: its Timeout or the default. It is always less than the
// host's limit, so that the app can still answer.
func (c Config) timeLimitOf(t Trigger) time.Duration {
	limit := t.function.Timeout
	if limit == 0 {
		limit = DefaultInvocationTimeout
	}
	if most := c.hostLimit(); most > 0 {
		limit = min(limit, most-min(most/5, 10*time.Second))
	}
	return limit
}

// A StorageType is a type of store for the task hub.
type StorageType int

// The storage types.
const (
	AzureStorage StorageType = iota // queues, tables and blobs in an Azure Storage account, in the layout of .NET
	Embedded                        // one local file
	PartitionLog                    // partition logs in an Azure Storage account
)

// storageTypes holds the names of the storage types in host.json, indexed by StorageType.
var storageTypes = []string{"AzureStorage", "embedded", "partitionLog"}

// String returns the name of t in host.json.
func (t StorageType) String() string {
	if t < 0 || int(t) >= len(storageTypes) {
		return fmt.Sprintf("StorageType(%d)", int(t))
	}
	return storageTypes[t]
}

// An EmbeddedConfig configures a hub in a local file.
type EmbeddedConfig struct {
	// Path is the path of the file. A relative path starts at [Config.Root]. Default: [DefaultHubFile].
	Path string

	// Relaxed acknowledges writes before they are on the disk. A crash of the machine can lose the most
	// recent writes. A crash of the process alone loses none. See [embedded.Config].
	Relaxed bool

	// AllowNetworkFile allows a file on a network file system. See [embedded.Config].
	AllowNetworkFile bool
}

// DefaultHubFile returns the default file name for the hub with the given name. The file is directly in
// the app's root folder: the Functions host restarts an app when a folder appears there
// (azure-functions-host: WebHost/FileMonitoringService.cs, OnFileChanged).
func DefaultHubFile(hub string) string { return ".durable-" + hub + ".db" }

// chooseStorage resolves the storage connection, or selects a local file. It selects a local file if no
// connection is set and the settings name neither a connection nor a storage type. On Azure, where
// local disks are temporary, a missing connection is an error.
func chooseStorage(cfg *Config, vars settings.Variables) error {
	if cfg.StorageType == Embedded {
		return nil
	}
	connection, err := azurestorage.ResolveConnection(cfg.ConnectionName, vars.Connection)
	if err == nil && cfg.StorageType == PartitionLog {
		cfg.Connection = connection
		return nil
	}
	if err == nil {
		cfg.Connection, err = cfg.withTrackingStore(connection, vars)
		return err
	}
	_, chosen := cfg.sources[storageTypePath]
	_, onAzure := vars.Lookup("WEBSITE_INSTANCE_ID")
	if errors.Is(err, azurestorage.ErrNoConnection) && !chosen && !onAzure && settings.SameConnection(cfg.ConnectionName, DefaultConnectionName) &&
		cfg.TrackingStoreConnectionName == "" {
		cfg.StorageType = Embedded
		return nil
	}
	return fmt.Errorf("%s: %w", connectionNamePath, err)
}

// hubInAccount returns a description of a hub in a storage account.
func (c Config) hubInAccount() string {
	return fmt.Sprintf("task hub %s of connection %s", c.Storage.TaskHub, c.ConnectionName)
}
