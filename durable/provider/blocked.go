package provider

import "time"

// BlockedPartition is a partition that a worker should serve but cannot.
type BlockedPartition struct {
	Partition int
	Problem   PartitionProblem
	Cause     string
	Since     time.Time // time of the first failure
}

// PartitionProblem is the part of a partition's work that fails.
type PartitionProblem string

// Problems of partitions.
const (
	PartitionNotOpened  PartitionProblem = "notOpened"  // the worker cannot open the partition
	PartitionMailUnread PartitionProblem = "mailUnread" // the worker owns the partition but cannot read its mail
)

// PartitionReporter is a [Client] of a hub whose partitions can fail individually.
type PartitionReporter interface {
	// BlockedPartitions returns the partitions that the worker of this process cannot serve,
	// sorted by partition. all reports whether the worker therefore serves no partition at all.
	// It sends no request.
	BlockedPartitions() (blocked []BlockedPartition, all bool)
}
