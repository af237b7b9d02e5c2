package wire

import (
	"fmt"
	"strings"
)

// HubNames returns the names of a task hub's storage resources. Names of tables keep the case of the
// hub's name. Names of queues and containers are in lower case
// (DurableTask.AzureStorage/AzureStorageOrchestrationServiceSettings.cs, HistoryTableName and others;
// AzureStorageOrchestrationService.cs, GetControlQueueName and others).
type HubNames struct {
	hub   string // as configured
	lower string // for queues, containers and blobs
	store string // prefix of the History and Instances tables
}

// NewHubNames returns the names for a hub.
func NewHubNames(hub string) HubNames {
	return HubNames{hub: hub, lower: strings.ToLower(hub), store: hub}
}

// WithTrackingStore returns the names for a hub whose tables are in a separate account. The prefix
// applies only to the History and Instances tables, not to the Partitions table
// (AzureStorageOrchestrationServiceSettings.cs, HistoryTableName, InstanceTableName and
// PartitionTableName).
func (n HubNames) WithTrackingStore(prefix string) HubNames {
	n.store = prefix
	return n
}

// HistoryTable returns the name of the table with the events of all instances.
func (n HubNames) HistoryTable() string { return n.store + "History" }

// InstancesTable returns the name of the table with one row per instance.
func (n HubNames) InstancesTable() string { return n.store + "Instances" }

// PartitionsTable returns the name of the table with one row per control queue, which names its owner.
func (n HubNames) PartitionsTable() string { return n.hub + "Partitions" }

// ControlQueue returns the name of the control queue of partition i, from 0. It is also the
// partition's ID.
func (n HubNames) ControlQueue(i int) string { return fmt.Sprintf("%s-control-%02d", n.lower, i) }

// WorkItemQueue returns the name of the queue with the activities to run.
func (n HubNames) WorkItemQueue() string { return n.lower + "-workitems" }

// PoisonQueue returns the name of the queue for undecodable messages of queue. The suffix is the
// Functions host's suffix for such queues; a longer one would not fit.
func (n HubNames) PoisonQueue(queue string) string { return queue + "-poison" }

// JumpStartTable returns the name of the table with the records of starts, if they are enabled.
func (n HubNames) JumpStartTable() string { return "JumpStart00" + n.hub }

// TrackingQueue returns the name of the queue for tracking records, if they are enabled.
func (n HubNames) TrackingQueue() string { return n.lower + "-tracking" }

// InstanceHistoryTable returns the name of the table with tracking records, if they are enabled. It is
// the framework's name (DurableTask.ServiceBus/Tracking/AzureTableConstants.cs,
// InstanceHistoryTableNamePrefix).
func (n HubNames) InstanceHistoryTable() string { return "InstanceHistory00" + n.hub }

// LargeMessageContainer returns the name of the container for large messages and columns. It is
// created with its first blob.
func (n HubNames) LargeMessageContainer() string { return n.lower + "-largemessages" }

// LeaseContainer returns the name of the blob partition managers' container.
func (n HubNames) LeaseContainer() string { return n.lower + "-leases" }

// TaskHubInfoBlob returns the name of the blob in LeaseContainer that describes the hub.
func (n HubNames) TaskHubInfoBlob() string { return "taskhub.json" }

// AppLeaseContainer returns the name of the container whose lease is the app lease.
func (n HubNames) AppLeaseContainer() string { return n.lower + "-applease" }

// PartitionLogContainer returns the name of the container of a partition log hub with the same name.
func (n HubNames) PartitionLogContainer() string { return n.lower + "-log" }

// PartitionLogInfoBlob returns the name of the blob in PartitionLogContainer that describes the hub.
func (n HubNames) PartitionLogInfoBlob() string { return "hub.json" }

// AppLeaseInfoBlob returns the name of the blob in AppLeaseContainer that names the owner of the app
// lease.
func (n HubNames) AppLeaseInfoBlob() string { return n.lower + "-appleaseinfo" }
