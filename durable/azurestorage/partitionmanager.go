package azurestorage

import "fmt"

// A PartitionManager is a way to keep who reads which control queue. Workers of
// one hub must all use the same: they do not see each other's leases otherwise.
type PartitionManager int

const (
	// TablePartitions keeps a row for each partition in the hub's partitions
	// table. It is the default of the .NET extension 3.x.
	TablePartitions PartitionManager = iota
	// SafeBlobLeases keeps two blobs for each partition, one that says who is to
	// have it and one that says who has it. It is the default of the .NET
	// extension 2.x.
	SafeBlobLeases
	// LegacyBlobLeases keeps one blob for each partition. While a partition moves
	// from or to a worker in .NET, both may read its queue for some seconds; each
	// instance is still written by one of them only.
	LegacyBlobLeases
)

var partitionManagerNames = [...]string{"table", "safe blob-lease", "legacy blob-lease"}

// String returns the manager's name, such as "table".
func (m PartitionManager) String() string {
	if m < 0 || int(m) >= len(partitionManagerNames) {
		return fmt.Sprintf("PartitionManager(%d)", int(m))
	}
	return partitionManagerNames[m]
}

// A PartitionManagerError says that workers are at work on a hub that keep its
// partitions in another way than this one. Each would read all queues.
type PartitionManagerError struct {
	TaskHub    string
	Configured PartitionManager
	Active     PartitionManager
}

// Error names both managers.
func (e *PartitionManagerError) Error() string {
	return fmt.Sprintf("task hub %s is being worked on with the %s partition manager, but the %s partition manager is configured here: "+
		"configure the same everywhere (useTablePartitionManagement, useLegacyPartitionManagement), or stop the other workers first",
		e.TaskHub, e.Active, e.Configured)
}
