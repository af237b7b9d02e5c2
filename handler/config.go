package handler

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
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

// Config says how a [Server] works. The zero value works: a standalone server
// on 127.0.0.1:8080, with routes at the root, that has no storage and says so.
// [Load] makes the one that a program started by a host should have.
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
	// Storage say, or a local file as Embedded says.
	StorageType StorageType
	Embedded    EmbeddedConfig

	// EventGrid says whom to tell of orchestrations that begin and end.
	EventGrid EventGridConfig

	// Overridable says which instances a start with their ID may replace.
	Overridable durable.OverridableStates

	// Key is what callers of the management API must have, as the parameter code
	// or in the header x-functions-key. Empty means that they need none, which is
	// only for a server that nobody but this machine can reach, or behind the
	// host, which asks for keys itself.
	Key string

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

	// Problem is what is wrong with the configuration. If it is not nil the
	// server answers every call with status 503 and this reason.
	Problem error

	// plan is the hosting plan, as far as it was looked at.
	plan settings.Plan

	// forwards says that the host passes requests on as they come, if it does not
	// proxy them (azure-functions-host: Workers/Http/DefaultHttpWorkerService.cs).
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

// withoutSecrets returns a copy of c whose problem, notices and logs tell no
// secrets: whatever is said of a configuration is said of what this returns.
func (c Config) withoutSecrets() Config {
	c.Problem = secrets.Error(c.Problem)
	c.Notices = slices.Clone(c.Notices)
	for i, notice := range c.Notices {
		c.Notices[i] = secrets.Mask(notice)
	}
	c.Logger, c.Storage.Logger, c.Worker.Logger = secrets.Logger(c.Logger), secrets.Logger(c.Storage.Logger), secrets.Logger(c.Worker.Logger)
	return c
}

// Load makes a Config from defaults, then host.json, then the environment;
// each overrides only what it names. Standalone, it first sets the environment
// variables that local.settings.json has and the environment lacks.
//
// What is wrong with the settings is the Config's Problem: all of it, a line
// each. An error means that not even the port to listen on is known.
func Load() (Config, error) {
	env, err := settings.ReadEnvironment()
	if err != nil {
		return Config{}, err
	}
	variable := func(name string) string { value, _ := settings.NewVariables(os.Environ()).Lookup(name); return value }
	root := settings.FindAppRoot(env.AppRoot, variable("AzureWebJobsScriptRoot"))
	var problems []error
	if !env.BehindHost() {
		local, err := settings.ReadLocalSettings(root)
		if err == nil {
			err = settings.ApplyLocalSettings(local)
		}
		if err != nil {
			problems = append(problems, err)
		}
		if env, err = settings.ReadEnvironment(); err != nil {
			return Config{}, err
		}
	}
	port, err := env.ListenPort(DefaultPort)
	if err != nil {
		return Config{}, err
	}
	found, err := readHostJSON(root)
	notFound := errors.Is(err, fs.ErrNotExist)
	if err != nil && !notFound {
		problems = append(problems, err)
	}
	cfg := configure(env, found, os.Environ())
	cfg.Address = net.JoinHostPort(env.ListenHost(), strconv.Itoa(port))
	cfg.Root = root
	if notFound {
		cfg.Notices = append(cfg.Notices, fmt.Sprintf("There is no host.json in %s or above it; defaults are used.", root))
	}
	cfg.Problem = secrets.Error(errors.Join(append(problems, cfg.Problem)...))
	return cfg, nil
}

func readHostJSON(root string) (settings.Settings, error) {
	text, err := os.ReadFile(filepath.Join(root, settings.HostJSONFile))
	if err != nil {
		return settings.New(), err
	}
	return settings.ParseHostJSON(text)
}

// configure makes a Config of what was read. It does nothing but decide.
func configure(env settings.Environment, found settings.Settings, environ []string) Config {
	found.Override(environ)
	vars := settings.NewVariables(environ)
	cfg := Config{
		BehindHost:   env.BehindHost(),
		RoutePrefix:  DefaultRoutePrefix,
		SiteHostname: env.Hostname,
		Key:          env.Key,
		plan:         env.Plan(),
		Worker:       durable.Config{ShutdownTimeout: DefaultDrainTimeout},
		Storage:      azurestorage.Config{DrainTimeout: DefaultDrainTimeout},
	}.WithDefaults()
	cfg.Logger, cfg.Worker.Logger, cfg.Storage.Logger = nil, nil, nil
	cfg.Storage.TaskHub = defaultTaskHub(env)

	r := settings.NewReader[Config](found, vars, env.Plan())
	if _, flat := found.Lookup(settings.FlatPath); flat {
		if _, v2 := found.Lookup(settings.DurableTaskPath); !v2 {
			cfg.Storage.TaskHub = defaultFlatHub
		}
	}
	r.Read(settingRows(), &cfg)
	cfg.sources = r.Sources
	forwarding, given := found.Lookup(forwardingPath)
	cfg.forwards = given && forwarding.IsTrue()
	_, coreTools := vars.Lookup("FUNCTIONS_CORETOOLS_ENVIRONMENT")
	cfg.onDevMachine = cfg.BehindHost && coreTools
	if _, given := r.Sources[hubNamePath]; !given && env.SlotName != "" && !strings.EqualFold(env.SlotName, "Production") {
		r.Problem(fmt.Errorf("%s is not given, and the app runs in slot %q: each slot needs a task hub of its own", hubNamePath, env.SlotName))
	}
	if r.Problems() == nil {
		r.Problem(durableProblem(&cfg, vars))
	}
	if s := cfg.Storage.WithDefaults(); s.ControlQueueBatchSize > s.ControlQueueBufferThreshold {
		r.Notice("controlQueueBatchSize is %d, but no more messages are received at once than controlQueueBufferThreshold, which is %d.",
			s.ControlQueueBatchSize, s.ControlQueueBufferThreshold)
	}
	level, err := parseLogLevel(env.LogLevel)
	if err != nil {
		r.Notice("%v", err)
	}
	cfg.LogLevel = level
	if cfg.LogJSON, err = parseLogFormat(env.LogFormat); err != nil {
		r.Notice("%v", err)
	}
	if n := len(env.Key); n > 0 && n < shortestKey {
		r.Notice("The key DURABLE_KEY has %d characters; %d random ones or more cannot be guessed.", n, shortestKey)
	}
	cfg.Notices, cfg.Problem = r.Notices(), r.Problems()
	return cfg
}

// durableProblem resolves the connection and checks what the tables of
// settings cannot: values in relation to each other.
func durableProblem(cfg *Config, vars settings.Variables) error {
	if err := cfg.Storage.Validate(); err != nil {
		return fmt.Errorf("%s: %w", settings.DurableTaskPath, err)
	}
	if err := cfg.Worker.Validate(); err != nil {
		return fmt.Errorf("%s: %w", settings.DurableTaskPath, err)
	}
	return errors.Join(chooseStorage(cfg, vars), cfg.EventGrid.findTopicKey(vars, cfg.sources[topicEndpointPath]))
}

// defaultTaskHub is the name of a hub that was not given one
// (WebJobs.Extensions.DurableTask/Options/DurableTaskOptions.cs,
// ResolveDefaultHubName).
func defaultTaskHub(env settings.Environment) string {
	if env.SiteName == "" {
		return azurestorage.DefaultTaskHub
	}
	return azurestorage.SanitizeHubName(env.SiteName)
}

// effective returns what all settings that have an effect are. Secrets are masked.
func (c Config) effective() []settings.EffectiveSetting {
	c = c.WithDefaults()
	c.Worker, c.Storage = c.Worker.WithDefaults(), c.Storage.WithDefaults()
	return settings.Effective(settingRows(), &c, c.sources)
}

// isForThisMachine reports whether only who works on this machine should call the
// app, though it asks for no key.
func (c Config) isForThisMachine() bool {
	if c.BehindHost {
		return c.onDevMachine
	}
	return c.Key == ""
}

// scaling returns what the number of workers depends on.
func (c Config) scaling() (maxActivities, maxOrchestrators int, polling time.Duration) {
	worker := c.Worker.WithDefaults()
	return worker.MaxConcurrentActivities, worker.MaxConcurrentOrchestrators, c.Storage.WithDefaults().MaxQueuePollingInterval
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
		Key: "none", Settings: c.effective(), Notices: append([]string{}, c.Notices...), Problems: []string{},
	}
	if c.Key != "" {
		payload.Key = "***"
	}
	if c.Problem != nil {
		payload.Problems = strings.Split(c.Problem.Error(), "\n")
	}
	return payload
}
