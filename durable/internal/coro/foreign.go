package coro

import (
	"reflect"
	"runtime"
)

// entry is where the code of every coroutine's body begins.
var entry = runtime.FuncForPC(reflect.ValueOf((*Routine).run).Pointer()).Entry()

// InRoutine reports whether the calling goroutine is a coroutine of some
// Group, as far as the stack shows: when the stack is very deep the answer is yes.
// It takes under a microsecond.
//
// While a coroutine waits for a goroutine that it started itself, that
// goroutine finds the coroutine in [Group.Running] and could act in its name.
// Its stack tells them apart.
func InRoutine() bool {
	// The stack is looked through in pieces that overlap by where the body can
	// be: this must not be what makes the stack of a coroutine grow.
	var pcs [24]uintptr
	for skip := 1; skip < deepest; skip += len(pcs) - nearBottom {
		n := runtime.Callers(skip, pcs[:])
		if n == len(pcs) {
			continue
		}
		for i := n - 1; i >= 0 && i >= n-nearBottom; i-- {
			if f := runtime.FuncForPC(pcs[i] - 1); f != nil && f.Entry() == entry {
				return true
			}
		}
		return false
	}
	return true
}

const (
	deepest    = 128 // calls that are looked through
	nearBottom = 8   // a coroutine's body stands a few frames above the bottom of its stack
)
