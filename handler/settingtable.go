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

// The kinds of rows and values of the settings of a [Config].
type (
	settingRow  = settings.Row[Config]
	textValue   = settings.Text[Config]
	wholeValue  = settings.Whole[Config]
	boolValue   = settings.Bool[Config]
	choiceValue = settings.Choice[Config]
	spanValue   = settings.Span[Config]
	listValue   = settings.List[Config]
)

// Paths in host.json, spelled as the documentation does.
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

// settingRows are all settings, in the order of the documentation.
func settingRows() []settingRow {
	var rows []settingRow
	for _, part := range [][]settingRow{
		hostRows, hubRows, concurrencyRows, versionRows, entityRows, sessionRows, storageRows, partitionRows, httpRows, tracingRows,
		notificationRows, otherRows,
	} {
		rows = append(rows, part...)
	}
	for i, row := range rows {
		if strings.HasPrefix(row.Path, "storageProvider.") && !slices.Contains(partitionLogSettings, row.Path) || strings.HasPrefix(row.Path, "appLease") || row.Path == "useAppLease" {
			rows[i].Off = offInPartitionLog
		}
	}
	return rows
}

// hostRows are the settings of the host that this package reads, too.
var hostRows = []settingRow{
	{
		Path: versionPath, Absolute: true,
		Values: textValue{Words: "`2.0`", Want: func(value string) string {
			if value != "2.0" {
				return `"2.0"`
			}
			return ""
		}},
		Initial: "none", Get: func(*Config) any { return "2.0" },
		Does: "the shape of `host.json`",
	},
	{
		Path: timeoutPath, Absolute: true,
		Values: textValue{
			Words: "a time span of a second or more, or `-1` for no limit",
			Want: func(value string) string {
				if _, ok := parseFunctionTimeout(value); ok {
					return ""
				}
				return "a time span of a second or more, such as 00:10:00, or -1"
			},
			Set: func(cfg *Config, value string) { cfg.FunctionTimeout, _ = parseFunctionTimeout(value) },
		},
		Initial: "`00:30:00`, on the Consumption plan `00:05:00`",
		Get:     func(cfg *Config) any { return cfg.functionTimeoutText() },
		Does: "how long the host lets an invocation run; then it kills the program, and the engine in it. Functions are stopped " +
			"before that, at `handler.Timeout` or this limit, and after 30 minutes if there is none",
	},
	{
		Path: routePrefixPath, Absolute: true,
		Values: textValue{
			Words: "segments of letters, digits and `. _ ~ -`, or none",
			Want: func(value string) string {
				if !isRoutePrefix(strings.Trim(value, "/")) {
					return "segments of letters, digits and . _ ~ -, other than . and .."
				}
				return ""
			},
			Set: func(cfg *Config, value string) { cfg.RoutePrefix = strings.Trim(value, "/") },
		},
		Initial: "`api`", Get: func(cfg *Config) any { return cfg.RoutePrefix },
		Does: "where all routes begin, those of the management API too",
	},
}

// hubRows are the settings of the hub as a whole.
var hubRows = []settingRow{
	{
		Path: "hubName", Flat: "hubName",
		Values: textValue{
			Resolved: true, Words: "3 to 45 letters and digits, the first a letter", Pattern: "^[A-Za-z][A-Za-z0-9]{2,44}$",
			Want: func(value string) string {
				if azurestorage.ValidateHubName(value) == nil {
					return ""
				}
				return fmt.Sprintf("%d to %d letters and digits, the first a letter", azurestorage.MinHubNameLength, azurestorage.MaxHubNameLength)
			},
			Set: func(cfg *Config, value string) { cfg.Storage.TaskHub = value },
		},
		Initial: "`WEBSITE_SITE_NAME` made fit, else `TestHubName`", Get: func(cfg *Config) any { return cfg.Storage.TaskHub },
		Does: "the task hub: what the names of all its queues, tables and containers begin with. In a deployment slot it must be given",
	},
	{
		Path: "overridableExistingInstanceStates",
		Values: choiceValue{Names: []string{"NonRunningStates", "AnyState"}, Set: func(cfg *Config, i int) {
			cfg.Overridable = []durable.OverridableStates{durable.NonRunningStates, durable.AnyState}[i]
		}},
		Initial: "`NonRunningStates`",
		Get: func(cfg *Config) any {
			if cfg.Overridable == durable.AnyState {
				return "AnyState"
			}
			return "NonRunningStates"
		},
		Does: "which instances a start with their ID replaces: those that have ended, or any",
	},
	{
		Path:    "maxOrchestrationActions",
		Values:  wholeValue{Low: 1, High: 100_000_000, Set: func(cfg *Config, n int) { cfg.Worker.MaxOrchestrationActions = n }},
		Initial: "100000", Get: func(cfg *Config) any { return cfg.Worker.MaxOrchestrationActions },
		Does: "how many activities, timers, sub-orchestrations and events an execution may begin or send before it fails",
	},
	{
		Path: "unknownFunctionTimeout",
		Values: spanValue{Low: time.Second, High: 365 * 24 * time.Hour, Set: func(cfg *Config, d time.Duration) {
			cfg.Worker.UnknownFunctionTimeout = d
		}},
		Initial: "`00:10:00`; none in a local file",
		Get: func(cfg *Config) any {
			if cfg.StorageType == Embedded {
				return cfg.Worker.UnknownFunctionTimeout
			}
			return cmp.Or(cfg.Worker.UnknownFunctionTimeout, durable.DefaultUnknownFunctionTimeout)
		},
		Does: "how long an instance that has not begun waits for a worker that knows its function before it fails. Those that have begun wait for ever, and can be terminated and suspended meanwhile",
	},
	{
		Path:    "failUnknownFunctions",
		Values:  boolValue{Set: func(cfg *Config, b bool) { cfg.Worker.FailUnknownFunctions = b }},
		Initial: "`false`", Get: func(cfg *Config) any { return cfg.Worker.FailUnknownFunctions },
		Does: "fails instances that have begun after `unknownFunctionTimeout`, too, and activities. A wrong deployment then ends what runs",
	},
	{
		Path: "onNonDeterminism",
		Values: choiceValue{Names: []string{"fail", "hold"}, Set: func(cfg *Config, i int) {
			cfg.Worker.HoldNonDeterministic = i == 1
		}},
		Initial: "`fail`",
		Get: func(cfg *Config) any {
			if cfg.Worker.HoldNonDeterministic {
				return "hold"
			}
			return "fail"
		},
		Does: "what becomes of an instance whose orchestrator does something else than its history has: it fails, or it waits for code that fits, and can be terminated and suspended meanwhile. Not known to .NET",
	},
	{
		Path:    "storeInputsInOrchestrationHistory",
		Values:  boolValue{Set: func(cfg *Config, b bool) { cfg.Worker.StoreInputs = b }},
		Initial: "`false`", Get: func(cfg *Config) any { return cfg.Worker.StoreInputs },
		Does: "keeps the inputs of activities and sub-orchestrations in the histories of those that call them, where `showHistory=true` shows them. Otherwise only the called have them",
	},
	{
		Path: "throwStatusExceptionsOnRaiseEvent", Values: boolValue{}, Initial: "`true`",
		Does:  "refuses events to instances that are missing or have ended",
		Inert: "such events are always refused",
	},
}

// concurrencyRows say how much runs at once.
var concurrencyRows = []settingRow{
	{
		Path: "maxConcurrentActivityFunctions", Flat: "maxConcurrentActivityFunctions",
		Values: wholeValue{Low: 1, High: 100_000, Set: func(cfg *Config, n int) {
			cfg.Worker.MaxConcurrentActivities, cfg.Storage.MaxConcurrentActivities = n, n
		}},
		Initial: "10 for each core", OnPlan: map[settings.Plan]string{settings.PlanConsumption: "10"},
		Get:  func(cfg *Config) any { return cfg.Worker.MaxConcurrentActivities },
		Does: "how many activities this process runs at once. More use the machine better if activities mostly wait; fewer spare memory and what they call",
	},
	{
		Path: "maxConcurrentOrchestratorFunctions", Flat: "maxConcurrentOrchestratorFunctions",
		Values:  wholeValue{Low: 1, High: 100_000, Set: func(cfg *Config, n int) { cfg.Worker.MaxConcurrentOrchestrators = n }},
		Initial: "64 for each core", OnPlan: map[settings.Plan]string{settings.PlanConsumption: "5"},
		Get: func(cfg *Config) any { return cfg.Worker.MaxConcurrentOrchestrators },
		Does: "how many instances this process runs at once, with those that extended sessions keep. Each has its history in memory. " +
			"In .NET the default is 10 for each core; here one that waits for the storage takes no more than a goroutine, and more of them are stored together",
	},
}

// versionRows are about versions of orchestrators.
var versionRows = []settingRow{
	{
		Path: "defaultVersion", Values: textValue{Words: "any text", Set: func(cfg *Config, value string) { cfg.Worker.Version = durable.Version(value) }},
		Initial: "none", Get: func(cfg *Config) any { return string(cfg.Worker.Version) },
		Does: "the version of what this app runs: that of instances and sub-orchestrations for which none was chosen",
	},
	{
		Path:    "versionMatchStrategy",
		Values:  choiceValue{Names: namesOf(versionMatches), Set: func(cfg *Config, i int) { cfg.Worker.VersionMatch = versionMatches[i] }},
		Initial: "`CurrentOrOlder`", Get: func(cfg *Config) any { return cfg.Worker.VersionMatch },
		Does: "which instances this app takes, by their version and `defaultVersion`: the same or an older one, the same only (`Strict`), or all (`None`). Without a `defaultVersion` it takes all",
	},
	{
		Path:    "versionFailureStrategy",
		Values:  choiceValue{Names: namesOf(versionFailures), Set: func(cfg *Config, i int) { cfg.Worker.VersionFailure = versionFailures[i] }},
		Initial: "`Reject`", Get: func(cfg *Config) any { return cfg.Worker.VersionFailure },
		Does: "what happens to the others: other workers of the hub run them, or they fail",
	},
}

var (
	versionMatches  = []durable.VersionMatchStrategy{durable.MatchNone, durable.MatchStrict, durable.MatchCurrentOrOlder}
	versionFailures = []durable.VersionFailureStrategy{durable.RejectMismatch, durable.FailMismatch}
)

// entityRows are about entities.
var entityRows = []settingRow{
	{
		Path:    "maxConcurrentEntityFunctions",
		Values:  wholeValue{Low: 1, High: 100_000, Set: func(cfg *Config, n int) { cfg.Worker.MaxConcurrentEntities = n }},
		Initial: "10 for each core", OnPlan: map[settings.Plan]string{settings.PlanConsumption: "10"},
		Get:  func(cfg *Config) any { return cfg.Worker.MaxConcurrentEntities },
		Does: "how many entities this process runs at once",
	},
	{
		Path:    "maxEntityOperationBatchSize",
		Values:  wholeValue{Low: 1, High: 100_000, Set: func(cfg *Config, n int) { cfg.Worker.MaxEntityBatch = n }},
		Initial: "5000", OnPlan: map[settings.Plan]string{settings.PlanConsumption: "50"},
		Get:  func(cfg *Config) any { return cfg.Worker.MaxEntityBatch },
		Does: "how many operations of an entity run before their results are stored. More are faster; fewer run again after a crash",
	},
	{
		Path: "entityMessageReorderWindowInMinutes",
		Values: wholeValue{Low: 0, High: 525_600, Set: func(cfg *Config, n int) {
			cfg.Worker.EntityReorderWindow = time.Duration(n) * time.Minute
			if n == 0 {
				cfg.Worker.EntityReorderWindow = -1 // zero would be the default
			}
		}},
		Initial: "30", Get: func(cfg *Config) any { return int(max(cfg.Worker.EntityReorderWindow, 0) / time.Minute) },
		Does: "how long an entity in Azure Storage remembers received messages, to order and deduplicate them; 0 does neither",
	},
	{
		Path:    "rollbackEntityOperationsOnExceptions",
		Values:  boolValue{Set: func(cfg *Config, b bool) { cfg.Worker.KeepFailedEntityEffects = !b }},
		Initial: "`true`", Get: func(cfg *Config) any { return !cfg.Worker.KeepFailedEntityEffects },
		Does: "rolls back an entity's state when an operation fails, and discards the messages that it sent",
	},
}

// sessionRows are about what stays in memory.
var sessionRows = []settingRow{
	{
		Path: "extendedSessionsEnabled", Values: boolValue{Set: func(cfg *Config, b bool) { cfg.Worker.NoExtendedSessions = !b }},
		Initial: "`true`", Get: func(cfg *Config) any { return !cfg.Worker.NoExtendedSessions },
		Does: "keeps instances in memory between two messages, so that histories are read and replayed less often. " +
			"They leave as soon as others need their place, their partition or, beyond 64 MiB of histories, their memory. " +
			"In .NET the default is `false`: what is kept there keeps its place until it has been idle for long enough",
	},
	{
		Path: "extendedSessionIdleTimeoutInSeconds",
		Values: wholeValue{Low: 1, High: 86_400, Set: func(cfg *Config, n int) {
			cfg.Worker.ExtendedSessionIdle = time.Duration(n) * time.Second
		}},
		Initial: "30", Get: func(cfg *Config) any { return int(cfg.Worker.ExtendedSessionIdle / time.Second) },
		Does: "how long an idle instance stays in memory at most",
	},
}

// httpRows are about HTTP, in and out.
var httpRows = []settingRow{
	{
		Path: "httpSettings.defaultAsyncRequestSleepTimeMilliseconds",
		Values: wholeValue{Low: 1, High: 86_400_000, Set: func(cfg *Config, n int) {
			cfg.Worker.HTTP.PollInterval = time.Duration(n) * time.Millisecond
		}},
		Initial: "30000", Get: func(cfg *Config) any { return int(cfg.Worker.HTTP.PollInterval / time.Millisecond) },
		Does: "how long `durable.CallHTTP` waits before it asks again, when the response does not say",
	},
	{
		Path: "httpSettings.crossOriginHeaders",
		Values: listValue{Item: settings.Schema{"type": "string", "pattern": headerName.String()}, Words: "a list of names of headers", Each: func(cfg *Config, s settings.Setting) bool {
			cfg.Worker.HTTP.CrossOriginHeaders = append(cfg.Worker.HTTP.CrossOriginHeaders, s.Text)
			return headerName.MatchString(s.Text)
		}},
		Initial: "none", Get: func(cfg *Config) any { return strings.Join(cfg.Worker.HTTP.CrossOriginHeaders, " ") },
		Does: "which headers `durable.CallHTTP` may send to another origin than that of the URL, if a redirect or a 202 response names one, " +
			"besides such as `Accept` and `User-Agent`, which hold no key. Only this engine has it",
	},
	{
		Path: "httpSettings.useForwardedHost", Values: boolValue{Set: func(cfg *Config, b bool) { cfg.UseForwardedHost = b }},
		Initial: "`false`", Get: func(cfg *Config) any { return cfg.UseForwardedHost },
		Does: "standalone, takes the origin of URLs from `X-Forwarded-Host` and `X-Forwarded-Proto`: for an app behind a proxy of its own. Behind the host they always count",
	},
	{
		Path:    "httpSettings.maxRequestBodyMegabytes",
		Values:  wholeValue{Low: 1, High: 65_536, Set: func(cfg *Config, n int) { cfg.MaxRequestBody = int64(n) << 20 }},
		Initial: "100", Get: func(cfg *Config) any { return int(cfg.MaxRequestBody >> 20) },
		Does: "how long the body of a request may be; a longer one gets status 413. The host has a limit of its own, 100 MB by default. Not known to .NET",
	},
	{
		Path:    "httpSettings.maxRequestBodiesMegabytes",
		Values:  wholeValue{Low: 1, High: 65_536, Set: func(cfg *Config, n int) { cfg.MaxRequestBodies = int64(n) << 20 }},
		Initial: "256", Get: func(cfg *Config) any { return int(cfg.MaxRequestBodies >> 20) },
		Does: "how much the bodies of all requests may have together that are being answered, and at least one as long as may be; others get status 503 meanwhile. Memory takes a few times as much. Not known to .NET",
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
