package provider

import "time"

// BlockedPartition is a partition that a worker should serve and cannot.
type BlockedPartition struct {
	Partition int
	Problem   PartitionProblem
	Cause     string
	Since     time.Time // the first failure
}

// PartitionProblem is the part of a partition's work that a worker cannot do.
type PartitionProblem string

// The problems of partitions.
const (
	PartitionNotOpened  PartitionProblem = "notOpened"  // the worker cannot open the partition
	PartitionMailUnread PartitionProblem = "mailUnread" // the worker has the partition and cannot read its mail
)

// PartitionReporter is a [Client] of a hub whose partitions can fail one by one.
type PartitionReporter interface {
	// BlockedPartitions returns the partitions that the worker of this process cannot serve, in
	// their order, and whether it serves no partition at all because of them. It sends no request.
	BlockedPartitions() (blocked []BlockedPartition, all bool)
}
