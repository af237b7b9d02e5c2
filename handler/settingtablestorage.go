package handler

import (
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
)

// storageRows say where and how the hub is stored.
var storageRows = []settingRow{
	{
		path:    "storageProvider.type",
		values:  choiceValue{names: storageTypes, set: func(cfg *Config, i int) { cfg.StorageType = StorageType(i) }},
		initial: "`AzureStorage`; `embedded` if no storage connection is set or named", get: func(cfg *Config) any { return cfg.StorageType },
		does: "what stores the hub: a storage account, or one local file",
	},
	{
		path: "storageProvider.path",
		values: textValue{resolved: true, emptyIsUnset: true, words: "the name of a file, relative to the folder of `host.json`", set: func(cfg *Config, value string) {
			cfg.Embedded.Path = value
		}},
		initial: "`.durable-{hubName}.db`", get: func(cfg *Config) any { return cfg.hubFile() },
		does: "the file of an embedded hub. Some have names that begin with it. In a folder of its own right below `host.json` it would make the Functions host restart the app once, when that folder appears",
	},
	{
		path:    "storageProvider.relaxedDurability",
		values:  boolValue{set: func(cfg *Config, b bool) { cfg.Embedded.Relaxed = b }},
		initial: "`false`", get: func(cfg *Config) any { return cfg.Embedded.Relaxed },
		does: "lets an embedded hub acknowledge before the disk has it. That is faster; the death of the process takes nothing away, but that of the machine takes the last moments",
	},
	{
		path: "storageProvider.connectionName", older: []string{"connectionStringName"}, flat: "azureStorageConnectionStringName",
		values: textValue{resolved: true, emptyIsUnset: true, must: mustBeSettingName, hidden: true, words: "the name of a storage connection, below", set: func(cfg *Config, value string) {
			cfg.ConnectionName = value
		}},
		initial: "`Storage`", get: func(cfg *Config) any { return cfg.ConnectionName },
		does: "the storage account that the hub is in",
	},
	{
		path: "storageProvider.partitionCount", flat: "partitionCount",
		values:  wholeValue{low: 1, high: 16, set: func(cfg *Config, n int) { cfg.Storage.PartitionCount = n }},
		initial: "4", get: func(cfg *Config) any { return cfg.Storage.PartitionCount },
		does: "the number of control queues, and with it of processes that can share the orchestrations. It must not change on a hub that exists",
	},
	{
		path: "storageProvider.controlQueueBatchSize", flat: "controlQueueBatchSize",
		values:  wholeValue{low: 1, high: 32, set: func(cfg *Config, n int) { cfg.Storage.ControlQueueBatchSize = n }},
		initial: "32", get: func(cfg *Config) any { return cfg.Storage.ControlQueueBatchSize },
		does: "how many messages are received at once",
	},
	{
		path:    "storageProvider.controlQueueBufferThreshold",
		values:  wholeValue{low: 1, high: 1000, set: func(cfg *Config, n int) { cfg.Storage.ControlQueueBufferThreshold = n }},
		initial: "256", onPlan: map[plan]string{planConsumption: "128"},
		get:  func(cfg *Config) any { return cfg.Storage.ControlQueueBufferThreshold },
		does: "how many received messages are in memory at most",
	},
	{
		path: "storageProvider.controlQueueVisibilityTimeout", flat: "controlQueueVisibilityTimeout",
		values:  spanValue{low: time.Minute, high: time.Hour, set: func(cfg *Config, d time.Duration) { cfg.Storage.ControlQueueVisibilityTimeout = d }},
		initial: "`00:05:00`", get: func(cfg *Config) any { return cfg.Storage.ControlQueueVisibilityTimeout },
		does: "for how long `hub copy` waits for a message that a worker has hidden, such as one in .NET that died; the longer of this and the next counts. A worker of this package hides messages for 30 seconds at a time, whatever this says",
	},
	{
		path: "storageProvider.workItemQueueVisibilityTimeout", flat: "workItemQueueVisibilityTimeout",
		values:  spanValue{low: time.Minute, high: time.Hour, set: func(cfg *Config, d time.Duration) { cfg.Storage.WorkItemQueueVisibilityTimeout = d }},
		initial: "`00:05:00`", get: func(cfg *Config) any { return cfg.Storage.WorkItemQueueVisibilityTimeout },
		does: "the same as `controlQueueVisibilityTimeout`",
	},
	{
		path: "storageProvider.maxQueuePollingInterval", flat: "maxQueuePollingInterval",
		values:  spanValue{low: 50 * time.Millisecond, high: time.Hour, set: func(cfg *Config, d time.Duration) { cfg.Storage.MaxQueuePollingInterval = d }},
		initial: "`00:00:30`", onPlan: map[plan]string{planFlex: "00:00:01"},
		get:  func(cfg *Config) any { return cfg.Storage.MaxQueuePollingInterval },
		does: "how seldom an idle queue is looked at. Shorter sees sooner what another program sends; longer costs fewer storage operations",
	},
	{
		path: "storageProvider.lastUpdatedTolerance",
		values: spanValue{low: 0, high: time.Hour, set: func(cfg *Config, d time.Duration) {
			if d == 0 {
				d = -1
			}
			cfg.Storage.LastUpdatedTolerance = d
		}},
		initial: "`00:00:03`", get: func(cfg *Config) any { return max(cfg.Storage.LastUpdatedTolerance, 0) },
		does: "by how much the time of an instance's last update may be behind. What would change no more than that is not written to its row; zero writes it every time, as .NET does. Not known to .NET",
	},
	{
		path: "storageProvider.historyCacheMegabytes",
		values: wholeValue{low: 0, high: 65_536, set: func(cfg *Config, n int) {
			if n == 0 {
				n = -1
			}
			cfg.Storage.HistoryCacheBytes = n << 20
		}},
		initial: "64", get: func(cfg *Config) any { return max(cfg.Storage.HistoryCacheBytes>>20, 0) },
		does: "how much memory the histories of instances that go on may take up, so that they need not be read for every episode. Not known to .NET",
	},
	{
		path: "storageProvider.queueClientMessageEncoding",
		values: choiceValue{names: []string{"UTF8", "Base64"}, set: func(cfg *Config, i int) {
			cfg.Storage.QueueEncoding = []azurestorage.QueueEncoding{azurestorage.UTF8, azurestorage.Base64}[i]
		}},
		initial: "`UTF8`",
		get: func(cfg *Config) any {
			if cfg.Storage.QueueEncoding == azurestorage.Base64 {
				return "Base64"
			}
			return "UTF8"
		},
		does: "how messages are written. Both forms are always read",
	},
	{
		path: "storageProvider.trackingStoreConnectionName", older: []string{"trackingStoreConnectionStringName"}, flat: "trackingStoreConnectionStringName",
		values: textValue{resolved: true, emptyIsUnset: true, must: mustBeSettingName, hidden: true, words: "the name of a storage connection, below", set: func(cfg *Config, value string) {
			cfg.TrackingStoreConnectionName = value
		}},
		initial: "none", get: func(cfg *Config) any { return cfg.TrackingStoreConnectionName },
		does: "a storage account of its own for the tables and blobs of the hub, as in .NET; the queues stay in that of `connectionName`. It must not change on a hub that exists",
	},
	{
		path: "storageProvider.trackingStoreNamePrefix", flat: "trackingStoreNamePrefix",
		values: textValue{
			resolved: true, emptyIsUnset: true, words: "1 to 54 letters and digits, the first a letter", pattern: "^[A-Za-z][A-Za-z0-9]{0,53}$",
			must: func(value string) string {
				if azurestorage.ValidateTrackingPrefix(value) == nil {
					return ""
				}
				return "1 to 54 letters and digits, the first a letter"
			},
			set: func(cfg *Config, value string) { cfg.Storage.TrackingStoreNamePrefix = value },
		},
		initial: "`DurableTask`", get: func(cfg *Config) any { return cfg.Storage.TrackingStoreNamePrefix },
		does: "what the names of the tables with histories and instances begin with in an account of their own, instead of the hub's name. " +
			"Hubs that share such an account need a prefix each. Without such an account it has no effect",
	},
	{
		path: "storageProvider.fetchLargeMessagesAutomatically", values: boolValue{}, initial: "`true`",
		does:  "reads payloads from blobs when a status is asked for",
		inert: "payloads are always read when they are asked for",
	},
	{
		path: "storageProvider.allowReplayingTerminalInstances", values: boolValue{}, initial: "`false`",
		does: "runs instances that have ended again when a message comes", inert: "an instance that has ended stays so",
	},
}

// partitionRows say how the processes of a hub share its partitions.
var partitionRows = []settingRow{
	{
		path: "storageProvider.useTablePartitionManagement",
		values: boolValue{set: func(cfg *Config, b bool) {
			if !b {
				cfg.Storage.PartitionManager = azurestorage.SafeBlobLeases
			}
		}},
		initial: "`true`", get: func(cfg *Config) any { return cfg.Storage.PartitionManager == azurestorage.TablePartitions },
		does: "shares the partitions by a table; `false` by the leases of blobs. All processes on a hub must agree, those of .NET too",
	},
	{
		path: "storageProvider.useLegacyPartitionManagement",
		values: boolValue{set: func(cfg *Config, b bool) {
			if b && cfg.Storage.PartitionManager == azurestorage.SafeBlobLeases {
				cfg.Storage.PartitionManager = azurestorage.LegacyBlobLeases
			}
		}},
		check: func(cfg *Config, path string, s setting) error {
			if !s.isTrue() || cfg.Storage.PartitionManager == azurestorage.LegacyBlobLeases {
				return nil
			}
			return fmt.Errorf("%s is true, but so is useTablePartitionManagement: set that to false (%s)", path, s.source)
		},
		initial: "`false`", get: func(cfg *Config) any { return cfg.Storage.PartitionManager == azurestorage.LegacyBlobLeases },
		does: "with `useTablePartitionManagement` `false`, shares them by the leases of version 1, without the hand-over of later ones",
	},
	{
		path: "useAppLease", values: boolValue{set: func(cfg *Config, b bool) { cfg.Storage.AppLease.Disabled = !b }},
		initial: "`true`", get: func(cfg *Config) any { return !cfg.Storage.AppLease.Disabled },
		does: "lets only one of the apps on a hub work on it, whichever number of processes it has. Apps differ by `WEBSITE_SITE_NAME`",
	},
	{
		path:    "appLeaseOptions.acquireInterval",
		values:  spanValue{low: time.Second, high: 24 * time.Hour, set: func(cfg *Config, d time.Duration) { cfg.Storage.AppLease.AcquireInterval = d }},
		initial: "`00:05:00`", get: func(cfg *Config) any { return cfg.Storage.AppLease.AcquireInterval },
		does: "how often an app that does not have the lease asks for it",
	},
	{
		path:    "appLeaseOptions.leaseInterval",
		values:  spanValue{low: 15 * time.Second, high: time.Minute, set: func(cfg *Config, d time.Duration) { cfg.Storage.AppLease.Interval = d }},
		initial: "`00:01:00`", get: func(cfg *Config) any { return cfg.Storage.AppLease.Interval },
		does: "how long it is taken for",
	},
	{
		path:    "appLeaseOptions.renewInterval",
		values:  spanValue{low: time.Second, high: time.Minute, set: func(cfg *Config, d time.Duration) { cfg.Storage.AppLease.RenewInterval = d }},
		initial: "`00:00:25`", get: func(cfg *Config) any { return cfg.Storage.AppLease.RenewInterval },
		does: "how often it is renewed; less than `leaseInterval`",
	},
	{
		path: "storageProvider.setAsideUndecodableMessages", values: boolValue{set: func(cfg *Config, b bool) { cfg.Storage.SetAsideUndecodable = b }},
		initial: "`false`", get: func(cfg *Config) any { return cfg.Storage.SetAsideUndecodable },
		does: "moves messages that this process cannot decode and has received ten times, which takes some 17 minutes, into queues beside their own, whose names end with `-poison`; " +
			"`bin/app hub retry-undecodable` puts them back. Otherwise they stay, as in .NET, and are looked at every ten minutes: a worker of another version or engine may be able to decode them. Not known to .NET",
	},
	{
		path: "storageProvider.trackingEnabled", values: boolValue{set: func(cfg *Config, b bool) { cfg.Storage.Tracking = b }},
		initial: "`false`", get: func(cfg *Config) any { return cfg.Storage.Tracking },
		does: "keeps an audit of the orchestrations: every event of every execution, in the table `InstanceHistory00{hubName}`, which `GET instances/{instanceId}/tracking` reads. " +
			"A queue message for each checkpoint, and what moves it into the table. Not known to .NET",
	},
	{
		path: "storageProvider.jumpStartEnabled", values: boolValue{set: func(cfg *Config, b bool) { cfg.Storage.JumpStart.Enabled = b }},
		initial: "`false`", get: func(cfg *Config) any { return cfg.Storage.JumpStart.Enabled },
		does: "records each start in a table before it is sent, and sends it again if it does not arrive, as when the client dies in between. Three more storage operations a start. Not known to .NET, whose workers take no notice of the table",
	},
	{
		path:    "storageProvider.jumpStartTimeout",
		values:  spanValue{low: time.Second, high: 24 * time.Hour, set: func(cfg *Config, d time.Duration) { cfg.Storage.JumpStart.Timeout = d }},
		initial: "`00:10:00`", get: func(cfg *Config) any { return cfg.Storage.JumpStart.Timeout },
		does: "how long a recorded start may take to arrive",
	},
	{
		path:    "storageProvider.jumpStartInterval",
		values:  spanValue{low: time.Second, high: time.Hour, set: func(cfg *Config, d time.Duration) { cfg.Storage.JumpStart.Interval = d }},
		initial: "`00:00:05`", get: func(cfg *Config) any { return cfg.Storage.JumpStart.Interval },
		does: "how often a process looks at the records of each of its partitions",
	},
}
