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
)

// The kinds of rows and values of the settings of a [Config].
type (
	settingRow  = settingRowOf[Config]
	textValue   = textValueOf[Config]
	wholeValue  = wholeValueOf[Config]
	boolValue   = boolValueOf[Config]
	choiceValue = choiceValueOf[Config]
	spanValue   = spanValueOf[Config]
	listValue   = listValueOf[Config]
)

// Paths in host.json, spelled as the documentation does.
const (
	versionPath            = "version"
	timeoutPath            = "functionTimeout"
	routePrefixPath        = "extensions.http.routePrefix"
	forwardingPath         = "customHandler.enableForwardingHttpRequest"
	storagePath            = durableTaskPath + ".storageProvider"
	hubNamePath            = durableTaskPath + ".hubName"
	connectionNamePath     = storagePath + ".connectionName"
	trackingConnectionPath = storagePath + ".trackingStoreConnectionName"
	storageTypePath        = storagePath + ".type"
	storageFilePath        = storagePath + ".path"
)

// settingRows are all settings, in the order of the documentation.
func settingRows() []settingRow {
	var rows []settingRow
	for _, part := range [][]settingRow{
		hostRows, hubRows, concurrencyRows, versionRows, entityRows, sessionRows, storageRows, partitionRows, httpRows, tracingRows,
		notificationRows, otherRows,
	} {
		rows = append(rows, part...)
	}
	return rows
}

// hostRows are the settings of the host that this package reads, too.
var hostRows = []settingRow{
	{
		path: versionPath, absolute: true,
		values: textValue{words: "`2.0`", must: func(value string) string {
			if value != "2.0" {
				return `"2.0"`
			}
			return ""
		}},
		initial: "none", get: func(*Config) any { return "2.0" },
		does: "the shape of `host.json`",
	},
	{
		path: timeoutPath, absolute: true,
		values: textValue{
			words: "a time span of a second or more, or `-1` for no limit",
			must: func(value string) string {
				if _, ok := parseFunctionTimeout(value); ok {
					return ""
				}
				return "a time span of a second or more, such as 00:10:00, or -1"
			},
			set: func(cfg *Config, value string) { cfg.FunctionTimeout, _ = parseFunctionTimeout(value) },
		},
		initial: "`00:30:00`, on the Consumption plan `00:05:00`",
		get:     func(cfg *Config) any { return cfg.functionTimeoutText() },
		does: "how long the host lets an invocation run; then it kills the program, and the engine in it. Functions are stopped " +
			"before that, at `handler.Timeout` or this limit, and after 30 minutes if there is none",
	},
	{
		path: routePrefixPath, absolute: true,
		values: textValue{
			words: "segments of letters, digits and `. _ ~ -`, or none",
			must: func(value string) string {
				if !isRoutePrefix(strings.Trim(value, "/")) {
					return "segments of letters, digits and . _ ~ -, other than . and .."
				}
				return ""
			},
			set: func(cfg *Config, value string) { cfg.RoutePrefix = strings.Trim(value, "/") },
		},
		initial: "`api`", get: func(cfg *Config) any { return cfg.RoutePrefix },
		does: "where all routes begin, those of the management API too",
	},
}

// hubRows are the settings of the hub as a whole.
var hubRows = []settingRow{
	{
		path: "hubName", flat: "hubName",
		values: textValue{
			resolved: true, words: "3 to 45 letters and digits, the first a letter", pattern: "^[A-Za-z][A-Za-z0-9]{2,44}$",
			must: func(value string) string {
				if azurestorage.ValidateHubName(value) == nil {
					return ""
				}
				return fmt.Sprintf("%d to %d letters and digits, the first a letter", azurestorage.MinHubNameLength, azurestorage.MaxHubNameLength)
			},
			set: func(cfg *Config, value string) { cfg.Storage.TaskHub = value },
		},
		initial: "`WEBSITE_SITE_NAME` made fit, else `TestHubName`", get: func(cfg *Config) any { return cfg.Storage.TaskHub },
		does: "the task hub: what the names of all its queues, tables and containers begin with. In a deployment slot it must be given",
	},
	{
		path: "overridableExistingInstanceStates",
		values: choiceValue{names: []string{"NonRunningStates", "AnyState"}, set: func(cfg *Config, i int) {
			cfg.Overridable = []durable.OverridableStates{durable.NonRunningStates, durable.AnyState}[i]
		}},
		initial: "`NonRunningStates`",
		get: func(cfg *Config) any {
			if cfg.Overridable == durable.AnyState {
				return "AnyState"
			}
			return "NonRunningStates"
		},
		does: "which instances a start with their ID replaces: those that have ended, or any",
	},
	{
		path:    "maxOrchestrationActions",
		values:  wholeValue{low: 1, high: 100_000_000, set: func(cfg *Config, n int) { cfg.Worker.MaxOrchestrationActions = n }},
		initial: "100000", get: func(cfg *Config) any { return cfg.Worker.MaxOrchestrationActions },
		does: "how many activities, timers, sub-orchestrations and events an execution may begin or send before it fails",
	},
	{
		path: "unknownFunctionTimeout",
		values: spanValue{low: time.Second, high: 365 * 24 * time.Hour, set: func(cfg *Config, d time.Duration) {
			cfg.Worker.UnknownFunctionTimeout = d
		}},
		initial: "`00:10:00`; none in a local file",
		get: func(cfg *Config) any {
			if cfg.StorageType == Embedded {
				return cfg.Worker.UnknownFunctionTimeout
			}
			return cmp.Or(cfg.Worker.UnknownFunctionTimeout, durable.UnknownFunctionTimeoutDefault)
		},
		does: "how long an instance that has not begun waits for a worker that knows its function before it fails. Those that have begun wait for ever, and can be terminated and suspended meanwhile",
	},
	{
		path:    "failUnknownFunctions",
		values:  boolValue{set: func(cfg *Config, b bool) { cfg.Worker.FailUnknownFunctions = b }},
		initial: "`false`", get: func(cfg *Config) any { return cfg.Worker.FailUnknownFunctions },
		does: "fails instances that have begun after `unknownFunctionTimeout`, too, and activities. A wrong deployment then ends what runs",
	},
	{
		path:    "storeInputsInOrchestrationHistory",
		values:  boolValue{set: func(cfg *Config, b bool) { cfg.Worker.KeepInputs = b }},
		initial: "`false`", get: func(cfg *Config) any { return cfg.Worker.KeepInputs },
		does: "keeps the inputs of activities and sub-orchestrations in the histories of those that call them, where `showHistory=true` shows them. Otherwise only the called have them",
	},
	{
		path: "throwStatusExceptionsOnRaiseEvent", values: boolValue{}, initial: "`true`",
		does:  "refuses events to instances that are missing or have ended",
		inert: "such events are always refused",
	},
}

// concurrencyRows say how much runs at once.
var concurrencyRows = []settingRow{
	{
		path: "maxConcurrentActivityFunctions", flat: "maxConcurrentActivityFunctions",
		values: wholeValue{low: 1, high: 100_000, set: func(cfg *Config, n int) {
			cfg.Worker.MaxConcurrentActivities, cfg.Storage.MaxConcurrentActivities = n, n
		}},
		initial: "10 for each core", onPlan: map[plan]string{planConsumption: "10"},
		get:  func(cfg *Config) any { return cfg.Worker.MaxConcurrentActivities },
		does: "how many activities this process runs at once. More use the machine better if activities mostly wait; fewer spare memory and what they call",
	},
	{
		path: "maxConcurrentOrchestratorFunctions", flat: "maxConcurrentOrchestratorFunctions",
		values:  wholeValue{low: 1, high: 100_000, set: func(cfg *Config, n int) { cfg.Worker.MaxConcurrentOrchestrators = n }},
		initial: "10 for each core", onPlan: map[plan]string{planConsumption: "5"},
		get:  func(cfg *Config) any { return cfg.Worker.MaxConcurrentOrchestrators },
		does: "how many instances this process has in hand at once. Each has its history in memory",
	},
}

// versionRows are about versions of orchestrators.
var versionRows = []settingRow{
	{
		path: "defaultVersion", values: textValue{words: "any text", set: func(cfg *Config, value string) { cfg.Worker.Version = durable.Version(value) }},
		initial: "none", get: func(cfg *Config) any { return string(cfg.Worker.Version) },
		does: "the version of what this app runs: that of instances and sub-orchestrations for which none was chosen",
	},
	{
		path:    "versionMatchStrategy",
		values:  choiceValue{names: namesOf(versionMatches), set: func(cfg *Config, i int) { cfg.Worker.VersionMatch = versionMatches[i] }},
		initial: "`CurrentOrOlder`", get: func(cfg *Config) any { return cfg.Worker.VersionMatch },
		does: "which instances this app takes, by their version and `defaultVersion`: the same or an older one, the same only (`Strict`), or all (`None`). Without a `defaultVersion` it takes all",
	},
	{
		path:    "versionFailureStrategy",
		values:  choiceValue{names: namesOf(versionFailures), set: func(cfg *Config, i int) { cfg.Worker.VersionFailure = versionFailures[i] }},
		initial: "`Reject`", get: func(cfg *Config) any { return cfg.Worker.VersionFailure },
		does: "what becomes of the others: they are left to other workers of the hub, or fail",
	},
}

var (
	versionMatches  = []durable.VersionMatchStrategy{durable.MatchNone, durable.MatchStrict, durable.MatchCurrentOrOlder}
	versionFailures = []durable.VersionFailureStrategy{durable.RejectMismatch, durable.FailMismatch}
)

// entityRows are about entities.
var entityRows = []settingRow{
	{
		path:    "maxConcurrentEntityFunctions",
		values:  wholeValue{low: 1, high: 100_000, set: func(cfg *Config, n int) { cfg.Worker.MaxConcurrentEntities = n }},
		initial: "10 for each core", onPlan: map[plan]string{planConsumption: "10"},
		get:  func(cfg *Config) any { return cfg.Worker.MaxConcurrentEntities },
		does: "how many entities this process has in hand at once",
	},
	{
		path:    "maxEntityOperationBatchSize",
		values:  wholeValue{low: 1, high: 100_000, set: func(cfg *Config, n int) { cfg.Worker.MaxEntityBatch = n }},
		initial: "5000", onPlan: map[plan]string{planConsumption: "50"},
		get:  func(cfg *Config) any { return cfg.Worker.MaxEntityBatch },
		does: "how many operations of an entity are performed before what came of them is stored. More is faster, fewer are done again after a crash",
	},
	{
		path: "entityMessageReorderWindowInMinutes",
		values: wholeValue{low: 0, high: 525_600, set: func(cfg *Config, n int) {
			cfg.Worker.EntityReorderWindow = time.Duration(n) * time.Minute
			if n == 0 {
				cfg.Worker.EntityReorderWindow = -1 // zero would be the default
			}
		}},
		initial: "30", get: func(cfg *Config) any { return int(max(cfg.Worker.EntityReorderWindow, 0) / time.Minute) },
		does: "for how long messages to entities are put in order and recognised when they come again; 0 does neither",
	},
	{
		path:    "rollbackEntityOperationsOnExceptions",
		values:  boolValue{set: func(cfg *Config, b bool) { cfg.Worker.KeepFailedEntityEffects = !b }},
		initial: "`true`", get: func(cfg *Config) any { return !cfg.Worker.KeepFailedEntityEffects },
		does: "leaves an entity's state alone when an operation fails, and sends nothing that it would have sent",
	},
}

// sessionRows are about what stays in memory.
var sessionRows = []settingRow{
	{
		path: "extendedSessionsEnabled", values: boolValue{set: func(cfg *Config, b bool) { cfg.Worker.ExtendedSessions = b }},
		initial: "`false`", get: func(cfg *Config) any { return cfg.Worker.ExtendedSessions },
		does: "keeps instances in memory between two messages, so that histories are read and replayed less often",
	},
	{
		path: "extendedSessionIdleTimeoutInSeconds",
		values: wholeValue{low: 1, high: 86_400, set: func(cfg *Config, n int) {
			cfg.Worker.ExtendedSessionIdle = time.Duration(n) * time.Second
		}},
		initial: "30", get: func(cfg *Config) any { return int(cfg.Worker.ExtendedSessionIdle / time.Second) },
		does: "how long one that nothing happens to is kept so",
	},
}

// httpRows are about HTTP, in and out.
var httpRows = []settingRow{
	{
		path: "httpSettings.defaultAsyncRequestSleepTimeMilliseconds",
		values: wholeValue{low: 1, high: 86_400_000, set: func(cfg *Config, n int) {
			cfg.Worker.HTTP.PollInterval = time.Duration(n) * time.Millisecond
		}},
		initial: "30000", get: func(cfg *Config) any { return int(cfg.Worker.HTTP.PollInterval / time.Millisecond) },
		does: "how long `durable.CallHTTP` waits before it asks again, when the response does not say",
	},
	{
		path: "httpSettings.crossOriginHeaders",
		values: listValue{item: settingSchema{"type": "string", "pattern": headerName.String()}, words: "a list of names of headers", each: func(cfg *Config, s setting) bool {
			cfg.Worker.HTTP.CrossOriginHeaders = append(cfg.Worker.HTTP.CrossOriginHeaders, s.text)
			return headerName.MatchString(s.text)
		}},
		initial: "none", get: func(cfg *Config) any { return strings.Join(cfg.Worker.HTTP.CrossOriginHeaders, " ") },
		does: "which headers `durable.CallHTTP` may send to another origin than that of the URL, if a redirect or a 202 response names one, " +
			"besides such as `Accept` and `User-Agent`, which hold no key. Only this engine has it",
	},
	{
		path: "httpSettings.useForwardedHost", values: boolValue{set: func(cfg *Config, b bool) { cfg.UseForwardedHost = b }},
		initial: "`false`", get: func(cfg *Config) any { return cfg.UseForwardedHost },
		does: "standalone, takes the origin of URLs from `X-Forwarded-Host` and `X-Forwarded-Proto`: for an app behind a proxy of its own. Behind the host they always count",
	},
	{
		path:    "httpSettings.maxRequestBodyMegabytes",
		values:  wholeValue{low: 1, high: 65_536, set: func(cfg *Config, n int) { cfg.MaxRequestBody = int64(n) << 20 }},
		initial: "100", get: func(cfg *Config) any { return int(cfg.MaxRequestBody >> 20) },
		does: "how long the body of a request may be; a longer one gets status 413. The host has a limit of its own, 100 MB by default. Not known to .NET",
	},
	{
		path:    "httpSettings.maxRequestBodiesMegabytes",
		values:  wholeValue{low: 1, high: 65_536, set: func(cfg *Config, n int) { cfg.MaxRequestBodies = int64(n) << 20 }},
		initial: "256", get: func(cfg *Config) any { return int(cfg.MaxRequestBodies >> 20) },
		does: "how much the bodies of all requests may have together that are being answered, and at least one as long as may be; others get status 503 meanwhile. Memory takes a few times as much. Not known to .NET",
	},
}

// segments matches a route prefix: segments without anything that has a meaning
// in a route.
var segments = regexp.MustCompile(`^([A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*)?$`)

// isRoutePrefix reports whether a route prefix can be one. Segments of "." and
// ".." never reach a server: clients resolve them.
func isRoutePrefix(text string) bool {
	return segments.MatchString(text) && !slices.ContainsFunc(strings.Split(text, "/"), func(s string) bool { return s == "." || s == ".." })
}

// headerName matches the name of an HTTP header.
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// namesOf returns the names of values.
func namesOf[T fmt.Stringer](values []T) []string {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = v.String()
	}
	return names
}
