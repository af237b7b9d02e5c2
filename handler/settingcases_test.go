package handler

import (
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
)

// A settingCase describes one setting: how to read its effective value, valid values of each kind, and
// the errors of invalid values.
type settingCase struct {
	path       string // relative to extensions.durableTask
	get        func(Config) any
	byDefault  any
	good       map[string]any // JSON text to effective value
	bad        map[string]string
	overridden string // text of a variable
	override   any    // its effective value
}

const (
	saysCount = "want a whole number from 1 to 100000"
	saysSpan  = "want a time span from 00:01:00 to 01:00:00"
)

func settingCases() []settingCase {
	return slices.Concat(engineSettingCases(), storageSettingCases(), eventGridSettingCases())
}

func engineSettingCases() []settingCase {
	return []settingCase{
		{
			path: "hubName", get: func(c Config) any { return c.Storage.TaskHub }, byDefault: "TestHubName",
			good: map[string]any{`"MyHub1"`: "MyHub1", `"%HUB%"`: "HubOfSetting", `"a%hub%z"`: "aHubOfSettingz", `null`: "TestHubName"},
			bad: map[string]string{
				`"my-hub"`:    `is "my-hub"; want 3 to 45 letters and digits, the first a letter`,
				`"1hub"`:      `is "1hub"; want 3 to 45 letters and digits`,
				`"ab"`:        `is "ab"; want`,
				`""`:          `is ""; want`,
				`12`:          "is 12; want a string",
				`"%NOWHERE%"`: `is "%NOWHERE%", which names the setting "NOWHERE", which is not set`,
				`"50%"`:       `is "50%", which has a "%" without a closing "%"`,
				`"%BADHUB%"`:  `is "%BADHUB%", which resolves to "-"; want 3 to 45 letters and digits`,
			},
			overridden: "FromVariable", override: "FromVariable",
		},
		{
			path: "maxConcurrentActivityFunctions", get: func(c Config) any {
				return [2]int{c.Worker.MaxConcurrentActivities, c.Storage.MaxConcurrentActivities}
			},
			byDefault: [2]int{}, good: map[string]any{`7`: [2]int{7, 7}, `"8"`: [2]int{8, 8}},
			bad: map[string]string{
				`0`: "is 0; " + saysCount, `-1`: "is -1; " + saysCount, `1.5`: "is 1.5; " + saysCount,
				`"many"`: `is "many"; ` + saysCount, `true`: "is true; " + saysCount, `{}`: "is an object; " + saysCount, `100001`: "is 100001; " + saysCount,
				`99999999999999999999`: "is 99999999999999999999; " + saysCount,
			},
			overridden: "9", override: [2]int{9, 9},
		},
		{
			path: "maxConcurrentOrchestratorFunctions", get: func(c Config) any { return c.Worker.MaxConcurrentOrchestrators },
			byDefault: 0, good: map[string]any{`7`: 7}, bad: map[string]string{`0`: "is 0; " + saysCount, `[]`: "is an array; " + saysCount},
			overridden: "9", override: 9,
		},
		{
			path: "maxConcurrentPayloadMegabytes", get: func(c Config) any { return c.Worker.MaxPayloadBytes },
			byDefault: int64(0), good: map[string]any{`7`: int64(7 << 20)}, bad: map[string]string{`0`: "want a whole number from 1 to 65536"},
			overridden: "9", override: int64(9 << 20),
		},
		{
			path: "maxConcurrentEntityFunctions", get: func(c Config) any { return c.Worker.MaxConcurrentEntities },
			byDefault: 0, good: map[string]any{`7`: 7}, bad: map[string]string{`0`: "is 0; " + saysCount},
			overridden: "9", override: 9,
		},
		{
			path: "maxEntityOperationBatchSize", get: func(c Config) any { return c.Worker.MaxEntityBatch },
			byDefault: 0, good: map[string]any{`7`: 7}, bad: map[string]string{`0`: "is 0; " + saysCount},
			overridden: "9", override: 9,
		},
		{
			path: "entityMessageReorderWindowInMinutes", get: func(c Config) any { return c.Worker.EntityReorderWindow },
			byDefault: time.Duration(0), good: map[string]any{`7`: 7 * time.Minute, `0`: time.Duration(-1)},
			bad:        map[string]string{`-1`: "is -1; want a whole number from 0 to 525600"},
			overridden: "9", override: 9 * time.Minute,
		},
		{
			path: "rollbackEntityOperationsOnExceptions", get: func(c Config) any { return c.Worker.KeepFailedEntityEffects },
			byDefault: false, good: map[string]any{`true`: false, `false`: true},
			bad:        map[string]string{`1`: "is 1; want true or false"},
			overridden: "FALSE", override: true,
		},
		{
			path: "extendedSessionsEnabled", get: func(c Config) any { return c.Worker.ExtendedSessionIdle < 0 },
			byDefault: false, good: map[string]any{`true`: false, `false`: true, `"False"`: true},
			bad:        map[string]string{`1`: "is 1; want true or false", `"yes"`: `is "yes"; want true or false`},
			overridden: "FALSE", override: true,
		},
		{
			path: "extendedSessionIdleTimeoutInSeconds", get: func(c Config) any { return c.Worker.ExtendedSessionIdle },
			byDefault: time.Duration(0), good: map[string]any{`45`: 45 * time.Second},
			bad:        map[string]string{`0`: "is 0; want a whole number from 1 to 86400", `"00:00:30"`: `is "00:00:30"; want a whole number`},
			overridden: "5", override: 5 * time.Second,
		},
		{
			path: "defaultVersion", get: func(c Config) any { return c.Worker.Version },
			byDefault: durable.Version(""), good: map[string]any{`"1.2"`: durable.Version("1.2"), `" 1.2 "`: durable.Version("1.2"), `""`: durable.Version("")},
			bad:        map[string]string{`{}`: "is an object; want"},
			overridden: "2.0", override: durable.Version("2.0"),
		},
		{
			path: "versionMatchStrategy", get: func(c Config) any { return c.Worker.VersionMatch },
			byDefault:  durable.MatchCurrentOrOlder,
			good:       map[string]any{`"None"`: durable.MatchNone, `"strict"`: durable.MatchStrict, `"CurrentOrOlder"`: durable.MatchCurrentOrOlder},
			bad:        map[string]string{`"Newer"`: `is "Newer"; want "None" or "Strict" or "CurrentOrOlder"`, `1`: `is 1; want "None"`},
			overridden: "Strict", override: durable.MatchStrict,
		},
		{
			path: "versionFailureStrategy", get: func(c Config) any { return c.Worker.VersionFailure },
			byDefault: durable.RejectMismatch, good: map[string]any{`"Fail"`: durable.FailMismatch, `"reject"`: durable.RejectMismatch},
			bad:        map[string]string{`"Ignore"`: `is "Ignore"; want "Reject" or "Fail"`},
			overridden: "fail", override: durable.FailMismatch,
		},
		{
			path: "maxOrchestrationActions", get: func(c Config) any { return c.Worker.MaxOrchestrationActions },
			byDefault: 0, good: map[string]any{`7`: 7},
			bad:        map[string]string{`0`: "is 0; want a whole number from 1 to 100000000"},
			overridden: "9", override: 9,
		},
		{
			path: "unknownFunctionTimeout", get: func(c Config) any { return c.Worker.UnknownFunctionTimeout },
			byDefault: time.Duration(0), good: map[string]any{`"00:00:30"`: 30 * time.Second},
			bad:        map[string]string{`"00:00:00"`: `is "00:00:00"; want a time span from`, `30`: "is 30; want a time span from"},
			overridden: "01:00:00", override: time.Hour,
		},
		{
			path: "failUnknownFunctions", get: func(c Config) any { return c.Worker.FailUnknownFunctions },
			byDefault: false, good: map[string]any{`true`: true, `false`: false},
			bad:        map[string]string{`1`: "is 1; want true or false"},
			overridden: "true", override: true,
		},
		{
			path: "onNonDeterminism", get: func(c Config) any { return c.Worker.HoldNonDeterministic },
			byDefault: false, good: map[string]any{`"fail"`: false, `"Hold"`: true},
			bad:        map[string]string{`"wait"`: `is "wait"; want "fail" or "hold"`, `true`: `is true; want "fail"`},
			overridden: "hold", override: true,
		},
		{
			path: "orchestratorStallTimeout", get: func(c Config) any { return c.Worker.StallTimeout },
			byDefault: time.Duration(0), good: map[string]any{`"00:01:00"`: time.Minute},
			bad:        map[string]string{`"00:00:00"`: `is "00:00:00"; want a time span from`, `30`: "is 30; want a time span from"},
			overridden: "00:02:00", override: 2 * time.Minute,
		},
		{
			path: "storeInputsInOrchestrationHistory", get: func(c Config) any { return c.Worker.StoreInputs },
			byDefault: false, good: map[string]any{`true`: true, `false`: false, `"True"`: true},
			bad:        map[string]string{`1`: "is 1; want true or false"},
			overridden: "true", override: true,
		},
		{
			path: "httpSettings.crossOriginHeaders", get: func(c Config) any { return strings.Join(c.Worker.HTTP.CrossOriginHeaders, " ") },
			byDefault: "", good: map[string]any{`["X-Trace", "x-tenant"]`: "X-Trace x-tenant"},
			bad: map[string]string{`"X-Trace"`: `is "X-Trace"; want a list of header names`, `["a b"]`: `contains "a b"; want a list of header names`},
		},
		{
			path: "httpSettings.maxRequestBodyMegabytes", get: func(c Config) any { return c.MaxRequestBody },
			byDefault: int64(100 << 20), good: map[string]any{`7`: int64(7 << 20)}, bad: map[string]string{`0`: "want a whole number from 1 to 65536"},
			overridden: "9", override: int64(9 << 20),
		},
		{
			path: "httpSettings.maxRequestBodiesMegabytes", get: func(c Config) any { return c.MaxRequestBodies },
			byDefault: int64(256 << 20), good: map[string]any{`7`: int64(7 << 20)}, bad: map[string]string{`0`: "want a whole number from 1 to 65536"},
			overridden: "9", override: int64(9 << 20),
		},
		{
			path: "httpSettings.useForwardedHost", get: func(c Config) any { return c.UseForwardedHost },
			byDefault: false, good: map[string]any{`true`: true, `false`: false},
			bad:        map[string]string{`"yes"`: `is "yes"; want true or false`},
			overridden: "true", override: true,
		},
		{
			path: "overridableExistingInstanceStates", get: func(c Config) any { return c.Overridable },
			byDefault: durable.NonRunningStates, good: map[string]any{`"AnyState"`: durable.AnyState, `"nonrunningstates"`: durable.NonRunningStates},
			bad:        map[string]string{`"None"`: `is "None"; want "NonRunningStates" or "AnyState"`, `1`: `is 1; want "NonRunningStates" or "AnyState"`},
			overridden: "anystate", override: durable.AnyState,
		},
		{
			path: "httpSettings.defaultAsyncRequestSleepTimeMilliseconds", get: func(c Config) any { return c.Worker.HTTP.PollInterval },
			byDefault: time.Duration(0), good: map[string]any{`1`: time.Millisecond, `"5000"`: 5 * time.Second, `86400000`: 24 * time.Hour},
			bad: map[string]string{
				`0`: "is 0; want a whole number from 1 to 86400000", `86400001`: "is 86400001; want a whole number from 1 to 86400000",
				`"00:00:30"`: `is "00:00:30"; want a whole number`,
			},
			overridden: "2500", override: 2500 * time.Millisecond,
		},
	}
}

func storageSettingCases() []settingCase {
	return []settingCase{
		{
			path: "storageProvider.connectionName", get: func(c Config) any { return c.ConnectionName },
			byDefault: "Storage", good: map[string]any{`"Other"`: "Other", `"%WHICH%"`: "Other", `""`: "Storage"},
			bad: map[string]string{
				`"Missing"`:   `no storage connection named "Missing": set one of the settings AzureWebJobsMissing, Missing to a connection string`,
				`"Broken"`:    `setting Broken:`,
				`"%NOWHERE%"`: `which names the setting "NOWHERE", which is not set`,
				`5`:           "is 5; want a string",
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
			byDefault: AzureStorage, good: map[string]any{`"azurestorage"`: AzureStorage, `"AzureStorage"`: AzureStorage, `"Embedded"`: Embedded, `"embedded"`: Embedded, `"PartitionLog"`: PartitionLog, `"partitionLog"`: PartitionLog},
			bad: map[string]string{`"mssql"`: `is "mssql"; want "AzureStorage" or "embedded" or "partitionLog"`}, overridden: "embedded", override: Embedded,
		},
		{
			path: "storageProvider.path", get: func(c Config) any { return c.Embedded.Path },
			byDefault: "", good: map[string]any{`"data/hub.db"`: "data/hub.db", `"%HUB%.db"`: "HubOfSetting.db", `""`: ""},
			bad: map[string]string{`5`: "is 5; want a string"}, overridden: "other.db", override: "other.db",
		},
		{
			path: "storageProvider.relaxedDurability", get: func(c Config) any { return c.Embedded.Relaxed },
			byDefault: false, good: map[string]any{`true`: true, `"True"`: true, `false`: false},
			bad: map[string]string{`"maybe"`: `is "maybe"; want true or false`}, overridden: "true", override: true,
		},
		{
			path: "storageProvider.allowNetworkFile", get: func(c Config) any { return c.embeddedConfig().AllowNetworkFile },
			byDefault: false, good: map[string]any{`true`: true, `"True"`: true, `false`: false},
			bad: map[string]string{`"maybe"`: `is "maybe"; want true or false`}, overridden: "true", override: true,
		},
		{
			path: "storageProvider.partitionCount", get: func(c Config) any { return c.Storage.PartitionCount },
			byDefault: 0, good: map[string]any{`1`: 1, `16`: 16},
			bad:        map[string]string{`0`: "is 0; want a whole number from 1 to 16", `17`: "is 17; want a whole number from 1 to 16"},
			overridden: "12", override: 12,
		},
		{
			path: "storageProvider.partitionLeaseInterval", get: func(c Config) any { return c.PartitionLog.LeaseInterval },
			byDefault: time.Duration(0), good: map[string]any{`"00:00:15"`: 15 * time.Second, `"00:00:20.5"`: 20 * time.Second},
			bad:        map[string]string{`"00:00:10"`: `is "00:00:10"; want a time span from 00:00:15 to 00:01:00`},
			overridden: "00:00:45", override: 45 * time.Second,
		},
		{
			path: "storageProvider.controlQueueBatchSize", get: func(c Config) any { return c.Storage.ControlQueueBatchSize },
			byDefault: 0, good: map[string]any{`32`: 32}, bad: map[string]string{`33`: "is 33; want a whole number from 1 to 32"},
			overridden: "1", override: 1,
		},
		{
			path: "storageProvider.controlQueueBufferThreshold", get: func(c Config) any { return c.Storage.ControlQueueBufferThreshold },
			byDefault: 0, good: map[string]any{`1000`: 1000}, bad: map[string]string{`1001`: "is 1001; want a whole number from 1 to 1000"},
			overridden: "64", override: 64,
		},
		{
			path: "storageProvider.controlQueueVisibilityTimeout", get: func(c Config) any { return c.Storage.ControlQueueVisibilityTimeout },
			byDefault: time.Duration(0), good: map[string]any{`"00:01:00"`: time.Minute, `"01:00:00"`: time.Hour},
			bad: map[string]string{
				`"00:00:59"`: `is "00:00:59"; ` + saysSpan, `"1.00:00:00"`: `is "1.00:00:00"; ` + saysSpan,
				`300`: "is 300; " + saysSpan, `"5 minutes"`: `is "5 minutes"; ` + saysSpan,
			},
			overridden: "00:02:00", override: 2 * time.Minute,
		},
		{
			path: "storageProvider.workItemQueueVisibilityTimeout", get: func(c Config) any { return c.Storage.WorkItemQueueVisibilityTimeout },
			byDefault: time.Duration(0), good: map[string]any{`"00:10:00"`: 10 * time.Minute},
			bad:        map[string]string{`"00:00:10"`: `is "00:00:10"; ` + saysSpan},
			overridden: "00:02:00", override: 2 * time.Minute,
		},
		{
			path: "storageProvider.maxQueuePollingInterval", get: func(c Config) any { return c.Storage.MaxQueuePollingInterval },
			byDefault: time.Duration(0), good: map[string]any{`"00:00:01"`: time.Second, `"00:00:00.1"`: 100 * time.Millisecond},
			bad:        map[string]string{`"00:00:00"`: `is "00:00:00"; want a time span from 00:00:00.05 to 01:00:00`},
			overridden: "00:00:05", override: 5 * time.Second,
		},
		{
			path: "storageProvider.queueClientMessageEncoding", get: func(c Config) any { return c.Storage.QueueEncoding },
			byDefault: azurestorage.UTF8, good: map[string]any{`"UTF8"`: azurestorage.UTF8, `"base64"`: azurestorage.Base64},
			bad:        map[string]string{`"UTF16"`: `is "UTF16"; want "UTF8" or "Base64"`},
			overridden: "Base64", override: azurestorage.Base64,
		},
		{
			path: "storageProvider.useTablePartitionManagement", get: func(c Config) any { return c.Storage.PartitionManager }, byDefault: azurestorage.TablePartitions,
			good:       map[string]any{`true`: azurestorage.TablePartitions, `false`: azurestorage.SafeBlobLeases},
			bad:        map[string]string{`"on"`: `is "on"; want true or false`},
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
			good: map[string]any{`true`: false, `false`: true}, bad: map[string]string{`0`: "is 0; want true or false"}, overridden: "False", override: true,
		},
		{
			path: "appLeaseOptions.acquireInterval", get: func(c Config) any { return c.Storage.AppLease.AcquireInterval }, byDefault: time.Duration(0),
			good: map[string]any{`"00:10:00"`: 10 * time.Minute}, bad: map[string]string{`"00:00:00"`: "want a time span from 00:00:01 to 1.00:00:00"},
			overridden: "00:00:30", override: 30 * time.Second,
		},
		{
			path: "appLeaseOptions.leaseInterval", get: func(c Config) any { return c.Storage.AppLease.Interval }, byDefault: time.Duration(0),
			good: map[string]any{`"00:00:40"`: 40 * time.Second}, bad: map[string]string{`"00:00:10"`: "want a time span from 00:00:15 to 00:01:00"},
			overridden: "00:00:50", override: 50 * time.Second,
		},
		{
			path: "appLeaseOptions.renewInterval", get: func(c Config) any { return c.Storage.AppLease.RenewInterval }, byDefault: time.Duration(0),
			good: map[string]any{`"00:00:10"`: 10 * time.Second}, bad: map[string]string{`"00:02:00"`: "want a time span from 00:00:01 to 00:01:00"},
			overridden: "00:00:20", override: 20 * time.Second,
		},
		{
			path: "storageProvider.jumpStartEnabled", get: func(c Config) any { return c.Storage.JumpStart.Enabled }, byDefault: false,
			good: map[string]any{`true`: true, `false`: false}, bad: map[string]string{`1`: "is 1; want true or false"}, overridden: "true", override: true,
		},
		{
			path: "storageProvider.jumpStartTimeout", get: func(c Config) any { return c.Storage.JumpStart.Timeout }, byDefault: time.Duration(0),
			good: map[string]any{`"00:01:00"`: time.Minute}, bad: map[string]string{`"00:00:00"`: "want a time span from 00:00:01 to 1.00:00:00"},
			overridden: "00:02:00", override: 2 * time.Minute,
		},
		{
			path: "storageProvider.jumpStartInterval", get: func(c Config) any { return c.Storage.JumpStart.Interval }, byDefault: time.Duration(0),
			good: map[string]any{`"00:00:10"`: 10 * time.Second}, bad: map[string]string{`"02:00:00"`: "want a time span from 00:00:01 to 01:00:00"},
			overridden: "00:00:20", override: 20 * time.Second,
		},
		{
			path: "storageProvider.lastUpdatedTolerance", get: func(c Config) any { return c.Storage.LastUpdatedTolerance }, byDefault: time.Duration(0),
			good: map[string]any{`"00:00:10"`: 10 * time.Second, `"00:00:00"`: time.Duration(-1)}, bad: map[string]string{`"02:00:00"`: "want a time span from 00:00:00 to 01:00:00"},
			overridden: "00:00:20", override: 20 * time.Second,
		},
		{
			path: "storageProvider.historyCacheMegabytes", get: func(c Config) any { return c.Storage.HistoryCacheBytes }, byDefault: 0,
			good: map[string]any{`16`: 16 << 20, `0`: -1 << 20}, bad: map[string]string{`-1`: "want a whole number from 0 to 65536"},
			overridden: "8", override: 8 << 20,
		},
		{
			path: "storageProvider.trackingStoreConnectionName", get: func(c Config) any { return c.TrackingStoreConnectionName }, byDefault: "",
			good: map[string]any{`"Storage"`: "Storage", `""`: ""},
			bad:  map[string]string{`7`: "is 7; want a string"}, overridden: "AzureWebJobsStorage", override: "AzureWebJobsStorage",
		},
		{
			path: "storageProvider.trackingStoreConnectionStringName", get: func(c Config) any { return c.TrackingStoreConnectionName }, byDefault: "",
			good: map[string]any{`"Storage"`: "Storage", `""`: ""},
			bad:  map[string]string{`"Missing"`: `no storage connection named "Missing"`}, overridden: "AzureWebJobsStorage", override: "AzureWebJobsStorage",
		},
		{
			path: "storageProvider.setAsideUndecodableMessages", get: func(c Config) any { return c.Storage.SetAsideUndecodable }, byDefault: false,
			good: map[string]any{`true`: true, `false`: false}, bad: map[string]string{`1`: "is 1; want true or false"}, overridden: "true", override: true,
		},
		{
			path: "storageProvider.trackingEnabled", get: func(c Config) any { return c.Storage.Tracking }, byDefault: false,
			good: map[string]any{`true`: true, `false`: false}, bad: map[string]string{`1`: "is 1; want true or false"}, overridden: "true", override: true,
		},
		{
			path: "storageProvider.trackingStoreNamePrefix", get: func(c Config) any { return c.Storage.TrackingStoreNamePrefix }, byDefault: "",
			good: map[string]any{`"Mine2"`: "Mine2", `"%HUB%"`: "HubOfSetting", `""`: ""}, bad: map[string]string{`"a-b"`: `is "a-b"; want 1 to 54 letters and digits`},
			overridden: "Other", override: "Other",
		},
	}
}
