package handler

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
)

// Load creates a Config from defaults, host.json and environment variables. Environment variables
// override host.json. In a standalone program it first sets environment variables from
// local.settings.json, except those that are set already.
//
// The returned Config describes all invalid settings in Problem, one per line. Load returns an error
// only if the port to listen on is not valid.
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

// configure creates a Config from env, the settings found in host.json, and environ. It has no side
// effects.
func configure(env settings.Environment, found settings.Settings, environ []string) Config {
	found.Override(environ)
	vars := settings.NewVariables(environ)
	cfg := Config{
		BehindHost:   env.BehindHost(),
		RoutePrefix:  DefaultRoutePrefix,
		SiteHostname: env.Hostname,
		Key:          env.Key,
		ReadKey:      env.ReadKey,
		TraceURL:     env.TraceURL,
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
		r.Problem(fmt.Errorf("%s is not set, and the app runs in slot %q: each slot needs its own task hub", hubNamePath, env.SlotName))
	}
	if r.Problems() == nil {
		r.Problem(durableProblem(&cfg, vars))
	}
	if s := cfg.Storage.WithDefaults(); s.ControlQueueBatchSize > s.ControlQueueBufferThreshold {
		r.Notice("controlQueueBatchSize is %d; it has no effect above controlQueueBufferThreshold, which is %d.",
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
	if u := env.TraceURL; u != "" && !strings.HasPrefix(u, "https://") && !strings.HasPrefix(u, "http://") {
		cfg.TraceURL = ""
		r.Notice("DURABLE_TRACE_URL is %q; want a URL such as https://traces.example/trace/{traceId}. The console has no links to traces.", u)
	}
	for _, key := range [][2]string{{"DURABLE_KEY", env.Key}, {"DURABLE_READ_KEY", env.ReadKey}} {
		if n := len(key[1]); n > 0 && n < shortestKey {
			r.Notice("The key %s has %d characters; use at least %d random characters.", key[0], n, shortestKey)
		}
	}
	cfg.Notices, cfg.Problem = r.Notices(), r.Problems()
	return cfg
}

// durableProblem validates the settings of the engine and resolves the storage connection.
func durableProblem(cfg *Config, vars settings.Variables) error {
	if err := cfg.Storage.Validate(); err != nil {
		return fmt.Errorf("%s: %w", settings.DurableTaskPath, err)
	}
	if err := cfg.partitionLogConfig().Validate(); err != nil {
		return fmt.Errorf("%s: %w", settings.DurableTaskPath, err)
	}
	if err := cfg.Worker.Validate(); err != nil {
		return fmt.Errorf("%s: %w", settings.DurableTaskPath, err)
	}
	return errors.Join(chooseStorage(cfg, vars), cfg.EventGrid.findTopicKey(vars, cfg.sources[topicEndpointPath]))
}

// defaultTaskHub returns the default name of the hub
// (WebJobs.Extensions.DurableTask/Options/DurableTaskOptions.cs, ResolveDefaultHubName).
func defaultTaskHub(env settings.Environment) string {
	if env.SiteName == "" {
		return azurestorage.DefaultTaskHub
	}
	return azurestorage.SanitizeHubName(env.SiteName)
}
