package logstore

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed is the error of a store that was used after it was closed.
	ErrClosed = errors.New("task hub is closed")

	// ErrTooLarge is the error of a [Log] that cannot take a group of that size,
	// however much room there is.
	ErrTooLarge = errors.New("too large for the log")

	// ErrMissing is the cause of a [DamageError] of a record that should be there.
	ErrMissing = errors.New("record is missing")
)

// DamageError is the error of a record that is not what was written.
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

// RangeError is the error of records that cannot be read. A scan returns it when it has
// returned all records before the range. A scan that begins at To continues behind it.
type RangeError struct {
	From, To []byte // keys; To is not in the range, and nil if the range ends with the table
	Cause    error
}

func (e *RangeError) Error() string {
	if e.To == nil {
		return fmt.Sprintf("records with keys from %q on cannot be read: %v", e.From, e.Cause)
	}
	return fmt.Sprintf("records with keys from %q up to before %q cannot be read: %v", e.From, e.To, e.Cause)
}

// Unwrap returns the cause.
func (e *RangeError) Unwrap() error { return e.Cause }

// UncertainError is the error of a write that may or may not be durable.
type UncertainError struct{ Cause error }

func (e *UncertainError) Error() string {
	return fmt.Sprintf("it may or may not have happened: %v", e.Cause)
}

// Unwrap returns the cause.
func (e *UncertainError) Unwrap() error { return e.Cause }

// refusal is an error by which an operation changes nothing on purpose.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// IsRefused reports whether an error is one of [Refuse].
func IsRefused(err error) bool { return errors.As(err, new(*refusal)) }

// Refuse returns an error by which an operation of a [Writer] ends without a
// change. It reaches the caller as cause, and the group goes on without the
// operation.
func Refuse(cause error) error { return &refusal{cause} }
