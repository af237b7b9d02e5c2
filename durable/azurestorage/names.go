package azurestorage

import (
	"fmt"
	"strings"
	"unicode"
)

// hubNames gives the names of a task hub's storage resources. Tables keep the
// case of the hub's name, queues and containers are lower case
// (DurableTask.AzureStorage/AzureStorageOrchestrationServiceSettings.cs,
// HistoryTableName and others; AzureStorageOrchestrationService.cs,
// GetControlQueueName and others).
type hubNames struct {
	hub   string // as configured
	lower string // as in the names of queues, containers and blobs
	store string // what the names of History and Instances begin with
}

func newHubNames(hub string) hubNames {
	return hubNames{hub: hub, lower: strings.ToLower(hub), store: hub}
}

// withTrackingStore returns the names of a hub whose tables are in an account of
// their own. Only History and Instances are called after the prefix, the table
// of partitions is not (AzureStorageOrchestrationServiceSettings.cs,
// HistoryTableName, InstanceTableName and PartitionTableName).
func (n hubNames) withTrackingStore(prefix string) hubNames {
	n.store = prefix
	return n
}

// HistoryTable holds the events of all instances.
func (n hubNames) HistoryTable() string { return n.store + "History" }

// InstancesTable holds one row for each instance.
func (n hubNames) InstancesTable() string { return n.store + "Instances" }

// PartitionsTable holds one row for each control queue: who reads it.
func (n hubNames) PartitionsTable() string { return n.hub + "Partitions" }

// ControlQueue holds the messages for the instances of partition i, from 0. The
// name is the partition's ID, too.
func (n hubNames) ControlQueue(i int) string { return fmt.Sprintf("%s-control-%02d", n.lower, i) }

// WorkItemQueue holds the activities to run.
func (n hubNames) WorkItemQueue() string { return n.lower + "-workitems" }

// Aside holds the messages of a queue that were set aside since nobody can decode them.
// It has the ending that the Functions host gives such queues, the longest for which
// there is room.
func (n hubNames) Aside(queue string) string { return queue + "-poison" }

// JumpStartTable holds the records of starts, if they are kept.
func (n hubNames) JumpStartTable() string { return "JumpStart00" + n.hub }

// TrackingQueue and InstanceHistoryTable are what an audit of the orchestrations
// goes through and ends in, if it is kept. The table has the name that the
// framework gave it (DurableTask.ServiceBus/Tracking/AzureTableConstants.cs,
// InstanceHistoryTableNamePrefix).
func (n hubNames) TrackingQueue() string { return n.lower + "-tracking" }

// InstanceHistoryTable is the audit; see TrackingQueue.
func (n hubNames) InstanceHistoryTable() string { return "InstanceHistory00" + n.hub }

// LargeMessages is the container of messages and columns that are too large
// for a queue or a table. It comes to be with the first of them.
func (n hubNames) LargeMessages() string { return n.lower + "-largemessages" }

// Leases is the container of the blob partition managers.
func (n hubNames) Leases() string { return n.lower + "-leases" }

// TaskHubInfo is the blob in Leases that describes the hub.
func (n hubNames) TaskHubInfo() string { return "taskhub.json" }

// AppLease is the container whose lease says which app may work on the hub.
func (n hubNames) AppLease() string { return n.lower + "-applease" }

// AppLeaseInfo is the blob in AppLease that says who holds the lease.
func (n hubNames) AppLeaseInfo() string { return n.lower + "-appleaseinfo" }

// The bounds of a hub's name, in characters.
const (
	MinHubNameLength = 3
	MaxHubNameLength = 45
)

// ValidateHubName reports whether name can name a task hub: 3 to 45 ASCII
// letters and digits, of which the first is a letter. All names made from such
// a one are valid for tables, queues and containers.
func ValidateHubName(name string) error {
	if len(name) < MinHubNameLength || len(name) > MaxHubNameLength {
		return hubNameError(name)
	}
	for i, c := range []byte(name) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		digit := '0' <= c && c <= '9'
		if !letter && (!digit || i == 0) {
			return hubNameError(name)
		}
	}
	return nil
}

// ValidateTrackingPrefix reports whether the names of tables can begin with
// prefix: 1 to 54 ASCII letters and digits, of which the first is a letter.
func ValidateTrackingPrefix(prefix string) error {
	for i, c := range []byte(prefix) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if digit := '0' <= c && c <= '9'; !letter && (!digit || i == 0) {
			return trackingPrefixError(prefix)
		}
	}
	if len(prefix) < 1 || len(prefix) > maxTrackingPrefixLength {
		return trackingPrefixError(prefix)
	}
	return nil
}

// maxTrackingPrefixLength leaves room for "Instances" in the name of a table.
const maxTrackingPrefixLength = 63 - len("Instances")

func trackingPrefixError(prefix string) error {
	return fmt.Errorf("tracking store prefix %q: want 1 to %d letters and digits, beginning with a letter", prefix, maxTrackingPrefixLength)
}

func hubNameError(name string) error {
	return fmt.Errorf("task hub name %q: want %d to %d letters and digits, beginning with a letter",
		name, MinHubNameLength, MaxHubNameLength)
}

// SanitizeHubName makes a hub's name out of one that was not chosen as such,
// like that of a web site, the way the .NET extension does
// (WebJobs.Extensions.DurableTask/Options/AzureStorageOptions.cs,
// SanitizeHubName): it drops all but letters and digits, puts "t" before a
// leading digit, cuts the result to 45 characters and makes it at least 3 long.
// As in .NET, letters outside ASCII stay, and [ValidateHubName] refuses them.
func SanitizeHubName(name string) string {
	kept := strings.Map(func(r rune) rune {
		// char.IsLetterOrDigit sees UTF-16 units and knows no letter beyond U+FFFF.
		if r <= 0xFFFF && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return -1
	}, name)
	if kept == "" {
		return "DefaultTaskHub"
	}
	runes := []rune(kept)
	if unicode.IsDigit(runes[0]) {
		runes = append([]rune{'t'}, runes...)
	}
	if len(runes) > MaxHubNameLength {
		runes = runes[:MaxHubNameLength]
	}
	if len(runes) < MinHubNameLength {
		return string(runes) + "Hub"
	}
	return string(runes)
}
