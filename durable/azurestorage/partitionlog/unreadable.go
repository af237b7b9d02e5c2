package partitionlog

import (
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/runs"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition"
)

// UnreadableError is the error of a request that needs records in a damaged or missing part of a
// partition's base. The other records of the partition are readable.
type UnreadableError struct {
	Partition int
	Cause     error // names the range of the records and the base file
}

// Error names the partition, the damage and the required action.
func (e *UnreadableError) Error() string {
	return fmt.Sprintf("partition %d: %v; restore the base file, and look for more damage with `hub repair`", e.Partition, e.Cause)
}

// Unwrap returns the cause.
func (e *UnreadableError) Unwrap() error { return e.Cause }

// unreadable converts errors of damaged records to an *[UnreadableError].
func (s *partitionHandle) unreadable(err error) error {
	if partition.IsDamage(err) || errors.As(err, new(*runs.DamageError)) {
		return &UnreadableError{s.number, err}
	}
	return err
}
