package handler

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
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
)

// The defaults of [Config] and of what [Load] reads.
const (
	DefaultPort           = 8080
	DefaultRoutePrefix    = "api"
	DefaultConnectionName = "Storage"

	// defaultFlatHub is the hub of a host.json in the flat shape that does not
	// name one.
	defaultFlatHub = "DurableFunctionsHub"

	// DefaultShutdownTimeout bounds an orderly stop.
	DefaultShutdownTimeout = 7 * time.Second

	// DefaultDrainTimeout is how long running activities and episodes may go on
	// when the program stops. It leaves time for releasing leases before an
	// orphan must be gone.
	DefaultDrainTimeout = 2500 * time.Millisecond
)

// The defaults of what bodies of requests may take up.
const (
	// DefaultMaxRequestBody is what the host lets through
	// (azure-functions-host: FUNCTIONS_REQUEST_BODY_SIZE_LIMIT).
	DefaultMaxRequestBody = 100 << 20
	// DefaultMaxRequestBodies is how much all bodies have that are being answered.
	DefaultMaxRequestBodies = 256 << 20
)

// shortestKey is how many characters a key should have at least.
const shortestKey = 16

// Config configures a [Server]. The zero value is a standalone server on 127.0.0.1:8080
// without a route prefix and without storage. [Load] makes the Config of a program that a
// host started.
type Config struct {
	// Address is what to listen on, host and port. Default "127.0.0.1:8080".
	Address string

	// BehindHost says that the Functions host started this program: requests
	// come through it, and the program ends when its parent does.
	BehindHost bool

	// Root is the folder of host.json. It is only reported.
	Root string

	// RoutePrefix is the first segment of all routes, "api" by default when
	// loaded, without slashes around it. Empty means that there is none.
	RoutePrefix string

	// SiteHostname is the public host name of the app, for URLs, if requests do
	// not tell it.
	SiteHostname string

	// ConnectionName is the name of the storage connection, as it stands in
	// URLs. Default "Storage".
	ConnectionName string

	// TrackingStoreConnectionName is the name of the connection to the account
	// with the hub's tables and blobs, if that is another one.
	TrackingStoreConnectionName string

	// Connection says where the hub's storage is.
	Connection azurestorage.Connection

	// Storage configures the task hub, Worker what runs its functions. Their
	// Logger fields are filled with Logger if they are nil.
	Storage azurestorage.Config
	Worker  durable.Config

	// StorageType says what stores the hub: Azure Storage as Connection and
	// Storage say, a local file as Embedded says, or logs in Azure Storage as Connection
	// and PartitionLog say. The task hub's name is in Storage in any case, and PartitionLog
	// has from there what else it does not say.
	StorageType  StorageType
	Embedded     EmbeddedConfig
	PartitionLog partitionlog.Config

	// EventGrid configures the publication of status changes to an Event Grid topic.
	EventGrid EventGridConfig

	// Overridable says which instances a start with their ID may replace.
	Overridable durable.OverridableStates

	// Key is the key that callers of the management API must send, as the parameter code
	// or in the header x-functions-key. It may be empty, which means that they need none,
	// if only this machine can reach the server, or behind the host, which checks keys.
	Key string

	// ReadKey is a second key, of callers that may only read. It needs a Key, and must be
	// another one.
	ReadKey string

	// TraceURL is the address of a trace, for the console: {traceId} and {spanId} in it are
	// replaced. It must be http or https. Empty: the console has no links to traces.
	TraceURL string

	// UseForwardedHost says that standalone, too, X-Forwarded-Host and
	// X-Forwarded-Proto tell the origin of URLs. Set it only if a proxy in front
	// of the app sets them.
	UseForwardedHost bool

	// MaxRequestBody is how many bytes the body of a request may have, default
	// [DefaultMaxRequestBody]; a longer one gets status 413. MaxRequestBodies is how
	// many the bodies of all requests may have that are being answered, default
	// [DefaultMaxRequestBodies], and at least MaxRequestBody; beyond that there is
	// status 503.
	MaxRequestBody, MaxRequestBodies int64

	// Provider stores the hub. Nil means what StorageType says.
	Provider provider.Provider

	// FunctionTimeout is how long the host lets an invocation run before it kills
	// the program; functions with a [Trigger] are stopped before that. Zero is the
	// host's default, 30 minutes or, on the Consumption plan, 5. Negative means
	// without end; then a function has [DefaultInvocationTimeout].
	FunctionTimeout time.Duration

	// ShutdownTimeout bounds an orderly stop. Default 7 s. When the parent has
	// died it is half as long.
	ShutdownTimeout time.Duration

	// LogLevel is what [Main] logs from.
	LogLevel slog.Level

	// LogJSON says that [Main] logs JSON, an object a line, and not text.
	LogJSON bool

	// Logger receives the server's log. Default [slog.Default].
	Logger *slog.Logger

	// Notices are remarks on the configuration, each a sentence, which the
	// server logs when it starts.
	Notices []string

	// Problem says what is wrong with the configuration. If it is not nil, the server
	// answers every call with status 503 and this reason.
	Problem error

	// plan is the hosting plan, if Load found it out.
	plan settings.Plan

	// forwards says that enableForwardingHttpRequest is true
	// (azure-functions-host: Workers/Http/DefaultHttpWorkerService.cs).
	forwards bool

	// onDevMachine says that the host is Core Tools' `func start`.
	onDevMachine bool

	// sources says where settings come from, by their full paths. Nil means that
	// the program made the Config itself.
	sources map[string]string
}

// WithDefaults returns a copy of c in which fields that are zero have their
// defaults.
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

// withoutSecrets returns a copy of c in whose problem, notices and logs secrets are
// masked.
func (c Config) withoutSecrets() Config {
	c.Problem = secrets.Error(c.Problem)
	c.Notices = slices.Clone(c.Notices)
	for i, notice := range c.Notices {
		c.Notices[i] = secrets.Mask(notice)
	}
	c.Logger, c.Storage.Logger, c.Worker.Logger = secrets.Logger(c.Logger), secrets.Logger(c.Storage.Logger), secrets.Logger(c.Worker.Logger)
	return c
}

// effective returns the settings that have an effect, with secrets masked.
func (c Config) effective() []settings.EffectiveSetting {
	c = c.WithDefaults()
	c.Worker, c.PartitionLog, c.Storage = c.Worker.WithDefaults(), c.partitionLogConfig().WithDefaults(), c.Storage.WithDefaults()
	return settings.Effective(settingRows(), &c, c.sources)
}

// isForThisMachine reports whether the app needs no key because only this machine should
// call it.
func (c Config) isForThisMachine() bool {
	if c.BehindHost {
		return c.onDevMachine
	}
	return c.Key == ""
}

// scaling returns what the number of workers depends on.
func (c Config) scaling() (maxActivities, maxOrchestrators int, polling time.Duration) {
	worker := c.Worker.WithDefaults()
	polling = c.Storage.WithDefaults().MaxQueuePollingInterval
	if c.StorageType == PartitionLog {
		polling = c.partitionLogConfig().WithDefaults().MaxPollingInterval
	}
	return worker.MaxConcurrentActivities, worker.MaxConcurrentOrchestrators, polling
}

// mode says whether the Functions host started the program.
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
		Key: keyIn(c.Key), ReadKey: keyIn(c.ReadKey), Settings: c.effective(), Notices: append([]string{}, c.Notices...), Problems: []string{},
	}
	if c.Problem != nil {
		payload.Problems = strings.Split(c.Problem.Error(), "\n")
	}
	return payload
}

// keyIn says whether there is a key.
func keyIn(key string) string {
	if key == "" {
		return "none"
	}
	return "***"
}

// servesConsole reports whether the app has a web console. Azure lets everybody call it, so
// that it needs a key there.
func (c Config) servesConsole() bool { return !c.BehindHost || c.onDevMachine || c.Key != "" }

// hubFile returns the path of the hub's file.
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

// crashFile returns the path of the file that counts crashes of this process, beside the
// hub's file if there is one, "" if there is no folder for it.
func (c Config) crashFile() string {
	if c.StorageType == Embedded {
		return c.hubFile() + ".crashes"
	}
	machine, err := os.Hostname()
	if err != nil {
		return ""
	}
	folder, err := os.UserCacheDir() // others could write to a folder for temporary files
	if err != nil {
		return ""
	}
	folder = filepath.Join(folder, "durablefunctions")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return ""
	}
	return filepath.Join(folder, c.Storage.TaskHub+"."+machine+".crashes") // machines may share the folder
}

// withTrackingStore adds the account for tables and blobs, if the hub has one
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

// storageNotice says where the hub is, and how it could be elsewhere.
func (c Config) storageNotice() string {
	if c.StorageType != Embedded || c.Provider != nil {
		return ""
	}
	mode := "every acknowledged write is on the disk"
	if c.Embedded.Relaxed {
		mode = "relaxed: the death of the machine takes the last moments away"
	}
	return fmt.Sprintf("The task hub is in the local file %s (%s). To keep it in Azure Storage, set the connection AzureWebJobsStorage; "+
		"`hub copy embedded azurestorage` takes what is in the file along.", c.hubFile(), mode)
}

// embeddedConfig returns the configuration of the hub in a local file.
func (c Config) embeddedConfig() embedded.Config {
	return embedded.Config{Relaxed: c.Embedded.Relaxed, AllowNetworkFile: c.Embedded.AllowNetworkFile, DrainTimeout: c.Storage.DrainTimeout, Logger: c.Storage.Logger}
}

// partitionLogConfig returns the configuration of the hub in partition logs.
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

// hostLimit returns how long the host lets an invocation run, 0 if without end.
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

// functionTimeoutText returns the host's limit as host.json has it.
func (c Config) functionTimeoutText() string {
	c.BehindHost = true
	if limit := c.hostLimit(); limit > 0 {
		return settings.FormatTimeSpan(limit)
	}
	return "-1"
}

// limitOf returns how long a run of a function may take: its Timeout, and always less than
// the host's limit, so that the answer comes first.
func (c Config) limitOf(t Trigger) time.Duration {
	limit := t.function.Timeout
	if limit == 0 {
		limit = DefaultInvocationTimeout
	}
	if most := c.hostLimit(); most > 0 {
		limit = min(limit, most-min(most/5, 10*time.Second))
	}
	return limit
}

// A StorageType says what stores the task hub.
type StorageType int

// The storage types.
const (
	AzureStorage StorageType = iota // an Azure Storage account
	Embedded                        // one local file
	PartitionLog                    // logs in an Azure Storage account
)

// storageTypes are the names of storage types in host.json, by their values.
var storageTypes = []string{"AzureStorage", "embedded", "partitionLog"}

// String returns the name of t in host.json.
func (t StorageType) String() string {
	if t < 0 || int(t) >= len(storageTypes) {
		return fmt.Sprintf("StorageType(%d)", int(t))
	}
	return storageTypes[t]
}

// An EmbeddedConfig says where and how a hub in a local file is kept.
type EmbeddedConfig struct {
	// Path is the name of the file; a relative one is below the Config's Root.
	// Default: [DefaultHubFile] of the hub.
	Path string

	// Relaxed lets what was acknowledged in the last moments be lost when the
	// machine dies, though not when the process does. See [embedded.Config].
	Relaxed bool

	// AllowNetworkFile opens a file on a network file system. See [embedded.Config].
	AllowNetworkFile bool
}

// DefaultHubFile returns the name of the file of a hub for which none was given.
// It is a file right in the app's root: the Functions host restarts an app in
// whose root a folder appears
// (azure-functions-host: WebHost/FileMonitoringService.cs, OnFileChanged).
func DefaultHubFile(hub string) string { return ".durable-" + hub + ".db" }

// chooseStorage decides what stores the hub, and finds the connection of a storage account.
// A hub is in a local file if the settings say so, or if there is no connection and the
// settings name none. On Azure, where disks do not last, a missing connection is an error.
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

// hubInAccount names a hub in a storage account.
func (c Config) hubInAccount() string {
	return fmt.Sprintf("task hub %s of connection %s", c.Storage.TaskHub, c.ConnectionName)
}
