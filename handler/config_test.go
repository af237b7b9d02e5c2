package handler

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
)

const storageSetting = "AzureWebJobsStorage=UseDevelopmentStorage=true"

// configured makes a Config of a host.json and variables, besides those that
// name a storage account.
func configured(t *testing.T, hostJSON string, environ ...string) Config {
	t.Helper()
	found, err := parseHostJSON([]byte(hostJSON))
	if err != nil {
		t.Fatal(err)
	}
	return configure(processEnvironment{}, found, append(environ, storageSetting))
}

// durableTaskJSON wraps members of extensions.durableTask into a host.json.
func durableTaskJSON(members string) string {
	return `{"version": "2.0", "extensions": {"durableTask": {` + members + `}}}`
}

// A settingCase is one setting: how to read back what became of it, a value of
// each kind that it takes, and what is said of values that it does not.
type settingCase struct {
	path       string // below extensions.durableTask
	get        func(Config) any
	byDefault  any
	good       map[string]any // JSON text to result
	bad        map[string]string
	overridden string // text of a variable
	override   any    // its result
}

const (
	saysCount = "must be a whole number from 1 to 100000"
	saysSpan  = "must be a time span from 00:01:00 to 01:00:00"
)

func settingCases() []settingCase {
	return []settingCase{
		{
			path: "hubName", get: func(c Config) any { return c.Storage.TaskHub }, byDefault: "TestHubName",
			good: map[string]any{`"MyHub1"`: "MyHub1", `"%HUB%"`: "HubOfSetting", `"a%hub%z"`: "aHubOfSettingz", `null`: "TestHubName"},
			bad: map[string]string{
				`"my-hub"`:    `is "my-hub", must be 3 to 45 letters and digits, the first a letter`,
				`"1hub"`:      `is "1hub", must be 3 to 45 letters and digits`,
				`"ab"`:        `is "ab", must be`,
				`""`:          `is "", must be`,
				`12`:          "is 12, must be a string",
				`"%NOWHERE%"`: `is "%NOWHERE%", which names the setting "NOWHERE", which is not set`,
				`"50%"`:       `is "50%", which has a "%" without a closing one`,
				`"%BADHUB%"`:  `is "%BADHUB%", which stands for "-", must be 3 to 45 letters and digits`,
			},
			overridden: "FromVariable", override: "FromVariable",
		},
		{
			path: "maxConcurrentActivityFunctions", get: func(c Config) any {
				return [2]int{c.Worker.MaxConcurrentActivities, c.Storage.MaxConcurrentActivities}
			},
			byDefault: [2]int{}, good: map[string]any{`7`: [2]int{7, 7}, `"8"`: [2]int{8, 8}},
			bad: map[string]string{
				`0`: "is 0, " + saysCount, `-1`: "is -1, " + saysCount, `1.5`: "is 1.5, " + saysCount,
				`"many"`: `is "many", ` + saysCount, `true`: "is true, " + saysCount, `{}`: "is an object, " + saysCount, `100001`: "is 100001, " + saysCount,
				`99999999999999999999`: "is 99999999999999999999, " + saysCount,
			},
			overridden: "9", override: [2]int{9, 9},
		},
		{
			path: "maxConcurrentOrchestratorFunctions", get: func(c Config) any { return c.Worker.MaxConcurrentOrchestrators },
			byDefault: 0, good: map[string]any{`7`: 7}, bad: map[string]string{`0`: "is 0, " + saysCount, `[]`: "is an array, " + saysCount},
			overridden: "9", override: 9,
		},
		{
			path: "maxConcurrentEntityFunctions", get: func(c Config) any { return c.Worker.MaxConcurrentEntities },
			byDefault: 0, good: map[string]any{`7`: 7}, bad: map[string]string{`0`: "is 0, " + saysCount},
			overridden: "9", override: 9,
		},
		{
			path: "maxEntityOperationBatchSize", get: func(c Config) any { return c.Worker.MaxEntityBatch },
			byDefault: 0, good: map[string]any{`7`: 7}, bad: map[string]string{`0`: "is 0, " + saysCount},
			overridden: "9", override: 9,
		},
		{
			path: "entityMessageReorderWindowInMinutes", get: func(c Config) any { return c.Worker.EntityReorderWindow },
			byDefault: time.Duration(0), good: map[string]any{`7`: 7 * time.Minute, `0`: time.Duration(-1)},
			bad:        map[string]string{`-1`: "is -1, must be a whole number from 0 to 525600"},
			overridden: "9", override: 9 * time.Minute,
		},
		{
			path: "rollbackEntityOperationsOnExceptions", get: func(c Config) any { return c.Worker.KeepFailedEntityEffects },
			byDefault: false, good: map[string]any{`true`: false, `false`: true},
			bad:        map[string]string{`1`: "is 1, must be true or false"},
			overridden: "FALSE", override: true,
		},
		{
			path: "extendedSessionsEnabled", get: func(c Config) any { return c.Worker.ExtendedSessions },
			byDefault: false, good: map[string]any{`true`: true, `false`: false, `"True"`: true},
			bad:        map[string]string{`1`: "is 1, must be true or false", `"yes"`: `is "yes", must be true or false`},
			overridden: "TRUE", override: true,
		},
		{
			path: "extendedSessionIdleTimeoutInSeconds", get: func(c Config) any { return c.Worker.ExtendedSessionIdle },
			byDefault: time.Duration(0), good: map[string]any{`45`: 45 * time.Second},
			bad:        map[string]string{`0`: "is 0, must be a whole number from 1 to 86400", `"00:00:30"`: `is "00:00:30", must be a whole number`},
			overridden: "5", override: 5 * time.Second,
		},
		{
			path: "defaultVersion", get: func(c Config) any { return c.Worker.Version },
			byDefault: durable.Version(""), good: map[string]any{`"1.2"`: durable.Version("1.2"), `" 1.2 "`: durable.Version("1.2"), `""`: durable.Version("")},
			bad:        map[string]string{`{}`: "is an object, must be"},
			overridden: "2.0", override: durable.Version("2.0"),
		},
		{
			path: "versionMatchStrategy", get: func(c Config) any { return c.Worker.VersionMatch },
			byDefault:  durable.MatchCurrentOrOlder,
			good:       map[string]any{`"None"`: durable.MatchNone, `"strict"`: durable.MatchStrict, `"CurrentOrOlder"`: durable.MatchCurrentOrOlder},
			bad:        map[string]string{`"Newer"`: `is "Newer", must be "None" or "Strict" or "CurrentOrOlder"`, `1`: `is 1, must be "None"`},
			overridden: "Strict", override: durable.MatchStrict,
		},
		{
			path: "versionFailureStrategy", get: func(c Config) any { return c.Worker.VersionFailure },
			byDefault: durable.RejectMismatch, good: map[string]any{`"Fail"`: durable.FailMismatch, `"reject"`: durable.RejectMismatch},
			bad:        map[string]string{`"Ignore"`: `is "Ignore", must be "Reject" or "Fail"`},
			overridden: "fail", override: durable.FailMismatch,
		},
		{
			path: "maxOrchestrationActions", get: func(c Config) any { return c.Worker.MaxOrchestrationActions },
			byDefault: 0, good: map[string]any{`7`: 7},
			bad:        map[string]string{`0`: "is 0, must be a whole number from 1 to 100000000"},
			overridden: "9", override: 9,
		},
		{
			path: "overridableExistingInstanceStates", get: func(c Config) any { return c.Overridable },
			byDefault: durable.NonRunningStates, good: map[string]any{`"AnyState"`: durable.AnyState, `"nonrunningstates"`: durable.NonRunningStates},
			bad:        map[string]string{`"None"`: `is "None", must be "NonRunningStates" or "AnyState"`, `1`: `is 1, must be "NonRunningStates" or "AnyState"`},
			overridden: "anystate", override: durable.AnyState,
		},
		{
			path: "httpSettings.defaultAsyncRequestSleepTimeMilliseconds", get: func(c Config) any { return c.Worker.HTTP.PollInterval },
			byDefault: time.Duration(0), good: map[string]any{`1`: time.Millisecond, `"5000"`: 5 * time.Second, `86400000`: 24 * time.Hour},
			bad: map[string]string{
				`0`: "is 0, must be a whole number from 1 to 86400000", `86400001`: "is 86400001, must be a whole number from 1 to 86400000",
				`"00:00:30"`: `is "00:00:30", must be a whole number`,
			},
			overridden: "2500", override: 2500 * time.Millisecond,
		},
		{
			path: "storageProvider.connectionName", get: func(c Config) any { return c.ConnectionName },
			byDefault: "Storage", good: map[string]any{`"Other"`: "Other", `"%WHICH%"`: "Other", `""`: "Storage"},
			bad: map[string]string{
				`"Missing"`:   `no storage connection named "Missing": none of the settings AzureWebJobsMissing, Missing is set`,
				`"Broken"`:    `setting Broken:`,
				`"%NOWHERE%"`: `which names the setting "NOWHERE", which is not set`,
				`5`:           "is 5, must be a string",
			},
			overridden: "Other", override: "Other",
		},
		{
			path: "storageProvider.connectionStringName", get: func(c Config) any { return c.ConnectionName },
			byDefault: "Storage", good: map[string]any{`"Other"`: "Other"},
			bad:        map[string]string{`"Missing"`: `no storage connection named "Missing"`},
			overridden: "Other", override: "Other",
		},
		{
			path: "storageProvider.type", get: func(c Config) any { return c.StorageType },
			byDefault: AzureStorage, good: map[string]any{`"azurestorage"`: AzureStorage, `"AzureStorage"`: AzureStorage, `"Embedded"`: Embedded, `"embedded"`: Embedded},
			bad: map[string]string{`"mssql"`: `is "mssql", must be "AzureStorage" or "embedded"`}, overridden: "embedded", override: Embedded,
		},
		{
			path: "storageProvider.path", get: func(c Config) any { return c.Embedded.Path },
			byDefault: "", good: map[string]any{`"data/hub.db"`: "data/hub.db", `"%HUB%.db"`: "HubOfSetting.db", `""`: ""},
			bad: map[string]string{`5`: "is 5, must be a string"}, overridden: "other.db", override: "other.db",
		},
		{
			path: "storageProvider.relaxedDurability", get: func(c Config) any { return c.Embedded.Relaxed },
			byDefault: false, good: map[string]any{`true`: true, `"True"`: true, `false`: false},
			bad: map[string]string{`"maybe"`: `is "maybe", must be true or false`}, overridden: "true", override: true,
		},
		{
			path: "storageProvider.partitionCount", get: func(c Config) any { return c.Storage.PartitionCount },
			byDefault: 0, good: map[string]any{`1`: 1, `16`: 16},
			bad:        map[string]string{`0`: "is 0, must be a whole number from 1 to 16", `17`: "is 17, must be a whole number from 1 to 16"},
			overridden: "12", override: 12,
		},
		{
			path: "storageProvider.controlQueueBatchSize", get: func(c Config) any { return c.Storage.ControlQueueBatchSize },
			byDefault: 0, good: map[string]any{`32`: 32}, bad: map[string]string{`33`: "is 33, must be a whole number from 1 to 32"},
			overridden: "1", override: 1,
		},
		{
			path: "storageProvider.controlQueueBufferThreshold", get: func(c Config) any { return c.Storage.ControlQueueBufferThreshold },
			byDefault: 0, good: map[string]any{`1000`: 1000}, bad: map[string]string{`1001`: "is 1001, must be a whole number from 1 to 1000"},
			overridden: "64", override: 64,
		},
		{
			path: "storageProvider.controlQueueVisibilityTimeout", get: func(c Config) any { return c.Storage.ControlQueueVisibilityTimeout },
			byDefault: time.Duration(0), good: map[string]any{`"00:01:00"`: time.Minute, `"01:00:00"`: time.Hour},
			bad: map[string]string{
				`"00:00:59"`: `is "00:00:59", ` + saysSpan, `"1.00:00:00"`: `is "1.00:00:00", ` + saysSpan,
				`300`: "is 300, " + saysSpan, `"5 minutes"`: `is "5 minutes", ` + saysSpan,
			},
			overridden: "00:02:00", override: 2 * time.Minute,
		},
		{
			path: "storageProvider.workItemQueueVisibilityTimeout", get: func(c Config) any { return c.Storage.WorkItemQueueVisibilityTimeout },
			byDefault: time.Duration(0), good: map[string]any{`"00:10:00"`: 10 * time.Minute},
			bad:        map[string]string{`"00:00:10"`: `is "00:00:10", ` + saysSpan},
			overridden: "00:02:00", override: 2 * time.Minute,
		},
		{
			path: "storageProvider.maxQueuePollingInterval", get: func(c Config) any { return c.Storage.MaxQueuePollingInterval },
			byDefault: time.Duration(0), good: map[string]any{`"00:00:01"`: time.Second, `"00:00:00.1"`: 100 * time.Millisecond},
			bad:        map[string]string{`"00:00:00"`: `is "00:00:00", must be a time span from 00:00:00.05 to 01:00:00`},
			overridden: "00:00:05", override: 5 * time.Second,
		},
		{
			path: "storageProvider.queueClientMessageEncoding", get: func(c Config) any { return c.Storage.QueueEncoding },
			byDefault: azurestorage.UTF8, good: map[string]any{`"UTF8"`: azurestorage.UTF8, `"base64"`: azurestorage.Base64},
			bad:        map[string]string{`"UTF16"`: `is "UTF16", must be "UTF8" or "Base64"`},
			overridden: "Base64", override: azurestorage.Base64,
		},
		{
			path: "storageProvider.useTablePartitionManagement", get: func(c Config) any { return c.Storage.PartitionManager }, byDefault: azurestorage.TablePartitions,
			good:       map[string]any{`true`: azurestorage.TablePartitions, `false`: azurestorage.SafeBlobLeases},
			bad:        map[string]string{`"on"`: `is "on", must be true or false`},
			overridden: "false", override: azurestorage.SafeBlobLeases,
		},
		{
			path: "storageProvider.useLegacyPartitionManagement", get: func(c Config) any { return c.Storage.PartitionManager }, byDefault: azurestorage.TablePartitions,
			good:       map[string]any{`false`: azurestorage.TablePartitions},
			bad:        map[string]string{`true`: "is true, but so is useTablePartitionManagement: set that to false"},
			overridden: "false", override: azurestorage.TablePartitions,
		},
		{
			path: "useAppLease", get: func(c Config) any { return c.Storage.AppLease.Disabled }, byDefault: false,
			good: map[string]any{`true`: false, `false`: true}, bad: map[string]string{`0`: "is 0, must be true or false"}, overridden: "False", override: true,
		},
		{
			path: "appLeaseOptions.acquireInterval", get: func(c Config) any { return c.Storage.AppLease.AcquireInterval }, byDefault: time.Duration(0),
			good: map[string]any{`"00:10:00"`: 10 * time.Minute}, bad: map[string]string{`"00:00:00"`: "must be a time span from 00:00:01 to 1.00:00:00"},
			overridden: "00:00:30", override: 30 * time.Second,
		},
		{
			path: "appLeaseOptions.leaseInterval", get: func(c Config) any { return c.Storage.AppLease.Interval }, byDefault: time.Duration(0),
			good: map[string]any{`"00:00:40"`: 40 * time.Second}, bad: map[string]string{`"00:00:10"`: "must be a time span from 00:00:15 to 00:01:00"},
			overridden: "00:00:50", override: 50 * time.Second,
		},
		{
			path: "appLeaseOptions.renewInterval", get: func(c Config) any { return c.Storage.AppLease.RenewInterval }, byDefault: time.Duration(0),
			good: map[string]any{`"00:00:10"`: 10 * time.Second}, bad: map[string]string{`"00:02:00"`: "must be a time span from 00:00:01 to 00:01:00"},
			overridden: "00:00:20", override: 20 * time.Second,
		},
		{
			path: "storageProvider.trackingStoreConnectionName", get: func(Config) any { return nil },
			bad: map[string]string{`"Tables"`: "a separate account for tables is not supported yet"},
		},
	}
}

// nested puts a setting into a host.json of its own.
func nested(path, value string) string {
	if object, name, ok := strings.Cut(path, "."); ok {
		return durableTaskJSON(`"` + object + `": {"` + name + `": ` + value + `}`)
	}
	return durableTaskJSON(`"` + path + `": ` + value)
}

var settingEnvironment = []string{
	"HUB=HubOfSetting", "BADHUB=-", "WHICH=Other", "AzureWebJobsOther=UseDevelopmentStorage=true", "Broken=nonsense",
}

func TestConfig_EverySettingHasItsDefaultAndTakesGoodValues(t *testing.T) {
	t.Parallel()
	for _, tt := range settingCases() {
		if got := tt.get(configured(t, "{}")); got != tt.byDefault {
			t.Errorf("%s is %v by default, want %v", tt.path, got, tt.byDefault)
		}
		for value, want := range tt.good {
			cfg := configured(t, nested(tt.path, value), settingEnvironment...)
			if cfg.Problem != nil || len(cfg.Notices) > 0 {
				t.Errorf("%s = %s: %v, %v", tt.path, value, cfg.Problem, cfg.Notices)
			}
			if got := tt.get(cfg); got != want {
				t.Errorf("%s = %s: became %v, want %v", tt.path, value, got, want)
			}
			// Names do not mind their case.
			if got := tt.get(configured(t, nested(strings.ToLower(tt.path), value), settingEnvironment...)); tt.path != "storageProvider" && !strings.Contains(tt.path, ".") && got != want {
				t.Errorf("%s = %s: became %v, want %v", strings.ToLower(tt.path), value, got, want)
			}
		}
	}
}

func TestConfig_NamesSettingValueRangeAndLineOfABadValue(t *testing.T) {
	t.Parallel()
	for _, tt := range settingCases() {
		for value, says := range tt.bad {
			cfg := configured(t, "\n\n"+nested(tt.path, value), settingEnvironment...)
			if cfg.Problem == nil {
				t.Errorf("%s = %s: no error, want %s", tt.path, value, says)
				continue
			}
			got := cfg.Problem.Error()
			if !strings.Contains(got, says) {
				t.Errorf("%s = %s: %s, want %s", tt.path, value, got, says)
			}
			missing := strings.HasPrefix(says, "no storage") || strings.HasPrefix(says, "setting ")
			if !missing && (!strings.HasPrefix(got, "extensions.durableTask."+tt.path+" ") || !strings.HasSuffix(got, " (host.json line 3)")) {
				t.Errorf("%s = %s: %s, want its path and line", tt.path, value, got)
			}
		}
	}
}

func TestConfig_VariableOverridesHostJSON(t *testing.T) {
	t.Parallel()
	for _, tt := range settingCases() {
		if tt.overridden == "" {
			continue
		}
		name := "AzureFunctionsJobHost__extensions__durableTask__" + strings.ReplaceAll(tt.path, ".", "__")
		for value := range tt.bad {
			cfg := configured(t, nested(tt.path, value), append(settingEnvironment, name+"="+tt.overridden)...)
			// An object in the file stays one, whatever a variable of its name says.
			if got := tt.get(cfg); (got != tt.override || cfg.Problem != nil) && value != "{}" && value != "[]" {
				t.Errorf("%s = %s with %s=%s: became %v, %v, want %v", tt.path, value, name, tt.overridden, got, cfg.Problem, tt.override)
			}
		}
	}
	cfg := configured(t, "{}", "azurefunctionsjobhost__EXTENSIONS__durabletask__storageprovider__partitioncount=40")
	want := "extensions.durableTask.storageProvider.partitionCount is \"40\", must be a whole number from 1 to 16 " +
		"(environment variable azurefunctionsjobhost__EXTENSIONS__durabletask__storageprovider__partitioncount)"
	if cfg.Problem == nil || cfg.Problem.Error() != want {
		t.Errorf("problem is %v, want %s", cfg.Problem, want)
	}
}

func TestConfig_TellsEverythingThatIsWrongAtOnce(t *testing.T) {
	t.Parallel()
	cfg := configured(t, `{
  "version": "1.0",
  "extensions": {
    "http": {"routePrefix": "a*"},
    "durableTask": {
      "hubName": "-",
      "storageProvider": "none"
    }
  }
}`)
	want := `version is "1.0", must be "2.0" (host.json line 2)
extensions.http.routePrefix is "a*", must be segments of letters, digits and . _ ~ - (host.json line 4)
extensions.durableTask.hubName is "-", must be 3 to 45 letters and digits, the first a letter (host.json line 6)
extensions.durableTask.storageProvider is "none", must be an object (host.json line 7)`
	if cfg.Problem == nil || cfg.Problem.Error() != want {
		t.Errorf("problem is\n%v\nwant\n%s", cfg.Problem, want)
	}
}

func TestConfig_MissingConnectionNamesWhatWasLookedFor(t *testing.T) {
	t.Parallel()
	found, err := parseHostJSON([]byte(durableTaskJSON(`"storageProvider": {"type": "AzureStorage"}`)))
	if err != nil {
		t.Fatal(err)
	}
	cfg := configure(processEnvironment{}, found, nil)
	if cfg.Problem == nil || !strings.Contains(cfg.Problem.Error(), "AzureWebJobsStorage") ||
		!strings.HasPrefix(cfg.Problem.Error(), connectionNamePath+": ") {
		t.Errorf("problem is %v, want one that names AzureWebJobsStorage", cfg.Problem)
	}
}

func TestConfig_UnknownSettingsAreRemarkedOnOnceAndIgnored(t *testing.T) {
	t.Parallel()
	cfg := configured(t, `{
  "durableTask": {"hubName": "Misplaced"},
  "unrelated": {"a": 1},
  "extensions": {"durableTask": {
    "HUBNAME": "MyHub",
    "localRpcEndpointEnabled": true,
    "hubbName": "Typo", "httpSettings": {"useForwardedHost": true},
    "partitionCount": 3, "storageProvider": {"PartitionCount": 2, "fetchLargeMessagesAutomatically": false,
      "partitions": 3, "zzz": 1}
  },
  "durableTasks": {}
  }
}`, "AzureFunctionsJobHost__extensions__durableTask__notifications__eventGrid__topicEndpoint=https://x")
	if cfg.Problem != nil || cfg.Storage.TaskHub != "MyHub" || cfg.Storage.PartitionCount != 2 {
		t.Errorf("hub %s, %d partitions, %v", cfg.Storage.TaskHub, cfg.Storage.PartitionCount, cfg.Problem)
	}
	want := `The setting durableTask.hubName has no effect (host.json line 2): extensions.durableTask.hubName is given.
The setting extensions.durableTask.storageProvider.fetchLargeMessagesAutomatically has no effect (host.json line 8): payloads are always read when they are asked for.
The setting extensions.durableTask.notifications.eventGrid.topicEndpoint has no effect (environment variable AzureFunctionsJobHost__extensions__durableTask__notifications__eventGrid__topicEndpoint): Event Grid is not told of anything.
The setting extensions.durableTask.localRpcEndpointEnabled has no effect (host.json line 6): the app is the worker and has its own.
The setting extensions.durableTask.hubbName is not a known setting and has no effect (host.json line 7). Did you mean extensions.durableTask.hubName?
The setting extensions.durableTask.partitionCount is not a known setting and has no effect (host.json line 8). Did you mean extensions.durableTask.storageProvider.partitionCount?
The setting extensions.durableTask.storageProvider.partitions is not a known setting and has no effect (host.json line 9). Did you mean extensions.durableTask.storageProvider.partitionCount?
The setting extensions.durableTask.storageProvider.zzz is not a known setting and has no effect (host.json line 9).
The setting extensions.durableTasks is not a known setting and has no effect (host.json line 11). Did you mean extensions.durableTask?`
	if got := strings.Join(cfg.Notices, "\n"); got != want {
		t.Errorf("notices are\n%s\nwant\n%s", got, want)
	}
}

// DurableTaskOptions.cs, ResolveDefaultHubName; AzureStorageOptions.cs,
// ValidateHubName with slots.
func TestConfig_DefaultHubNameIsTheSites(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		env     processEnvironment
		file    string
		want    string
		problem bool
	}{
		{processEnvironment{}, "{}", "TestHubName", false},
		{processEnvironment{SiteName: "my-site_2"}, "{}", "mysite2", false},
		{processEnvironment{SiteName: "2fast"}, "{}", "t2fast", false},
		{processEnvironment{SiteName: "my-site"}, durableTaskJSON(`"hubName": "Mine"`), "Mine", false},
		{processEnvironment{SiteName: "site", SlotName: "Production"}, "{}", "site", false},
		{processEnvironment{SiteName: "site", SlotName: "staging"}, "{}", "site", true},
		{processEnvironment{SiteName: "site", SlotName: "staging"}, durableTaskJSON(`"hubName": "Mine"`), "Mine", false},
	} {
		found, err := parseHostJSON([]byte(tt.file))
		if err != nil {
			t.Fatal(err)
		}
		cfg := configure(tt.env, found, []string{storageSetting})
		if cfg.Storage.TaskHub != tt.want || (cfg.Problem != nil) != tt.problem {
			t.Errorf("%+v, %s: hub is %s, %v, want %s", tt.env, tt.file, cfg.Storage.TaskHub, cfg.Problem, tt.want)
		}
	}
}

func TestConfig_RoutePrefix(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{`"api"`: "api", `""`: "", `"/v1/x/"`: "v1/x", `null`: "api"} {
		cfg := configured(t, `{"extensions": {"http": {"routePrefix": `+value+`}}}`)
		if cfg.RoutePrefix != want || cfg.Problem != nil {
			t.Errorf("%s: prefix is %q, %v, want %q", value, cfg.RoutePrefix, cfg.Problem, want)
		}
	}
}

func TestConfig_LogLevelThatIsWrongIsOnlyRemarkedOn(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]slog.Level{"": 0, "Debug": slog.LevelDebug, "Warning": slog.LevelWarn, "error": slog.LevelError} {
		if cfg := configure(processEnvironment{LogLevel: name}, newSettings(), []string{storageSetting}); cfg.LogLevel != want || len(cfg.Notices) > 0 {
			t.Errorf("%q: %v, %v, want %v", name, cfg.LogLevel, cfg.Notices, want)
		}
	}
	cfg := configure(processEnvironment{LogLevel: "loud"}, newSettings(), []string{storageSetting})
	if cfg.Problem != nil || len(cfg.Notices) != 1 {
		t.Errorf("problem %v, notices %v, want one notice", cfg.Problem, cfg.Notices)
	}
}

func TestPort_ComesFromTheHostThenTheOperator(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		env  processEnvironment
		want int
		err  string
	}{
		{processEnvironment{}, 8080, ""},
		{processEnvironment{Port: "9000"}, 9000, ""},
		{processEnvironment{Port: "0"}, 0, ""},
		{processEnvironment{Port: "9000", HandlerPort: "41000"}, 41000, ""},
		{processEnvironment{Port: "http"}, 0, `environment variable PORT is "http", must be a port number from 0 to 65535`},
		{processEnvironment{HandlerPort: "0"}, 0, `environment variable FUNCTIONS_CUSTOMHANDLER_PORT is "0", must be a port number from 1 to 65535`},
		{processEnvironment{HandlerPort: "70000"}, 0, `environment variable FUNCTIONS_CUSTOMHANDLER_PORT is "70000", must be a port number from 1 to 65535`},
	} {
		got, err := tt.env.port()
		if err == nil {
			err = errors.New("")
		}
		if got != tt.want || err.Error() != tt.err {
			t.Errorf("%+v: %d, %v, want %d, %s", tt.env, got, err, tt.want, tt.err)
		}
	}
}

func TestConfig_LegacyPartitionManagerNeedsTheTableTurnedOff(t *testing.T) {
	t.Parallel()
	both := durableTaskJSON(`"storageProvider": {"useLegacyPartitionManagement": true, "useTablePartitionManagement": false}`)
	if cfg := configured(t, both); cfg.Problem != nil || cfg.Storage.PartitionManager != azurestorage.LegacyBlobLeases {
		t.Errorf("%v, %v, want the legacy manager", cfg.Storage.PartitionManager, cfg.Problem)
	}
	if cfg := configured(t, durableTaskJSON(`"appLeaseOptions": {"leaseInterval": "00:00:20"}`)); cfg.Problem == nil || !strings.Contains(cfg.Problem.Error(), "RenewInterval") {
		t.Errorf("a lease that ends before it is renewed: %v", cfg.Problem)
	}
}
