package coro

import (
	"reflect"
	"runtime"
)

// entry is the entry address of the function that every coroutine runs.
var entry = runtime.FuncForPC(reflect.ValueOf((*Routine).run).Pointer()).Entry()

// InRoutine reports whether the calling goroutine is a coroutine of any Group, judging by its
// stack. It returns true for a stack deeper than 128 calls. It takes less than a microsecond.
//
// A coroutine may wait for a goroutine that it started. In that goroutine, [Group.Running]
// returns the coroutine, although the goroutine must not act for it. Only the stack
// distinguishes the two.
func InRoutine() bool {
	// Read the stack in small overlapping pieces: a large array could make the stack of a
	// coroutine grow.
	var pcs [24]uintptr
	for skip := 1; skip < maxDepth; skip += len(pcs) - maxFramesBelow {
		n := runtime.Callers(skip, pcs[:])
		if n == len(pcs) {
			continue
		}
		for i := n - 1; i >= 0 && i >= n-maxFramesBelow; i-- {
			if f := runtime.FuncForPC(pcs[i] - 1); f != nil && f.Entry() == entry {
				return true
			}
		}
		return false
	}
	return true
}

const (
	maxDepth       = 128 // the maximum number of calls examined
	maxFramesBelow = 8   // the coroutine's function is at most this many frames above the bottom of its stack
)
