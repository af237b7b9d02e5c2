package handler

import (
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
)

// maxQueues is how many partitions a hub in queues and tables has at most.
const maxQueues = 16

// partitionLogSettings are the settings of the storage that count for a hub in partition logs.
var partitionLogSettings = []string{
	"storageProvider.type", "storageProvider.connectionName", "storageProvider.partitionCount",
	"storageProvider.partitionLeaseInterval", "storageProvider.maxQueuePollingInterval",
}

// offInPartitionLog says why another setting has no effect.
func offInPartitionLog(cfg *Config) string {
	if cfg.StorageType == PartitionLog {
		return "storageProvider.type is partitionLog"
	}
	return ""
}

// storageRows say where and how the hub is stored.
var storageRows = []settingRow{
	{
		Path:    "storageProvider.type",
		Values:  choiceValue{Names: storageTypes, Set: func(cfg *Config, i int) { cfg.StorageType = StorageType(i) }},
		Initial: "`AzureStorage`; `embedded` if no storage connection is set or named", Get: func(cfg *Config) any { return cfg.StorageType },
		Does: "what stores the hub: a storage account as .NET lays it out, one local file, or logs in a storage account, which take more work but which .NET cannot read",
	},
	{
		Path: "storageProvider.path",
		Values: textValue{Resolved: true, EmptyIsUnset: true, Words: "the name of a file, relative to the folder of `host.json`", Set: func(cfg *Config, value string) {
			cfg.Embedded.Path = value
		}},
		Initial: "`.durable-{hubName}.db`", Get: func(cfg *Config) any { return cfg.hubFile() },
		Does: "the file of an embedded hub. Some have names that begin with it. In a folder of its own right below `host.json` it would make the Functions host restart the app once, when that folder appears",
	},
	{
		Path:    "storageProvider.relaxedDurability",
		Values:  boolValue{Set: func(cfg *Config, b bool) { cfg.Embedded.Relaxed = b }},
		Initial: "`false`", Get: func(cfg *Config) any { return cfg.Embedded.Relaxed },
		Does: "lets an embedded hub acknowledge writes before they are on the disk. That is faster; a crash of the process loses nothing, a crash of the machine the last moments",
	},
	{
		Path:    "storageProvider.allowNetworkFile",
		Values:  boolValue{Set: func(cfg *Config, b bool) { cfg.Embedded.AllowNetworkFile = b }},
		Initial: "`false`", Get: func(cfg *Config) any { return cfg.Embedded.AllowNetworkFile },
		Does: "opens the file of an embedded hub on a network file system (NFS, SMB, CIFS), such as Azure Files. Locks and memory maps are not safe there: two processes can damage the file. Only Linux checks the file system",
	},
	{
		Path: "storageProvider.connectionName", Older: []string{"connectionStringName"}, Flat: "azureStorageConnectionStringName",
		Values: textValue{Resolved: true, EmptyIsUnset: true, Want: settings.WantSettingName, Hidden: true, Words: "the name of a storage connection, below", Set: func(cfg *Config, value string) {
			cfg.ConnectionName = value
		}},
		Initial: "`Storage`", Get: func(cfg *Config) any { return cfg.ConnectionName },
		Does: "the storage account that the hub is in",
	},
	{
		Path: "storageProvider.partitionCount", Flat: "partitionCount",
		Values: wholeValue{Low: 1, High: partitionlog.MaxPartitionCount, Most: func(cfg *Config) int {
			if cfg.StorageType == AzureStorage {
				return maxQueues
			}
			return partitionlog.MaxPartitionCount
		}, Set: func(cfg *Config, n int) {
			cfg.PartitionLog.PartitionCount, cfg.Storage.PartitionCount = n, min(n, maxQueues)
		}},
		Initial: "4",
		Get: func(cfg *Config) any {
			if cfg.StorageType == PartitionLog {
				return cfg.PartitionLog.PartitionCount
			}
			return cfg.Storage.PartitionCount
		},
		Does: "the number of control queues, or of partition logs, and with it of processes that can share the orchestrations. Up to 16 in queues. It must not change on a hub that exists",
	},
	{
		Path:    "storageProvider.partitionLeaseInterval",
		Values:  spanValue{Low: 15 * time.Second, High: time.Minute, Set: func(cfg *Config, d time.Duration) { cfg.PartitionLog.LeaseInterval = d.Truncate(time.Second) }},
		Initial: "`00:00:30`", Get: func(cfg *Config) any { return cfg.PartitionLog.LeaseInterval },
		Does: "how long a partition log stays with a process that has died. In whole seconds. Only with the type `partitionLog`",
	},
	{
		Path: "storageProvider.controlQueueBatchSize", Flat: "controlQueueBatchSize",
		Values:  wholeValue{Low: 1, High: 32, Set: func(cfg *Config, n int) { cfg.Storage.ControlQueueBatchSize = n }},
		Initial: "32", Get: func(cfg *Config) any { return cfg.Storage.ControlQueueBatchSize },
		Does: "how many messages are received at once",
	},
	{
		Path:    "storageProvider.controlQueueBufferThreshold",
		Values:  wholeValue{Low: 1, High: 1000, Set: func(cfg *Config, n int) { cfg.Storage.ControlQueueBufferThreshold = n }},
		Initial: "256", OnPlan: map[settings.Plan]string{settings.PlanConsumption: "128"},
		Get:  func(cfg *Config) any { return cfg.Storage.ControlQueueBufferThreshold },
		Does: "how many received messages are in memory at most",
	},
	{
		Path: "storageProvider.controlQueueVisibilityTimeout", Flat: "controlQueueVisibilityTimeout",
		Values:  spanValue{Low: time.Minute, High: time.Hour, Set: func(cfg *Config, d time.Duration) { cfg.Storage.ControlQueueVisibilityTimeout = d }},
		Initial: "`00:05:00`", Get: func(cfg *Config) any { return cfg.Storage.ControlQueueVisibilityTimeout },
		Does: "for how long `hub copy` waits for a message that a worker has hidden, such as one in .NET that died; the longer of this and the next counts. A worker of this package hides messages for 30 seconds at a time, whatever this says",
	},
	{
		Path: "storageProvider.workItemQueueVisibilityTimeout", Flat: "workItemQueueVisibilityTimeout",
		Values:  spanValue{Low: time.Minute, High: time.Hour, Set: func(cfg *Config, d time.Duration) { cfg.Storage.WorkItemQueueVisibilityTimeout = d }},
		Initial: "`00:05:00`", Get: func(cfg *Config) any { return cfg.Storage.WorkItemQueueVisibilityTimeout },
		Does: "the same as `controlQueueVisibilityTimeout`",
	},
	{
		Path: "storageProvider.maxQueuePollingInterval", Flat: "maxQueuePollingInterval",
		Values: spanValue{Low: 50 * time.Millisecond, High: time.Hour, Set: func(cfg *Config, d time.Duration) {
			cfg.Storage.MaxQueuePollingInterval, cfg.PartitionLog.MaxPollingInterval = d, min(d, time.Minute)
		}},
		Initial: "`00:00:30`; `00:00:01` with the type `partitionLog`", OnPlan: map[settings.Plan]string{settings.PlanFlex: "00:00:01"},
		Get: func(cfg *Config) any {
			if cfg.StorageType == PartitionLog {
				return cfg.PartitionLog.MaxPollingInterval
			}
			return cfg.Storage.MaxQueuePollingInterval
		},
		Does: "the longest polling interval of an idle queue, or of the mail of a partition log, there a minute at most. A shorter one receives messages of other programs sooner; a longer one costs fewer storage operations",
	},
	{
		Path: "storageProvider.lastUpdatedTolerance",
		Values: spanValue{Low: 0, High: time.Hour, Set: func(cfg *Config, d time.Duration) {
			if d == 0 {
				d = -1
			}
			cfg.Storage.LastUpdatedTolerance = d
		}},
		Initial: "`00:00:03`", Get: func(cfg *Config) any { return max(cfg.Storage.LastUpdatedTolerance, 0) },
		Does: "by how much the time of an instance's last update may be behind. What would change no more than that is not written to its row; zero writes it every time, as .NET does. Not known to .NET",
	},
	{
		Path: "storageProvider.historyCacheMegabytes",
		Values: wholeValue{Low: 0, High: 65_536, Set: func(cfg *Config, n int) {
			if n == 0 {
				n = -1
			}
			cfg.Storage.HistoryCacheBytes = n << 20
		}},
		Initial: "64", Get: func(cfg *Config) any { return max(cfg.Storage.HistoryCacheBytes>>20, 0) },
		Does: "how much memory the histories of instances that go on may take up, so that they need not be read for every episode. Not known to .NET",
	},
	{
		Path: "storageProvider.queueClientMessageEncoding",
		Values: choiceValue{Names: []string{"UTF8", "Base64"}, Set: func(cfg *Config, i int) {
			cfg.Storage.QueueEncoding = []azurestorage.QueueEncoding{azurestorage.UTF8, azurestorage.Base64}[i]
		}},
		Initial: "`UTF8`",
		Get: func(cfg *Config) any {
			if cfg.Storage.QueueEncoding == azurestorage.Base64 {
				return "Base64"
			}
			return "UTF8"
		},
		Does: "how messages are written. Both forms are always read",
	},
	{
		Path: "storageProvider.trackingStoreConnectionName", Older: []string{"trackingStoreConnectionStringName"}, Flat: "trackingStoreConnectionStringName",
		Values: textValue{Resolved: true, EmptyIsUnset: true, Want: settings.WantSettingName, Hidden: true, Words: "the name of a storage connection, below", Set: func(cfg *Config, value string) {
			cfg.TrackingStoreConnectionName = value
		}},
		Initial: "none", Get: func(cfg *Config) any { return cfg.TrackingStoreConnectionName },
		Does: "a storage account of its own for the tables and blobs of the hub, as in .NET; the queues stay in that of `connectionName`. It must not change on a hub that exists",
	},
	{
		Path: "storageProvider.trackingStoreNamePrefix", Flat: "trackingStoreNamePrefix",
		Values: textValue{
			Resolved: true, EmptyIsUnset: true, Words: "1 to 54 letters and digits, the first a letter", Pattern: "^[A-Za-z][A-Za-z0-9]{0,53}$",
			Want: func(value string) string {
				if azurestorage.ValidateTrackingPrefix(value) == nil {
					return ""
				}
				return "1 to 54 letters and digits, the first a letter"
			},
			Set: func(cfg *Config, value string) { cfg.Storage.TrackingStoreNamePrefix = value },
		},
		Initial: "`DurableTask`", Get: func(cfg *Config) any { return cfg.Storage.TrackingStoreNamePrefix },
		Does: "what the names of the tables with histories and instances begin with in an account of their own, instead of the hub's name. " +
			"Hubs that share such an account need a prefix each. Without such an account it has no effect",
	},
	{
		Path: "storageProvider.fetchLargeMessagesAutomatically", Values: boolValue{}, Initial: "`true`",
		Does:  "reads payloads from blobs when a status is asked for",
		Inert: "payloads are always read when they are asked for",
	},
	{
		Path: "storageProvider.allowReplayingTerminalInstances", Values: boolValue{}, Initial: "`false`",
		Does: "runs instances that have ended again when a message comes", Inert: "an instance that has ended stays so",
	},
}

// partitionRows say how the processes of a hub share its partitions.
var partitionRows = []settingRow{
	{
		Path: "storageProvider.useTablePartitionManagement",
		Values: boolValue{Set: func(cfg *Config, b bool) {
			if !b {
				cfg.Storage.PartitionManager = azurestorage.SafeBlobLeases
			}
		}},
		Initial: "`true`", Get: func(cfg *Config) any { return cfg.Storage.PartitionManager == azurestorage.TablePartitions },
		Does: "shares the partitions by a table; `false` by the leases of blobs. All processes on a hub must agree, those of .NET too",
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
		Initial: "`false`", Get: func(cfg *Config) any { return cfg.Storage.PartitionManager == azurestorage.LegacyBlobLeases },
		Does: "with `useTablePartitionManagement` `false`, shares them by the leases of version 1, without the hand-over of later ones",
	},
	{
		Path: "useAppLease", Values: boolValue{Set: func(cfg *Config, b bool) { cfg.Storage.AppLease.Disabled = !b }},
		Initial: "`true`", Get: func(cfg *Config) any { return !cfg.Storage.AppLease.Disabled },
		Does: "lets only one of the apps on a hub work on it, whichever number of processes it has. Apps differ by `WEBSITE_SITE_NAME`",
	},
	{
		Path:    "appLeaseOptions.acquireInterval",
		Values:  spanValue{Low: time.Second, High: 24 * time.Hour, Set: func(cfg *Config, d time.Duration) { cfg.Storage.AppLease.AcquireInterval = d }},
		Initial: "`00:05:00`", Get: func(cfg *Config) any { return cfg.Storage.AppLease.AcquireInterval },
		Does: "how often an app without the lease tries to acquire it",
	},
	{
		Path:    "appLeaseOptions.leaseInterval",
		Values:  spanValue{Low: 15 * time.Second, High: time.Minute, Set: func(cfg *Config, d time.Duration) { cfg.Storage.AppLease.Interval = d }},
		Initial: "`00:01:00`", Get: func(cfg *Config) any { return cfg.Storage.AppLease.Interval },
		Does: "how long the lease lasts",
	},
	{
		Path:    "appLeaseOptions.renewInterval",
		Values:  spanValue{Low: time.Second, High: time.Minute, Set: func(cfg *Config, d time.Duration) { cfg.Storage.AppLease.RenewInterval = d }},
		Initial: "`00:00:25`", Get: func(cfg *Config) any { return cfg.Storage.AppLease.RenewInterval },
		Does: "how often the lease is renewed; less than `leaseInterval`",
	},
	{
		Path: "storageProvider.setAsideUndecodableMessages", Values: boolValue{Set: func(cfg *Config, b bool) { cfg.Storage.SetAsideUndecodable = b }},
		Initial: "`false`", Get: func(cfg *Config) any { return cfg.Storage.SetAsideUndecodable },
		Does: "moves messages that this process cannot decode and has received ten times, which takes some 17 minutes, into queues whose names end with `-poison`; " +
			"`bin/app hub retry-undecodable` puts them back. Otherwise they stay, as in .NET, and become visible every ten minutes: a worker of another version or engine may be able to decode them. Not known to .NET",
	},
	{
		Path: "storageProvider.trackingEnabled", Values: boolValue{Set: func(cfg *Config, b bool) { cfg.Storage.Tracking = b }},
		Initial: "`false`", Get: func(cfg *Config) any { return cfg.Storage.Tracking },
		Does: "tracks the orchestrations: records every event of every execution in the table `InstanceHistory00{hubName}`, which `GET instances/{instanceId}/tracking` reads. " +
			"A queue message for each checkpoint, and what moves it into the table. Not known to .NET",
	},
	{
		Path: "storageProvider.jumpStartEnabled", Values: boolValue{Set: func(cfg *Config, b bool) { cfg.Storage.JumpStart.Enabled = b }},
		Initial: "`false`", Get: func(cfg *Config) any { return cfg.Storage.JumpStart.Enabled },
		Does: "records each start in a table before it is sent, and sends it again if it does not arrive, as when the client dies in between. Three more storage operations a start. Not known to .NET, whose workers take no notice of the table",
	},
	{
		Path:    "storageProvider.jumpStartTimeout",
		Values:  spanValue{Low: time.Second, High: 24 * time.Hour, Set: func(cfg *Config, d time.Duration) { cfg.Storage.JumpStart.Timeout = d }},
		Initial: "`00:10:00`", Get: func(cfg *Config) any { return cfg.Storage.JumpStart.Timeout },
		Does: "how long a recorded start may take to arrive",
	},
	{
		Path:    "storageProvider.jumpStartInterval",
		Values:  spanValue{Low: time.Second, High: time.Hour, Set: func(cfg *Config, d time.Duration) { cfg.Storage.JumpStart.Interval = d }},
		Initial: "`00:00:05`", Get: func(cfg *Config) any { return cfg.Storage.JumpStart.Interval },
		Does: "how often a process looks at the records of each of its partitions",
	},
}
