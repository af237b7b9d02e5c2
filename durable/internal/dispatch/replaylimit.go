package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// ReplayLimit is the time without progress after which a replay in memory is abandoned. It is
// measured in the same way as a worker's stall timeout.
const ReplayLimit = 10 * time.Second

// A StallError reports that an orchestrator does not yield when its history is replayed in
// memory. It waits for something other than a durable task, or computes without end.
type StallError struct {
	InstanceID    string
	Name, Version string        // of the orchestrator
	Limit         time.Duration // the time without a durable call
	Foreign       error         // durable call of a goroutine that the orchestrator started; may be nil
	Stack         string        // of the code when it was abandoned

	isRepeated bool // an earlier error has the same stack
}

// Error returns the message. It includes the stack unless an earlier error has it.
func (e *StallError) Error() string {
	text := fmt.Sprintf("orchestrator %q of instance %q %s", e.Name, e.InstanceID, e.Reason())
	if e.isRepeated || e.Stack == "" {
		return text
	}
	return text + "\n" + e.Stack
}

// Reason returns the message without names and stack.
func (e *StallError) Reason() string {
	if e.Foreign != nil {
		return "waits for a goroutine that made a durable call: " + e.Foreign.Error()
	}
	return fmt.Sprintf("does not yield: it made no durable call for %v; it must wait for durable tasks only", e.Limit)
}

// RunWithLimit replays the execution with the given start. It calls f with the code on another
// goroutine and waits until f returns. The error is a *[StallError] if the code makes no progress
// for [ReplayLimit], or for a second after a foreign durable call. In that case f hangs, and the
// caller must not use its results. A panic of f becomes a panic of RunWithLimit. If code is nil,
// f runs on the caller's goroutine.
func RunWithLimit(start *history.ExecutionStarted, code replay.Code, f func(replay.Code)) error {
	if code == nil {
		f(nil)
		return nil
	}
	if stall := runWithLimit(start, code, f, func() {}); stall != nil {
		return stall
	}
	return nil
}

// runWithLimit is [RunWithLimit] with code. If f returns after it was abandoned, its goroutine
// calls late.
func runWithLimit(start *history.ExecutionStarted, code replay.Code, f func(replay.Code), late func()) *StallError {
	b := newLimitedRun(replayLabel(), start, new(progress), late)
	return b.wait(func() {
		f(func(x *replay.Execution, input *string) (*string, error) {
			x.Observe(b.progress)
			return code(x, input)
		})
	})
}

// A limitedRun is one run of an orchestrator's code with a time limit, outside of a [Dispatcher].
type limitedRun struct {
	start    *history.ExecutionStarted
	progress *progress
	late     func() // called when the code returns after it was abandoned
	watchdog *watchdog
	turn     *turn
}

// limitedRuns counts the runs, to label their goroutines.
var limitedRuns atomic.Int64

// replayLabel returns a label for the goroutines of a replay.
func replayLabel() string { return fmt.Sprintf("replay %d", limitedRuns.Add(1)) }

func newLimitedRun(label string, start *history.ExecutionStarted, p *progress, late func()) *limitedRun {
	return &limitedRun{
		start: start, progress: p, late: late,
		watchdog: newWatchdog(time.Hour, ReplayLimit), // the warning time is too long to occur
		turn:     &turn{log: slog.New(slog.DiscardHandler), label: label, over: make(chan error, 1)},
	}
}

// wait runs f on another goroutine until it returns or is abandoned.
func (b *limitedRun) wait(f func()) *StallError {
	b.watchdog.watch(b.turn, b.start, b.progress)
	go b.run(f)
	switch ended := (<-b.turn.over).(type) { //nolint:errorlint // it is not wrapped
	case *stall:
		return &StallError{
			InstanceID: b.start.Instance.InstanceID, Name: b.start.Name, Version: b.start.Version,
			Limit: ReplayLimit, Foreign: ended.foreign, Stack: ended.stack,
		}
	case *panicError:
		panic(ended.Error() + "\n" + string(ended.stack))
	}
	return nil
}

// run is the body of the goroutine.
func (b *limitedRun) run(f func()) {
	returned := false
	defer func() {
		ended := endOf(recover(), returned)
		if b.watchdog.unwatch(b.turn) {
			b.turn.over <- ended
			return
		}
		b.late()
	}()
	pprof.Do(context.Background(), pprof.Labels(itemLabel, b.turn.label), func(context.Context) { f() })
	returned = true
}

// ReplayLimiter limits replays in memory in the same way as [RunWithLimit], and remembers hung replays until
// they return. While the replay of an instance hangs, it does not replay the instance again. While maxStalls
// replays of an orchestrator hang, it replays no execution of that orchestrator. The reason is that each hung
// replay occupies a goroutine, and an endless loop a core. The zero value is ready to use. A nil
// *ReplayLimiter only supports replays without code. Its methods are safe for concurrent use.
type ReplayLimiter struct {
	mu   sync.Mutex // protects the following
	hung map[*StallError]struct{}
}

// Run is [RunWithLimit]. While a replay of an orchestrator hangs, only the text of its error
// includes the stack. The texts of later errors omit it, but their Stack field is set.
func (r *ReplayLimiter) Run(start *history.ExecutionStarted, code replay.Code, f func(replay.Code)) error {
	if code == nil {
		f(nil)
		return nil
	}
	if known := r.known(start); known != nil {
		return known
	}
	hangs := make(chan *StallError, 1)
	stall := runWithLimit(start, code, f, func() { r.remove(<-hangs) })
	if stall == nil {
		return nil
	}
	r.add(stall)
	hangs <- stall
	return stall
}

// known returns the error of an execution that must not be replayed, or nil if it may be.
func (r *ReplayLimiter) known(start *history.ExecutionStarted) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := 0
	for one := range r.hung {
		if one.Name != start.Name || one.Version != start.Version {
			continue
		}
		if count++; count == maxStalls || one.InstanceID == start.Instance.InstanceID {
			again := *one
			again.InstanceID, again.isRepeated = start.Instance.InstanceID, true
			return &again
		}
	}
	return nil
}

func (r *ReplayLimiter) add(s *StallError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for one := range r.hung {
		s.isRepeated = s.isRepeated || one.Name == s.Name && one.Version == s.Version
	}
	if r.hung == nil {
		r.hung = make(map[*StallError]struct{})
	}
	r.hung[s] = struct{}{}
}

func (r *ReplayLimiter) remove(s *StallError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.hung, s)
}
