package coro

import (
	"reflect"
	"runtime"
)

// entry is where the code of every coroutine's body begins.
var entry = runtime.FuncForPC(reflect.ValueOf((*Routine).run).Pointer()).Entry()

// InRoutine reports whether the calling goroutine is a coroutine of some
// Group, as far as that can be told: when the stack is very deep the answer is
// yes. It takes under a microsecond.
//
// While a coroutine waits for a goroutine that it started itself, that
// goroutine finds the coroutine in [Group.Running] and could act in its name.
// Its stack tells them apart.
func InRoutine() bool {
	var pcs [128]uintptr
	n := runtime.Callers(1, pcs[:])
	if n == len(pcs) {
		return true
	}
	// A coroutine's body stands a few frames above the bottom of its stack.
	for i := n - 1; i >= 0 && i > n-8; i-- {
		if f := runtime.FuncForPC(pcs[i] - 1); f != nil && f.Entry() == entry {
			return true
		}
	}
	return false
}
