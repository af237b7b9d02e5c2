package handler

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
)

// Rows and value types of the settings of a [Config].
type (
	settingRow  = settings.Row[Config]
	textValue   = settings.Text[Config]
	wholeValue  = settings.Integer[Config]
	boolValue   = settings.Bool[Config]
	choiceValue = settings.Choice[Config]
	spanValue   = settings.TimeSpan[Config]
	listValue   = settings.List[Config]
)

// Paths in host.json, in the spelling of the documentation.
const (
	versionPath            = "version"
	timeoutPath            = "functionTimeout"
	routePrefixPath        = "extensions.http.routePrefix"
	forwardingPath         = "customHandler.enableForwardingHttpRequest"
	storagePath            = settings.DurableTaskPath + ".storageProvider"
	hubNamePath            = settings.DurableTaskPath + ".hubName"
	connectionNamePath     = storagePath + ".connectionName"
	trackingConnectionPath = storagePath + ".trackingStoreConnectionName"
	storageTypePath        = storagePath + ".type"
)

// settingRows returns all settings in the order of the documentation.
func settingRows() []settingRow {
	var rows []settingRow
	for _, part := range [][]settingRow{
		hostRows, hubRows, concurrencyRows, versionRows, entityRows, sessionRows, storageRows, partitionRows, httpRows, tracingRows,
		notificationRows, otherRows,
	} {
		rows = append(rows, part...)
	}
	for i, row := range rows {
		if stores := storesOf(row.Path); stores != nil && row.NeverEffective == "" {
			rows[i].NoEffect = func(cfg *Config) string { return offInStore(cfg, stores) }
		}
	}
	return rows
}

// hostRows are the settings of the Functions host that this package reads, too.
var hostRows = []settingRow{
	{
		Path: versionPath, Absolute: true,
		Values: textValue{Words: "`2.0`", Mismatch: func(value string) string {
			if value != "2.0" {
				return `"2.0"`
			}
			return ""
		}},
		Default: "none", Get: func(*Config) any { return "2.0" },
		Description: "the format version of `host.json`",
	},
	{
		Path: timeoutPath, Absolute: true,
		Values: textValue{
			Words: "a time span of a second or more, or `-1` for no limit",
			Mismatch: func(value string) string {
				if _, ok := parseFunctionTimeout(value); ok {
					return ""
				}
				return "a time span of a second or more, such as 00:10:00, or -1"
			},
			Set: func(cfg *Config, value string) { cfg.FunctionTimeout, _ = parseFunctionTimeout(value) },
		},
		Default: "`00:30:00`, on the Consumption plan `00:05:00`, at most `00:10:00`",
		Get:     func(cfg *Config) any { return cfg.functionTimeoutText() },
		Description: "the longest time that the host lets an invocation run. Then it kills the program, and the engine in it. A function stops after " +
			"its `handler.Timeout`, by default 30 minutes. It stops at the latest 10 seconds before this limit. If the limit is less than " +
			"50 seconds, it stops at the latest after four fifths of the limit",
	},
	{
		Path: routePrefixPath, Absolute: true,
		Values: textValue{
			Words: "segments of letters, digits and `. _ ~ -`, or none",
			Mismatch: func(value string) string {
				if !isRoutePrefix(strings.Trim(value, "/")) {
					return "segments of letters, digits and . _ ~ -, other than . and .."
				}
				return ""
			},
			Set: func(cfg *Config, value string) { cfg.RoutePrefix = strings.Trim(value, "/") },
		},
		Default: "`api`", Get: func(cfg *Config) any { return cfg.RoutePrefix },
		Description: "the first path segments of all routes, including the management API",
	},
}

// hubRows are the general settings of the hub.
var hubRows = []settingRow{
	{
		Path: "hubName", FlatName: "hubName",
		Values: textValue{
			Resolved: true, Words: "3 to 45 letters and digits, the first a letter", Pattern: "^[A-Za-z][A-Za-z0-9]{2,44}$",
			Mismatch: func(value string) string {
				if azurestorage.ValidateHubName(value) == nil {
					return ""
				}
				return fmt.Sprintf("%d to %d letters and digits, the first a letter", azurestorage.MinHubNameLength, azurestorage.MaxHubNameLength)
			},
			Set: func(cfg *Config, value string) { cfg.Storage.TaskHub = value },
		},
		Default: "the letters and digits of `WEBSITE_SITE_NAME`, at most 45; without this variable `TestHubName`", Get: func(cfg *Config) any { return cfg.Storage.TaskHub },
		Description: "the task hub. The names of its queues, tables and containers start with it. A deployment slot must set it",
	},
	{
		Path: "overridableExistingInstanceStates",
		Values: choiceValue{Names: []string{"NonRunningStates", "AnyState"}, Set: func(cfg *Config, i int) {
			cfg.Overridable = []durable.OverridableStates{durable.NonRunningStates, durable.AnyState}[i]
		}},
		Default: "`NonRunningStates`",
		Get: func(cfg *Config) any {
			if cfg.Overridable == durable.AnyState {
				return "AnyState"
			}
			return "NonRunningStates"
		},
		Description: "whether a new start may replace an existing instance with the same ID: only if that instance has ended (`NonRunningStates`), " +
			"or always (`AnyState`)",
	},
	{
		Path:    "maxOrchestrationActions",
		Values:  wholeValue{Low: 1, High: 100_000_000, Set: func(cfg *Config, n int) { cfg.Worker.MaxOrchestrationActions = n }},
		Default: "100000", Get: func(cfg *Config) any { return cfg.Worker.MaxOrchestrationActions },
		Description: "the number of activities, timers, sub-orchestrations and events that an execution may schedule or send. It fails above that",
	},
	{
		Path: "unknownFunctionTimeout",
		Values: spanValue{Low: time.Second, High: 365 * 24 * time.Hour, Set: func(cfg *Config, d time.Duration) {
			cfg.Worker.UnknownFunctionTimeout = d
		}},
		Default: "`00:10:00`; in a local file the instance fails at once",
		Get: func(cfg *Config) any {
			if cfg.StorageType == Embedded {
				return cfg.Worker.UnknownFunctionTimeout
			}
			return cmp.Or(cfg.Worker.UnknownFunctionTimeout, durable.DefaultUnknownFunctionTimeout)
		},
		Description: "the longest time that an instance that has not started waits for a worker that has its function. Then it fails. Instances that have " +
			"started wait without limit; they can be terminated and suspended",
	},
	{
		Path:    "failUnknownFunctions",
		Values:  boolValue{Set: func(cfg *Config, b bool) { cfg.Worker.FailUnknownFunctions = b }},
		Default: "`false`", Get: func(cfg *Config) any { return cfg.Worker.FailUnknownFunctions },
		Description: "whether started instances and activities also fail after `unknownFunctionTimeout`. A wrong deployment then ends running instances",
	},
	{
		Path: "onNonDeterminism",
		Values: choiceValue{Names: []string{"fail", "hold"}, Set: func(cfg *Config, i int) {
			cfg.Worker.HoldNonDeterministic = i == 1
		}},
		Default: "`fail`",
		Get: func(cfg *Config) any {
			if cfg.Worker.HoldNonDeterministic {
				return "hold"
			}
			return "fail"
		},
		Description: "the reaction to an orchestrator that does not match the recorded history: the instance fails, or it waits for matching code " +
			"(`hold`). A waiting instance can be terminated and suspended. Not known to .NET",
	},
	{
		Path: "orchestratorStallTimeout",
		Values: spanValue{Low: time.Second, High: time.Hour, Set: func(cfg *Config, d time.Duration) {
			cfg.Worker.StallTimeout = d
		}},
		Default: "`00:00:30`",
		Get:     func(cfg *Config) any { return cmp.Or(cfg.Worker.StallTimeout, durable.DefaultStallTimeout) },
		Description: "the longest time that an orchestrator may run without a durable call. Then the app abandons it. Such code waits for something other than a durable task, or computes without end. " +
			"The app holds the instance back until it is suspended and resumed or the app restarts. Not known to .NET",
	},
	{
		Path:    "storeInputsInOrchestrationHistory",
		Values:  boolValue{Set: func(cfg *Config, b bool) { cfg.Worker.StoreInputs = b }},
		Default: "`false`", Get: func(cfg *Config) any { return cfg.Worker.StoreInputs },
		Description: "whether a history contains the inputs of activities and sub-orchestrations, for `showHistory=true`. By default only the " +
			"callee stores them",
	},
	{
		Path: "throwStatusExceptionsOnRaiseEvent", Values: boolValue{}, Default: "`true`",
		Description:    "refuses events to instances that are missing or have ended",
		NeverEffective: "such events are always refused",
	},
}

// concurrencyRows limit how much runs at the same time.
var concurrencyRows = []settingRow{
	{
		Path: "maxConcurrentActivityFunctions", FlatName: "maxConcurrentActivityFunctions",
		Values: wholeValue{Low: 1, High: 100_000, Set: func(cfg *Config, n int) {
			cfg.Worker.MaxConcurrentActivities, cfg.Storage.MaxConcurrentActivities = n, n
		}},
		Default: "10 per core", PlanDefaults: map[settings.Plan]string{settings.PlanConsumption: "10"},
		Get: func(cfg *Config) any { return cfg.Worker.MaxConcurrentActivities },
		Description: "the number of activities and steps that this process runs at once. Raise it if they mostly wait for other services. Lower it to " +
			"save memory or to protect a service that they call",
	},
	{
		Path: "maxConcurrentOrchestratorFunctions", FlatName: "maxConcurrentOrchestratorFunctions",
		Values:  wholeValue{Low: 1, High: 100_000, Set: func(cfg *Config, n int) { cfg.Worker.MaxConcurrentOrchestrators = n }},
		Default: "64 per core", PlanDefaults: map[settings.Plan]string{settings.PlanConsumption: "5"},
		Get: func(cfg *Config) any { return cfg.Worker.MaxConcurrentOrchestrators },
		Description: "the number of instances that this process runs at once, including instances that extended sessions keep. Each has its " +
			"history in memory. The default in .NET is 10 per core. A waiting instance costs one goroutine here, and a higher number lets " +
			"more episodes share a write",
	},
	{
		Path:    "maxConcurrentPayloadMegabytes",
		Values:  wholeValue{Low: 1, High: 65_536, Set: func(cfg *Config, n int) { cfg.Worker.MaxPayloadBytes = int64(n) << 20 }},
		Default: "128", Get: func(cfg *Config) any {
			return int(cmp.Or(cfg.Worker.MaxPayloadBytes, durable.DefaultMaxPayloadBytes) >> 20)
		},
		Description: "the largest total size of the inputs and results of the instances that this process runs at once, and of the inputs of its " +
			"activities. Larger work waits; one instance and one activity always run. They need a few times as much memory. Not known to .NET",
	},
}

// versionRows are the settings of orchestrator versions.
var versionRows = []settingRow{
	{
		Path: "defaultVersion", Values: textValue{Words: "any text", Set: func(cfg *Config, value string) { cfg.Worker.Version = durable.Version(value) }},
		Default: "none", Get: func(cfg *Config) any { return string(cfg.Worker.Version) },
		Description: "the version of this app. Instances and sub-orchestrations that are started without a version get it",
	},
	{
		Path:    "versionMatchStrategy",
		Values:  choiceValue{Names: namesOf(versionMatches), Set: func(cfg *Config, i int) { cfg.Worker.VersionMatch = versionMatches[i] }},
		Default: "`CurrentOrOlder`", Get: func(cfg *Config) any { return cfg.Worker.VersionMatch },
		Description: "the instances that this app runs, compared with `defaultVersion`: the same or an older version, only the same (`Strict`), or " +
			"all (`None`). Without a `defaultVersion` it runs all",
	},
	{
		Path:    "versionFailureStrategy",
		Values:  choiceValue{Names: namesOf(versionFailures), Set: func(cfg *Config, i int) { cfg.Worker.VersionFailure = versionFailures[i] }},
		Default: "`Reject`", Get: func(cfg *Config) any { return cfg.Worker.VersionFailure },
		Description: "the reaction to an instance of another version: leave it to other workers of the hub, or fail it",
	},
}

var (
	versionMatches  = []durable.VersionMatchStrategy{durable.MatchNone, durable.MatchStrict, durable.MatchCurrentOrOlder}
	versionFailures = []durable.VersionFailureStrategy{durable.RejectMismatch, durable.FailMismatch}
)

// entityRows are the settings of entities.
var entityRows = []settingRow{
	{
		Path:    "maxConcurrentEntityFunctions",
		Values:  wholeValue{Low: 1, High: 100_000, Set: func(cfg *Config, n int) { cfg.Worker.MaxConcurrentEntities = n }},
		Default: "10 per core", PlanDefaults: map[settings.Plan]string{settings.PlanConsumption: "10"},
		Get:         func(cfg *Config) any { return cfg.Worker.MaxConcurrentEntities },
		Description: "the number of entities that this process runs at once",
	},
	{
		Path:    "maxEntityOperationBatchSize",
		Values:  wholeValue{Low: 1, High: 100_000, Set: func(cfg *Config, n int) { cfg.Worker.MaxEntityBatch = n }},
		Default: "5000", PlanDefaults: map[settings.Plan]string{settings.PlanConsumption: "50"},
		Get: func(cfg *Config) any { return cfg.Worker.MaxEntityBatch },
		Description: "the number of operations that an entity runs before it stores the results. A larger batch is faster; a smaller one repeats " +
			"less after a crash",
	},
	{
		Path: "entityMessageReorderWindowInMinutes",
		Values: wholeValue{Low: 0, High: 525_600, Set: func(cfg *Config, n int) {
			cfg.Worker.EntityReorderWindow = time.Duration(n) * time.Minute
			if n == 0 {
				cfg.Worker.EntityReorderWindow = -1 // zero would be the default
			}
		}},
		Default: "30", Get: func(cfg *Config) any { return int(max(cfg.Worker.EntityReorderWindow, 0) / time.Minute) },
		Description: "the time for which an entity in Azure Storage remembers received messages, to order and deduplicate them; 0 turns both off",
	},
	{
		Path:    "rollbackEntityOperationsOnExceptions",
		Values:  boolValue{Set: func(cfg *Config, b bool) { cfg.Worker.KeepFailedEntityEffects = !b }},
		Default: "`true`", Get: func(cfg *Config) any { return !cfg.Worker.KeepFailedEntityEffects },
		Description: "whether a failed operation restores the entity's state and discards the messages that it sent",
	},
}

// sessionRows are the settings of extended sessions.
var sessionRows = []settingRow{
	{
		Path: "extendedSessionsEnabled", Values: boolValue{Set: func(cfg *Config, b bool) {
			cfg.Worker.ExtendedSessionIdle = sessionIdle(b, cmp.Or(cfg.Worker.ExtendedSessionIdle, durable.DefaultExtendedSessionIdle))
		}},
		Default: "`true`", Get: func(cfg *Config) any { return cfg.Worker.ExtendedSessionIdle >= 0 },
		Description: "whether instances stay in memory between two messages, so that their histories are read and replayed less often. An instance " +
			"leaves when another one needs its slot, when its partition moves, or when histories exceed 64 MiB. The default in .NET is " +
			"`false`: instances keep their slots there until they are idle long enough",
	},
	{
		Path: "extendedSessionIdleTimeoutInSeconds",
		Values: wholeValue{Low: 1, High: 86_400, Set: func(cfg *Config, n int) {
			cfg.Worker.ExtendedSessionIdle = sessionIdle(cfg.Worker.ExtendedSessionIdle >= 0, time.Duration(n)*time.Second)
		}},
		Default: "30", Get: func(cfg *Config) any { return int(cfg.Worker.ExtendedSessionIdle.Abs() / time.Second) },
		Description: "the longest time that an idle instance stays in memory",
	},
}

// sessionIdle returns the value of [durable.Config.ExtendedSessionIdle] for two settings. A negative
// value means no extended sessions and keeps the time.
func sessionIdle(enabled bool, idle time.Duration) time.Duration {
	if enabled {
		return idle.Abs()
	}
	return -idle.Abs()
}

// httpRows are the settings of HTTP requests, sent and received.
var httpRows = []settingRow{
	{
		Path: "httpSettings.defaultAsyncRequestSleepTimeMilliseconds",
		Values: wholeValue{Low: 1, High: 86_400_000, Set: func(cfg *Config, n int) {
			cfg.Worker.HTTP.PollInterval = time.Duration(n) * time.Millisecond
		}},
		Default: "30000", Get: func(cfg *Config) any { return int(cfg.Worker.HTTP.PollInterval / time.Millisecond) },
		Description: "the time for which `durable.CallHTTP` waits before it polls again if the response has no `Retry-After`",
	},
	{
		Path: "httpSettings.crossOriginHeaders",
		Values: listValue{Item: settings.Schema{"type": "string", "pattern": headerName.String()}, Words: "a list of header names", Store: func(cfg *Config, s settings.Setting) bool {
			cfg.Worker.HTTP.CrossOriginHeaders = append(cfg.Worker.HTTP.CrossOriginHeaders, s.Text)
			return headerName.MatchString(s.Text)
		}},
		Default: "none", Get: func(cfg *Config) any { return strings.Join(cfg.Worker.HTTP.CrossOriginHeaders, " ") },
		Description: "the headers that `durable.CallHTTP` may send to another origin after a redirect or a 202 response, in addition to headers " +
			"without secrets such as `Accept` and `User-Agent`. Not known to .NET",
	},
	{
		Path: "httpSettings.useForwardedHost", Values: boolValue{Set: func(cfg *Config, b bool) { cfg.UseForwardedHost = b }},
		Default: "`false`", Get: func(cfg *Config) any { return cfg.UseForwardedHost },
		Description: "standalone only: whether URLs take their origin from `X-Forwarded-Host` and `X-Forwarded-Proto`. Set it for an app behind " +
			"your own proxy. Behind the Functions host these headers always count",
	},
	{
		Path:    "httpSettings.maxRequestBodyMegabytes",
		Values:  wholeValue{Low: 1, High: 65_536, Set: func(cfg *Config, n int) { cfg.MaxRequestBody = int64(n) << 20 }},
		Default: "100", Get: func(cfg *Config) any { return int(cfg.MaxRequestBody >> 20) },
		Description: "the largest request body. A larger one gets status 413. The Functions host has its own limit, 100 MB by default. Not known to .NET",
	},
	{
		Path:    "httpSettings.maxRequestBodiesMegabytes",
		Values:  wholeValue{Low: 1, High: 65_536, Set: func(cfg *Config, n int) { cfg.MaxRequestBodies = int64(n) << 20 }},
		Default: "256", Get: func(cfg *Config) any { return int(cfg.MaxRequestBodies >> 20) },
		Description: "the largest total size of the request bodies that are processed at once, and at least one body of the largest size. Requests " +
			"above it get status 503. They need a few times as much memory. Not known to .NET",
	},
}

// segments matches a route prefix: path segments without special characters of routes.
var segments = regexp.MustCompile(`^([A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*)?$`)

// isRoutePrefix reports whether text is a valid route prefix. The segments "." and ".." are not valid,
// because clients resolve them.
func isRoutePrefix(text string) bool {
	return segments.MatchString(text) && !slices.ContainsFunc(strings.Split(text, "/"), func(s string) bool { return s == "." || s == ".." })
}

// headerName matches the name of an HTTP header.
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// namesOf returns the strings of values.
func namesOf[T fmt.Stringer](values []T) []string {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = v.String()
	}
	return names
}
