package hubfile

import (
	"fmt"
	"runtime/debug"
)

// HeldError is the error of a file that another process has open, or this one has
// open twice.
type HeldError struct {
	Holder  string // empty if it is not known
	Contact string // of the holder
}

func (e *HeldError) Error() string { return "the file is in use by " + e.Holder }

// VersionError is the error of a file of a newer format.
type VersionError struct{ Version, Supported uint64 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("format version is %d; want at most %d", e.Version, e.Supported)
}

// CorruptError is the error of a file that is damaged or something else than a
// hub.
type CorruptError struct{ Cause error }

func (e *CorruptError) Error() string { return e.Cause.Error() }

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Cause }

// PanicError is a panic or a memory fault in the database, which does not check
// its file when it reads.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("the database panicked: %v", e.Value) }

// guard calls f and returns a panic, or a fault at an address beyond the file, as
// a *[PanicError]: one damaged file must not end the process.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		}
	}()
	return f()
}
