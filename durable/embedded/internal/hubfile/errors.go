package hubfile

import (
	"fmt"
	"runtime/debug"
)

// HeldError is the error of a file that is open in another process, or already open in this one.
type HeldError struct {
	Holder  string // empty if unknown
	Contact string // contact of the holder
}

func (e *HeldError) Error() string { return "the file is in use by " + e.Holder }

// VersionError is the error of a file with a newer format.
type VersionError struct{ Version, Supported uint64 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("format version is %d; want at most %d", e.Version, e.Supported)
}

// CorruptError is the error of a file that is damaged or not a hub.
type CorruptError struct{ Cause error }

func (e *CorruptError) Error() string { return e.Cause.Error() }

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Cause }

// PanicError is a panic or a memory fault in the database, which does not verify its file when it
// reads.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("the database panicked: %v", e.Value) }

// guard calls f. It converts a panic, or a fault at an address beyond the file, to a *[PanicError].
// So a damaged file does not end the process.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		}
	}()
	return f()
}
