package handler

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
)

// maxQueues is the largest partition count of a hub in queues and tables.
const maxQueues = 16

// storesOf returns the types of hubs to which a setting applies; nil means all.
func storesOf(path string) []StorageType {
	switch path {
	case "storageProvider.type":
		return nil
	case "storageProvider.path", "storageProvider.relaxedDurability", "storageProvider.allowNetworkFile":
		return []StorageType{Embedded}
	case "storageProvider.connectionName", "storageProvider.partitionCount", "storageProvider.maxQueuePollingInterval":
		return []StorageType{AzureStorage, PartitionLog}
	case "storageProvider.partitionLeaseInterval":
		return []StorageType{PartitionLog}
	case "useAppLease", "entityMessageReorderWindowInMinutes":
		return []StorageType{AzureStorage}
	}
	if strings.HasPrefix(path, "storageProvider.") || strings.HasPrefix(path, "appLeaseOptions.") {
		return []StorageType{AzureStorage}
	}
	return nil
}

// offInStore returns why a setting that applies to stores has no effect, or "". The type AzureStorage is no reason,
// because it may be an unset type.
func offInStore(cfg *Config, stores []StorageType) string {
	if cfg.StorageType == AzureStorage || slices.Contains(stores, cfg.StorageType) {
		return ""
	}
	return "storageProvider.type is " + cfg.StorageType.String()
}

// storageRows are the settings of the hub's store.
var storageRows = []settingRow{
	{
		Path:    "storageProvider.type",
		Values:  choiceValue{Names: storageTypes, Set: func(cfg *Config, i int) { cfg.StorageType = StorageType(i) }},
		Default: "`AzureStorage`; `embedded` if no storage connection is set or named", Get: func(cfg *Config) any { return cfg.StorageType },
		Description: "the store of the hub: a storage account in the layout of .NET, one local file, or logs in a storage account. Logs have a " +
			"higher throughput, but .NET cannot read them",
	},
	{
		Path: "storageProvider.path",
		Values: textValue{Resolved: true, EmptyIsUnset: true, Words: "the name of a file, relative to the folder of `host.json`", Set: func(cfg *Config, value string) {
			cfg.Embedded.Path = value
		}},
		Default: "`.durable-{hubName}.db`", Get: func(cfg *Config) any { return cfg.hubFile() },
		Description: "the file of an embedded hub. The names of a few more files start with it. A new folder directly below `host.json` makes the " +
			"Functions host restart the app once",
	},
	{
		Path:    "storageProvider.relaxedDurability",
		Values:  boolValue{Set: func(cfg *Config, b bool) { cfg.Embedded.Relaxed = b }},
		Default: "`false`", Get: func(cfg *Config) any { return cfg.Embedded.Relaxed },
		Description: "whether an embedded hub acknowledges writes before they are on the disk. This is faster. A process crash loses nothing; a " +
			"machine crash can lose the last moments",
	},
	{
		Path:    "storageProvider.allowNetworkFile",
		Values:  boolValue{Set: func(cfg *Config, b bool) { cfg.Embedded.AllowNetworkFile = b }},
		Default: "`false`", Get: func(cfg *Config) any { return cfg.Embedded.AllowNetworkFile },
		Description: "whether an embedded hub may be on a network file system (NFS, SMB, CIFS), such as Azure Files. Locks and memory maps are not " +
			"safe there: two processes can damage the file. Only Linux checks the file system",
	},
	{
		Path: "storageProvider.connectionName", FormerNames: []string{"connectionStringName"}, FlatName: "azureStorageConnectionStringName",
		Values: textValue{Resolved: true, EmptyIsUnset: true, Mismatch: settings.CheckSettingName, Hidden: true, Words: "the name of a storage connection, below", Set: func(cfg *Config, value string) {
			cfg.ConnectionName = value
		}},
		Default: "`Storage`", Get: func(cfg *Config) any { return cfg.ConnectionName },
		Description: "the connection to the storage account of the hub",
	},
	{
		Path: "storageProvider.partitionCount", FlatName: "partitionCount",
		Values: wholeValue{Low: 1, High: partitionlog.MaxPartitionCount, Max: func(cfg *Config) int {
			if cfg.StorageType == AzureStorage {
				return maxQueues
			}
			return partitionlog.MaxPartitionCount
		}, Set: func(cfg *Config, n int) {
			cfg.PartitionLog.PartitionCount, cfg.Storage.PartitionCount = n, min(n, maxQueues)
		}},
		Default: "4",
		Get: func(cfg *Config) any {
			if cfg.StorageType == PartitionLog {
				return cfg.PartitionLog.PartitionCount
			}
			return cfg.Storage.PartitionCount
		},
		Description: "the number of control queues or partition logs. At most this many processes share the orchestrations. At most 16 in queues. " +
			"It cannot change on an existing hub",
	},
	{
		Path:    "storageProvider.partitionLeaseInterval",
		Values:  spanValue{Low: 15 * time.Second, High: time.Minute, Set: func(cfg *Config, d time.Duration) { cfg.PartitionLog.LeaseInterval = d.Truncate(time.Second) }},
		Default: "`00:00:30`", Get: func(cfg *Config) any { return cfg.PartitionLog.LeaseInterval },
		Description: "the lease duration of a partition log, in whole seconds. If its owner dies, another process takes over after this time. Only " +
			"with the type `partitionLog`",
	},
	{
		Path: "storageProvider.controlQueueBatchSize", FlatName: "controlQueueBatchSize",
		Values:  wholeValue{Low: 1, High: 32, Set: func(cfg *Config, n int) { cfg.Storage.ControlQueueBatchSize = n }},
		Default: "32", Get: func(cfg *Config) any { return cfg.Storage.ControlQueueBatchSize },
		Description: "the number of messages per receive request",
	},
	{
		Path:    "storageProvider.controlQueueBufferThreshold",
		Values:  wholeValue{Low: 1, High: 1000, Set: func(cfg *Config, n int) { cfg.Storage.ControlQueueBufferThreshold = n }},
		Default: "256", PlanDefaults: map[settings.Plan]string{settings.PlanConsumption: "128"},
		Get:         func(cfg *Config) any { return cfg.Storage.ControlQueueBufferThreshold },
		Description: "the largest number of received messages in memory",
	},
	{
		Path: "storageProvider.controlQueueVisibilityTimeout", FlatName: "controlQueueVisibilityTimeout",
		Values:  spanValue{Low: time.Minute, High: time.Hour, Set: func(cfg *Config, d time.Duration) { cfg.Storage.ControlQueueVisibilityTimeout = d }},
		Default: "`00:05:00`", Get: func(cfg *Config) any { return cfg.Storage.ControlQueueVisibilityTimeout },
		Description: "the longest time that `hub copy` waits for messages that a worker, for example a crashed .NET worker, has hidden. The larger of this and " +
			"`workItemQueueVisibilityTimeout` applies. Workers of this app hide a message for 30 seconds at a time",
	},
	{
		Path: "storageProvider.workItemQueueVisibilityTimeout", FlatName: "workItemQueueVisibilityTimeout",
		Values:  spanValue{Low: time.Minute, High: time.Hour, Set: func(cfg *Config, d time.Duration) { cfg.Storage.WorkItemQueueVisibilityTimeout = d }},
		Default: "`00:05:00`", Get: func(cfg *Config) any { return cfg.Storage.WorkItemQueueVisibilityTimeout },
		Description: "the same as `controlQueueVisibilityTimeout`",
	},
	{
		Path: "storageProvider.maxQueuePollingInterval", FlatName: "maxQueuePollingInterval",
		Values: spanValue{Low: 50 * time.Millisecond, High: time.Hour, Set: func(cfg *Config, d time.Duration) {
			cfg.Storage.MaxQueuePollingInterval, cfg.PartitionLog.MaxPollingInterval = d, min(d, time.Minute)
		}},
		Default: "`00:00:30`; `00:00:01` with the type `partitionLog`", PlanDefaults: map[settings.Plan]string{settings.PlanFlex: "00:00:01"},
		Get: func(cfg *Config) any {
			if cfg.StorageType == PartitionLog {
				return cfg.PartitionLog.MaxPollingInterval
			}
			return cfg.Storage.MaxQueuePollingInterval
		},
		Description: "the longest polling interval of an idle queue, or of the mail of a partition log (there at most a minute). A shorter " +
			"interval receives messages of other processes sooner; a longer one sends fewer requests",
	},
	{
		Path: "storageProvider.lastUpdatedTolerance",
		Values: spanValue{Low: 0, High: time.Hour, Set: func(cfg *Config, d time.Duration) {
			if d == 0 {
				d = -1
			}
			cfg.Storage.LastUpdatedTolerance = d
		}},
		Default: "`00:00:03`", Get: func(cfg *Config) any { return max(cfg.Storage.LastUpdatedTolerance, 0) },
		Description: "how far the stored time of an instance's last update may lag behind. An episode that changes nothing else within this time is " +
			"not written to the instance's row. Zero writes every episode, as .NET does. Not known to .NET",
	},
	{
		Path: "storageProvider.historyCacheMegabytes",
		Values: wholeValue{Low: 0, High: 65_536, Set: func(cfg *Config, n int) {
			if n == 0 {
				n = -1
			}
			cfg.Storage.HistoryCacheBytes = n << 20
		}},
		Default: "64", Get: func(cfg *Config) any { return max(cfg.Storage.HistoryCacheBytes>>20, 0) },
		Description: "the memory for cached histories of running instances. A cached history is not read again for each episode. Not known to .NET",
	},
	{
		Path: "storageProvider.queueClientMessageEncoding",
		Values: choiceValue{Names: []string{"UTF8", "Base64"}, Set: func(cfg *Config, i int) {
			cfg.Storage.QueueEncoding = []azurestorage.QueueEncoding{azurestorage.UTF8, azurestorage.Base64}[i]
		}},
		Default: "`UTF8`",
		Get: func(cfg *Config) any {
			if cfg.Storage.QueueEncoding == azurestorage.Base64 {
				return "Base64"
			}
			return "UTF8"
		},
		Description: "the encoding of messages that the app writes. It always reads both",
	},
	{
		Path: "storageProvider.trackingStoreConnectionName", FormerNames: []string{"trackingStoreConnectionStringName"}, FlatName: "trackingStoreConnectionStringName",
		Values: textValue{Resolved: true, EmptyIsUnset: true, Mismatch: settings.CheckSettingName, Hidden: true, Words: "the name of a storage connection, below", Set: func(cfg *Config, value string) {
			cfg.TrackingStoreConnectionName = value
		}},
		Default: "none", Get: func(cfg *Config) any { return cfg.TrackingStoreConnectionName },
		Description: "the connection to a separate account for the tables and blobs of the hub, as in .NET. The queues stay in the account of " +
			"`connectionName`. It cannot change on an existing hub",
	},
	{
		Path: "storageProvider.trackingStoreNamePrefix", FlatName: "trackingStoreNamePrefix",
		Values: textValue{
			Resolved: true, EmptyIsUnset: true, Words: "1 to 54 letters and digits, the first a letter", Pattern: "^[A-Za-z][A-Za-z0-9]{0,53}$",
			Mismatch: func(value string) string {
				if azurestorage.ValidateTrackingPrefix(value) == nil {
					return ""
				}
				return "1 to 54 letters and digits, the first a letter"
			},
			Set: func(cfg *Config, value string) { cfg.Storage.TrackingStoreNamePrefix = value },
		},
		Default: "`DurableTask`", Get: func(cfg *Config) any { return cfg.Storage.TrackingStoreNamePrefix },
		Description: "the prefix of the history and instance tables in a separate account, instead of the hub's name. Hubs that share the account " +
			"need different prefixes. It has no effect without a separate account",
	},
	{
		Path: "storageProvider.fetchLargeMessagesAutomatically", Values: boolValue{}, Default: "`true`",
		Description:    "reads payloads from blobs when a status is requested",
		NeverEffective: "payloads are always read on request",
	},
	{
		Path: "storageProvider.allowReplayingTerminalInstances", Values: boolValue{}, Default: "`false`",
		Description: "runs ended instances again when a message arrives", NeverEffective: "an ended instance never runs again",
	},
}

// partitionRows are the settings of how processes share the partitions of a hub.
var partitionRows = []settingRow{
	{
		Path: "storageProvider.useTablePartitionManagement",
		Values: boolValue{Set: func(cfg *Config, b bool) {
			if !b {
				cfg.Storage.PartitionManager = azurestorage.SafeBlobLeases
			}
		}},
		Default: "`true`", Get: func(cfg *Config) any { return cfg.Storage.PartitionManager == azurestorage.TablePartitions },
		Description: "whether workers share partitions by a table; `false` uses blob leases. All processes on a hub must use the same, including .NET",
	},
	{
		Path: "storageProvider.useLegacyPartitionManagement",
		Values: boolValue{Set: func(cfg *Config, b bool) {
			if b && cfg.Storage.PartitionManager == azurestorage.SafeBlobLeases {
				cfg.Storage.PartitionManager = azurestorage.LegacyBlobLeases
			}
		}},
		Check: func(cfg *Config, path string, s settings.Setting) error {
			if !s.IsTrue() || cfg.Storage.PartitionManager == azurestorage.LegacyBlobLeases {
				return nil
			}
			return fmt.Errorf("%s is true, but so is useTablePartitionManagement: set that to false (%s)", path, s.Source)
		},
		Default: "`false`", Get: func(cfg *Config) any { return cfg.Storage.PartitionManager == azurestorage.LegacyBlobLeases },
		Description: "with `useTablePartitionManagement` `false`: whether workers use the leases of version 1, without the handover of later versions",
	},
	{
		Path: "useAppLease", Values: boolValue{Set: func(cfg *Config, b bool) { cfg.Storage.AppLease.Disabled = !b }},
		Default: "`true`", Get: func(cfg *Config) any { return !cfg.Storage.AppLease.Disabled },
		Description: "whether only one of several apps on a hub works on it, with all its processes. Apps differ by `WEBSITE_SITE_NAME`, or else by `DTFX_APP_NAME`",
	},
	{
		Path:    "appLeaseOptions.acquireInterval",
		Values:  spanValue{Low: time.Second, High: 24 * time.Hour, Set: func(cfg *Config, d time.Duration) { cfg.Storage.AppLease.AcquireInterval = d }},
		Default: "`00:05:00`", Get: func(cfg *Config) any { return cfg.Storage.AppLease.AcquireInterval },
		Description: "how often an app without the lease tries to acquire it",
	},
	{
		Path:    "appLeaseOptions.leaseInterval",
		Values:  spanValue{Low: 15 * time.Second, High: time.Minute, Set: func(cfg *Config, d time.Duration) { cfg.Storage.AppLease.Interval = d }},
		Default: "`00:01:00`", Get: func(cfg *Config) any { return cfg.Storage.AppLease.Interval },
		Description: "the duration of the lease",
	},
	{
		Path:    "appLeaseOptions.renewInterval",
		Values:  spanValue{Low: time.Second, High: time.Minute, Set: func(cfg *Config, d time.Duration) { cfg.Storage.AppLease.RenewInterval = d }},
		Default: "`00:00:25`", Get: func(cfg *Config) any { return cfg.Storage.AppLease.RenewInterval },
		Description: "how often the lease is renewed; less than `leaseInterval`",
	},
	{
		Path: "storageProvider.setAsideUndecodableMessages", Values: boolValue{Set: func(cfg *Config, b bool) { cfg.Storage.SetAsideUndecodable = b }},
		Default: "`false`", Get: func(cfg *Config) any { return cfg.Storage.SetAsideUndecodable },
		Description: "whether messages that this process cannot decode move to a queue with the suffix `-poison` after ten deliveries, which takes " +
			"about 17 minutes. `bin/app hub retry-undecodable` moves them back. By default they stay, as in .NET, and become visible " +
			"every ten minutes, because a worker of another version may be able to decode them. A message whose blob does not exist " +
			"moves after five deliveries, also if this setting is `false`. Not known to .NET",
	},
	{
		Path: "storageProvider.trackingEnabled", Values: boolValue{Set: func(cfg *Config, b bool) { cfg.Storage.Tracking = b }},
		Default: "`false`", Get: func(cfg *Config) any { return cfg.Storage.Tracking },
		Description: "whether every event of every execution is recorded in the table `InstanceHistory00{hubName}`, which `GET " +
			"instances/{instanceId}/tracking` reads. It costs a queue message per step and the requests that move it into the table. Not " +
			"known to .NET",
	},
	{
		Path: "storageProvider.jumpStartEnabled", Values: boolValue{Set: func(cfg *Config, b bool) { cfg.Storage.JumpStart.Enabled = b }},
		Default: "`false`", Get: func(cfg *Config) any { return cfg.Storage.JumpStart.Enabled },
		Description: "whether each start is recorded in a table before it is sent. If it does not arrive, for example because the " +
			"client crashed, it is sent again. It costs three more storage operations per start. Not known to .NET, whose workers ignore the table",
	},
	{
		Path:    "storageProvider.jumpStartTimeout",
		Values:  spanValue{Low: time.Second, High: 24 * time.Hour, Set: func(cfg *Config, d time.Duration) { cfg.Storage.JumpStart.Timeout = d }},
		Default: "`00:10:00`", Get: func(cfg *Config) any { return cfg.Storage.JumpStart.Timeout },
		Description: "the longest time that a recorded start may take to arrive",
	},
	{
		Path:    "storageProvider.jumpStartInterval",
		Values:  spanValue{Low: time.Second, High: time.Hour, Set: func(cfg *Config, d time.Duration) { cfg.Storage.JumpStart.Interval = d }},
		Default: "`00:00:05`", Get: func(cfg *Config) any { return cfg.Storage.JumpStart.Interval },
		Description: "how often a process reads the recorded starts of each of its partitions",
	},
}
