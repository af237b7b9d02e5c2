package dispatch

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
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
	code       codeName                  // that runs or ran last
	instanceID string                    // of the code's instance
	start      *history.ExecutionStarted // of the code's execution; nil of an entity, which is not given up
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

// A codeName names code that is watched.
type codeName struct {
	kind, name, version string
	operation           string // of an entity
}

// orchestratorOf returns the name of an execution's code.
func orchestratorOf(start *history.ExecutionStarted) codeName {
	return codeName{kind: "orchestrator", name: start.Name, version: start.Version}
}

// measured returns the kind of work item under which metrics have the code.
func (c codeName) measured() metering.Kind {
	if c.kind == "entity" {
		return metering.Entity
	}
	return metering.Orchestration
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

// endOf returns the error with which a goroutine ends that has recovered a value or has not
// returned. Call it in the deferred function that recovers.
func endOf(recovered any, returned bool) error {
	switch {
	case recovered != nil:
		return &panicError{recovered, debug.Stack()}
	case !returned:
		return &panicError{}
	}
	return nil
}

// restart counts from zero. The watchdog's mu is locked.
func (t *turn) restart(w *watchdog) { t.ticks, t.warnAt = 0, w.warnAfter }

// tick counts a tick. The watchdog's mu is locked.
func (t *turn) tick(w *watchdog) verdict {
	t.ticks++
	if steps := t.progress.steps.Load(); steps != t.steps {
		t.steps = steps
		t.restart(w)
	}
	if foreign := t.progress.foreign.Load(); foreign != nil && t.foreign == nil {
		t.foreign = *foreign
		t.restart(w)
	}
	limit := w.giveUpAfter
	if t.foreign != nil || t.isStopping {
		limit = min(limit, soonTicks)
	}
	switch {
	case t.ticks >= limit && t.start != nil:
		return givesUp
	case t.ticks >= t.warnAt:
		t.warnAt = 2*t.warnAt + w.warnAfter
		return warns
	}
	return goesOn
}

// logger returns the log for reports about the code, which runs since t.began.
func (t *turn) logger(now time.Time) *slog.Logger {
	log := t.log.With("name", t.code.name, "running", now.Sub(t.began).Round(time.Millisecond))
	if t.start == nil {
		return log.With("operation", t.code.operation)
	}
	return log
}

// stall returns the reason for which t is given up. The watchdog's mu is locked.
func (t *turn) stall(now time.Time) *stall {
	return &stall{turn: t, start: t.start, running: now.Sub(t.began), foreign: t.foreign, isStopping: t.isStopping && t.foreign == nil}
}
