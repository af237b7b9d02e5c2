package coro

import (
	"bytes"
	"runtime"
)

// maxStack is the maximum length of the text of a stack, in bytes; the rest is cut off.
const maxStack = 32 << 10

// stack returns the calling goroutine's stack as text. It removes the frames that handle a
// panic, and the frames below the coroutine's function.
func stack() []byte {
	buf := make([]byte, maxStack)
	buf = buf[:runtime.Stack(buf, false)]
	lines := bytes.SplitAfter(buf, []byte("\n"))
	if len(lines) < 2 {
		return buf
	}
	// The first line describes the goroutine. Each call has two lines: the function and its
	// position.
	calls := lines[1:]
	for i := 0; i+1 < len(calls); i += 2 {
		if bytes.HasPrefix(calls[i], []byte("panic(")) || bytes.HasPrefix(calls[i], []byte("runtime.Goexit(")) {
			calls = calls[i+2:]
			break
		}
	}
	for i := range calls {
		if bytes.Contains(calls[i], []byte("coro.(*Routine).run(")) {
			calls = calls[:i]
			break
		}
	}
	if len(calls) == 0 {
		return buf
	}
	return bytes.Join(calls, nil)
}
