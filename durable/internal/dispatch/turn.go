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
// that is unloaded. The code may block, so two goroutines share the work:
//
//   - The session's goroutine owns the session: the lock on the instance, its slot, its messages, the
//     log. It starts the turn's goroutine and waits until the turn has ended. It never runs code.
//   - The turn's goroutine owns the execution, with its replay.Execution and coroutines, until the
//     turn has ended. It hangs if the code hangs.
//   - The watchdog's timer decides to abandon a turn, under the watchdog's mutex. Either the turn's
//     goroutine or the watchdog ends the turn, never both.
//
// When a turn is abandoned, the session's goroutine drops the execution without touching it. It
// abandons the instance and ends. This frees the slot and the partition, ends the renewal of
// messages, and lets the worker stop. [Stalls] remembers the instance, so that its next work
// item runs without code:
//
//   - After a foreign durable call, the instance fails with the call's UsageError.
//   - Otherwise it is held back. It can still be terminated and suspended. A newer resume event or a
//     new process runs the code again. After maxStalls of one function, all instances of the function
//     are held back.
//   - If the turn was abandoned because the worker stops, it is not remembered.
//
// The hung goroutine and its coroutines remain. They cannot be stopped from outside: ending a
// running coroutine crashes the process. If the code returns or waits for a durable task later,
// the turn's goroutine finds that it was abandoned. It discards all decisions, unwinds the
// coroutines and ends.
type turn struct {
	log   *slog.Logger
	label string // of its goroutines
	// over receives one value: nil when the turn has ended, a *panicError, or a *stall if it
	// was abandoned.
	over chan error

	// The watchdog's mu protects the following.
	code        codeName                  // current or last code
	instanceID  string                    // the code's instance
	start       *history.ExecutionStarted // the code's execution; nil for an entity, which is not abandoned
	progress    *progress
	since       time.Time
	steps       uint64 // progress.steps at the last tick
	ticks       int    // ticks since the last progress
	warnAt      int    // ticks at which the turn is reported
	foreign     error  // the foreign durable call that was detected
	reported    bool
	isStopping  bool // the worker is stopping
	isAbandoned bool
}

// A codeName identifies code under the watchdog.
type codeName struct {
	kind, name, version string
	operation           string // only for an entity
}

// orchestratorOf returns the name of an execution's code.
func orchestratorOf(start *history.ExecutionStarted) codeName {
	return codeName{kind: "orchestrator", name: start.Name, version: start.Version}
}

// measured returns the kind of work item in the metrics of the code.
func (c codeName) measured() metering.Kind {
	if c.kind == "entity" {
		return metering.Entity
	}
	return metering.Orchestration
}

// A panicError reports that a turn's goroutine ended early.
type panicError struct {
	value any // nil for runtime.Goexit
	stack []byte
}

func (e *panicError) Error() string {
	if e.value == nil {
		return "the goroutine of the episode was ended by runtime.Goexit"
	}
	return fmt.Sprintf("panic while handling the instance: %v", e.value)
}

// endOf returns the error of a goroutine that panicked or called runtime.Goexit, or nil if it
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

// restart resets the tick count. The watchdog's mu is locked.
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
	limit := w.abandonAfter
	if t.foreign != nil || t.isStopping {
		limit = min(limit, soonTicks)
	}
	switch {
	case t.ticks >= limit && t.start != nil:
		return abandons
	case t.ticks >= t.warnAt:
		t.warnAt = 2*t.warnAt + w.warnAfter
		return warns
	}
	return noAction
}

// logger returns the log for reports about the code, which has run since t.since.
func (t *turn) logger(now time.Time) *slog.Logger {
	log := t.log.With("running", now.Sub(t.since).Round(time.Millisecond))
	if t.start == nil {
		return log.With("operation", t.code.operation)
	}
	return log
}

// stall returns the error that describes the abandoned t. The watchdog's mu is locked.
func (t *turn) stall(now time.Time) *stall {
	return &stall{turn: t, start: t.start, running: now.Sub(t.since), foreign: t.foreign, isStopping: t.isStopping && t.foreign == nil}
}
