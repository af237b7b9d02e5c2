package logstore

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed is returned by a store that was closed.
	ErrClosed = errors.New("task hub is closed")

	// ErrTooLarge is returned by a [Log] for a group that exceeds its size limit, whatever
	// space is free.
	ErrTooLarge = errors.New("too large for the log")

	// ErrMissing is the cause of a [DamageError] for a record that does not exist.
	ErrMissing = errors.New("record is missing")
)

// DamageError reports a record that is missing or differs from the written one.
type DamageError struct {
	Table string
	Key   []byte
	Cause error
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("record %q in %s: %v", e.Key, e.Table, e.Cause)
}

// Unwrap returns the cause.
func (e *DamageError) Unwrap() error { return e.Cause }

// RangeError reports a range of records that cannot be read. A scan returns it after all
// records before the range. To continue behind the range, start a scan at To.
type RangeError struct {
	From, To []byte // keys; To is exclusive, nil if the range extends to the end of the table
	Cause    error
}

func (e *RangeError) Error() string {
	if e.To == nil {
		return fmt.Sprintf("cannot read records with keys from %q: %v", e.From, e.Cause)
	}
	return fmt.Sprintf("cannot read records with keys from %q to before %q: %v", e.From, e.To, e.Cause)
}

// Unwrap returns the cause.
func (e *RangeError) Unwrap() error { return e.Cause }

// UncertainError reports a write that may or may not be durable.
type UncertainError struct{ Cause error }

func (e *UncertainError) Error() string {
	return fmt.Sprintf("the write may or may not have succeeded: %v", e.Cause)
}

// Unwrap returns the cause.
func (e *UncertainError) Unwrap() error { return e.Cause }

// refusal is an error of an operation that intentionally changes nothing.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// IsRefused reports whether err was created by [Refuse].
func IsRefused(err error) bool { return errors.As(err, new(*refusal)) }

// Refuse returns an error for an operation of a [Writer] that intentionally changes nothing.
// The operation's caller gets cause. The other operations of the group are not affected.
func Refuse(cause error) error { return &refusal{cause} }
