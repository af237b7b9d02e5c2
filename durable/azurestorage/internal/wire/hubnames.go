package wire

import (
	"fmt"
	"strings"
)

// HubNames gives the names of a task hub's storage resources. Tables keep the
// case of the hub's name, queues and containers are lower case
// (DurableTask.AzureStorage/AzureStorageOrchestrationServiceSettings.cs,
// HistoryTableName and others; AzureStorageOrchestrationService.cs,
// GetControlQueueName and others).
type HubNames struct {
	hub   string // as configured
	lower string // as in the names of queues, containers and blobs
	store string // what the names of History and Instances begin with
}

// NewHubNames returns the names of the resources of a hub.
func NewHubNames(hub string) HubNames {
	return HubNames{hub: hub, lower: strings.ToLower(hub), store: hub}
}

// WithTrackingStore returns the names of a hub whose tables are in an account of
// their own. Only History and Instances are called after the prefix, the table
// of partitions is not (AzureStorageOrchestrationServiceSettings.cs,
// HistoryTableName, InstanceTableName and PartitionTableName).
func (n HubNames) WithTrackingStore(prefix string) HubNames {
	n.store = prefix
	return n
}

// HistoryTable holds the events of all instances.
func (n HubNames) HistoryTable() string { return n.store + "History" }

// InstancesTable holds one row for each instance.
func (n HubNames) InstancesTable() string { return n.store + "Instances" }

// PartitionsTable holds one row for each control queue: who reads it.
func (n HubNames) PartitionsTable() string { return n.hub + "Partitions" }

// ControlQueue holds the messages for the instances of partition i, from 0. The
// name is the partition's ID, too.
func (n HubNames) ControlQueue(i int) string { return fmt.Sprintf("%s-control-%02d", n.lower, i) }

// WorkItemQueue holds the activities to run.
func (n HubNames) WorkItemQueue() string { return n.lower + "-workitems" }

// Aside holds the undecodable messages of a queue that were set aside.
// It has the ending that the Functions host gives such queues, the longest for which
// there is room.
func (n HubNames) Aside(queue string) string { return queue + "-poison" }

// JumpStartTable holds the records of starts, if they are kept.
func (n HubNames) JumpStartTable() string { return "JumpStart00" + n.hub }

// TrackingQueue and InstanceHistoryTable carry and hold the tracking records of
// orchestrations, if they are kept. The table has the name that the
// framework gave it (DurableTask.ServiceBus/Tracking/AzureTableConstants.cs,
// InstanceHistoryTableNamePrefix).
func (n HubNames) TrackingQueue() string { return n.lower + "-tracking" }

// InstanceHistoryTable is the audit; see TrackingQueue.
func (n HubNames) InstanceHistoryTable() string { return "InstanceHistory00" + n.hub }

// LargeMessages is the container of messages and columns that are too large
// for a queue or a table. It comes to be with the first of them.
func (n HubNames) LargeMessages() string { return n.lower + "-largemessages" }

// Leases is the container of the blob partition managers.
func (n HubNames) Leases() string { return n.lower + "-leases" }

// TaskHubInfo is the blob in Leases that describes the hub.
func (n HubNames) TaskHubInfo() string { return "taskhub.json" }

// AppLease is the container whose lease says which app may work on the hub.
func (n HubNames) AppLease() string { return n.lower + "-applease" }

// Log is the container of a hub of the same name in partition logs.
func (n HubNames) Log() string { return n.lower + "-log" }

// LogInfo is the blob in Log that describes the hub.
func (n HubNames) LogInfo() string { return "hub.json" }

// AppLeaseInfo is the blob in AppLease that says who holds the lease.
func (n HubNames) AppLeaseInfo() string { return n.lower + "-appleaseinfo" }
