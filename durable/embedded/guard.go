package embedded

import (
	"fmt"
	"runtime/debug"
)

// A panicError is a panic or a memory fault out of the database, which takes
// its file to be sound and does not check what it reads.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("the database panicked: %v", e.value) }

// guard calls f and turns a panic, and a fault at an address beyond the file,
// into a *panicError: one damaged file must not end the process.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	return f()
}
