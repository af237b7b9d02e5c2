package coro

import (
	"bytes"
	"runtime"
)

// maxStack bounds the text of a stack. What is deeper is cut off.
const maxStack = 32 << 10

// stack returns the calling goroutine's stack as text, without the frames by
// which a panic is noticed and without those below the coroutine's function.
func stack() []byte {
	buf := make([]byte, maxStack)
	buf = buf[:runtime.Stack(buf, false)]
	lines := bytes.SplitAfter(buf, []byte("\n"))
	if len(lines) < 2 {
		return buf
	}
	// The first line names the goroutine; then each call has two, the function
	// and where it was.
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
