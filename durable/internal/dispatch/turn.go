package dispatch

import (
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A turn is one use of an instance's code: an episode, or the deferred calls of an instance
// that leaves memory. The code may block, so two goroutines share the work:
//
//   - The session's goroutine owns the session: the lock on the instance, its place, its
//     messages, the log. It starts the turn's goroutine and waits until the turn is over. It
//     never runs code.
//   - The turn's goroutine owns the execution, with its replay.Execution and coroutines, until
//     the turn is over. It hangs if the code hangs.
//   - The watchdog's timer decides that a turn is given up, under the watchdog's mutex. Exactly
//     one of two things happens: the turn's goroutine ends the turn, or the watchdog does.
//
// When a turn is given up, the session's goroutine drops the execution without touching it. It
// hands the instance back and ends, which frees the place, the partition and the renewal of
// messages, and lets the worker stop. [Stalls] remembers the instance, so that its next work
// item runs without code:
//
//   - After a foreign durable call, the instance fails with the call's UsageError.
//   - Otherwise it is held back, and can be terminated and suspended meanwhile. A newer resume
//     event runs the code again. So does a new process. After maxStalls of one function, all
//     instances of the function are held back.
//   - If the turn was given up because the worker stops, nothing is remembered.
//
// The hung goroutine and its coroutines stay. They cannot be stopped from outside: to end a
// coroutine that runs crashes the process. If the code returns or waits for a durable task
// later, the turn's goroutine finds that it was given up: it discards all decisions, unwinds
// the coroutines and ends.
type turn struct {
	log   *slog.Logger
	label string // of its goroutines
	// over receives once: nil when the turn has ended, a *panicError, or a *stall if it was
	// given up.
	over chan error

	// The watchdog's mu protects the following.
	start      *history.ExecutionStarted // of the code that runs or ran last
	progress   *progress
	began      time.Time
	steps      uint64 // of progress at the last tick
	ticks      int    // since the last progress
	warnAt     int    // ticks at which the turn is reported
	foreign    error  // the foreign durable call that was noted
	reported   bool
	isStopping bool // the worker stops
	isGivenUp  bool
}

// A panicError says that a turn's goroutine ended early.
type panicError struct {
	value any // nil: runtime.Goexit
	stack []byte
}

func (e *panicError) Error() string {
	if e.value == nil {
		return "the goroutine of the episode was ended by runtime.Goexit"
	}
	return fmt.Sprintf("panic while handling the instance: %v", e.value)
}

// runTurn runs f, which runs code of s.x, on another goroutine. The error is a *panicError, or
// a *stall if the turn was given up: then s.x is a new execution that has run nothing, and what
// f did or does must not be used.
func (s *session) runTurn(f func()) error {
	t := &turn{log: s.log, label: s.label, over: make(chan error, 1)}
	x := s.x
	x.turn = t
	go s.onTurn(t, x, f)
	var err error
	select {
	case err = <-t.over:
	case <-s.live.work.Done():
		s.d.watchdog.hurry(t)
		err = <-t.over
	}
	if stall, ok := err.(*stall); ok { //nolint:errorlint // it is not wrapped
		s.x = &execution{start: stall.start}
	}
	return err
}

// onTurn is the turn's goroutine.
func (s *session) onTurn(t *turn, x *execution, f func()) {
	returned := false
	defer func() {
		var ended error
		if v := recover(); v != nil {
			ended = &panicError{v, debug.Stack()}
		} else if !returned {
			ended = &panicError{}
		}
		if s.d.watchdog.end(t) {
			t.over <- ended
			return
		}
		x.close()
	}()
	f()
	returned = true
}

// end ends a turn. It returns false if the turn was given up.
func (w *watchdog) end(t *turn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !t.isGivenUp
}

// watch watches the code of x until its caller calls yielded. That ends the turn's goroutine
// if the turn was given up.
func (s *session) watch(x *execution) (yielded func()) {
	s.d.watchdog.watch(x.turn, x.start, x.progress)
	return func() {
		if !s.d.watchdog.unwatch(x.turn) {
			runtime.Goexit()
		}
	}
}

// close unwinds the orchestrator if it is in memory.
func (s *session) close() {
	if s.x.live == nil || s.x.ended {
		s.x.close() // no code is left to unwind
		return
	}
	x := s.x
	err := s.runTurn(func() {
		yielded := x.watch(x)
		x.close()
		yielded()
	})
	if err != nil {
		s.logBroken(err)
	}
}
