package dispatch

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/crashes"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// A watchdog detects orchestrators that wait for something other than a durable task, or
// compute without end. It reports them first, and abandons their turns later; see [turn]. It
// also reports operations of entities that do not return.
//
// It counts timer ticks without progress of the orchestrator. A tick counts only if it arrives
// on time. A debugger, SIGSTOP, a paused machine or a throttled container therefore does not
// use up the limit.
type watchdog struct {
	warnAfter    int // ticks until the first report; the interval doubles after each report
	abandonAfter int // ticks until a turn is abandoned
	meter        *metering.Meter

	mu    sync.Mutex // protects the following, and the marked fields of turns
	turns map[*turn]struct{}
	timer *time.Timer // running while there are turns
	due   time.Time   // when the timer fires
	taken map[codeName]takenStack
}

// A takenStack is the stack of code that did not yield, in one of its instances.
type takenStack struct {
	text string
	at   time.Time
}

const (
	// tick is the interval of the timer.
	tick = 100 * time.Millisecond
	// tickDelay is the maximum delay of a tick that counts.
	tickDelay = tick / 2
	// soonTicks is the limit for an orchestrator that cannot continue, or that keeps the worker
	// from stopping.
	soonTicks = int(time.Second / tick)
	// stackAge is the age at which a stack is recorded again.
	stackAge = time.Minute
	// maxStack is the maximum size of a recorded stack in bytes.
	maxStack = 16 << 10
)

func newWatchdog(warnAfter, abandonAfter time.Duration) *watchdog {
	ticks := func(d time.Duration) int { return max(1, int(d/tick)) }
	return &watchdog{
		warnAfter: ticks(warnAfter), abandonAfter: ticks(abandonAfter),
		turns: make(map[*turn]struct{}), taken: make(map[codeName]takenStack),
	}
}

// progress counts the steps of an execution. Its methods are safe for concurrent use.
type progress struct {
	steps   atomic.Uint64
	foreign atomic.Pointer[error]
}

var _ replay.Observer = (*progress)(nil)

// Progressed implements replay.Observer.
func (p *progress) Progressed() { p.steps.Add(1) }

// ForeignCall implements replay.Observer.
func (p *progress) ForeignCall(err error) { p.foreign.CompareAndSwap(nil, &err) }

// watch starts to watch the code of t, until unwatch is called.
func (w *watchdog) watch(t *turn, start *history.ExecutionStarted, p *progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.code, t.instanceID, t.start, t.progress = orchestratorOf(start), start.Instance.InstanceID, start, p
	w.add(t)
}

// watchOperation starts to watch an operation of an entity, until unwatch is called.
func (w *watchdog) watchOperation(t *turn, instanceID, entity, operation string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.code = codeName{kind: "entity", name: entity, operation: operation}
	t.instanceID, t.progress = instanceID, new(progress)
	w.add(t)
}

// add adds a turn whose code starts to run. mu is locked.
func (w *watchdog) add(t *turn) {
	t.since = time.Now()
	t.restart(w)
	w.turns[t] = struct{}{}
	if len(w.turns) == 1 {
		w.arm(t.since)
	}
}

// unwatch stops watching t. It returns false if t was abandoned.
func (w *watchdog) unwatch(t *turn) bool {
	w.mu.Lock()
	delete(w.turns, t)
	if len(w.turns) == 0 {
		w.timer.Stop()
	}
	reported, abandoned := t.reported, t.isAbandoned
	t.reported = false
	w.mu.Unlock()
	if !reported && !abandoned {
		return true
	}
	log := t.logger(time.Now()) // only this goroutine changes its fields
	switch {
	case abandoned:
		log.Warn("orchestrator has yielded after it was abandoned; its decisions are discarded")
	case t.start == nil:
		log.Warn("operation of an entity has returned")
	default:
		log.Warn("orchestrator has yielded")
	}
	return !abandoned
}

// abandonSoon makes the watchdog abandon t soon, because the worker is stopping.
func (w *watchdog) abandonSoon(t *turn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.isStopping = true
	t.restart(w)
}

// arm makes the timer fire in one tick. mu is locked.
func (w *watchdog) arm(now time.Time) {
	w.due = now.Add(tick)
	if w.timer == nil {
		w.timer = time.AfterFunc(tick, w.tick)
	} else {
		w.timer.Reset(tick)
	}
}

// tick counts a tick for all turns.
func (w *watchdog) tick() {
	now := time.Now()
	w.mu.Lock()
	if len(w.turns) == 0 || now.Before(w.due) { // the timer was stopped while it fired
		w.mu.Unlock()
		return
	}
	var slow []slowCode
	var abandoned []*stall
	if now.Sub(w.due) <= tickDelay {
		for t := range w.turns {
			switch t.tick(w) {
			case warns:
				if !t.reported {
					t.reported = true
					w.meter.RecordStall(t.code.measured(), t.code.name, metering.StallReported)
				}
				slow = append(slow, slowCode{t.code, t.label, t.logger(now), t.start == nil})
			case abandons:
				t.isAbandoned = true
				delete(w.turns, t)
				abandoned = append(abandoned, t.stall(now))
				w.meter.RecordStall(metering.Orchestration, t.code.name, metering.StallAbandoned)
			case noAction:
			}
		}
	}
	if len(w.turns) > 0 {
		w.arm(now)
	}
	w.mu.Unlock()
	if len(slow)+len(abandoned) > 0 {
		w.report(now, slow, abandoned)
	}
}

// A slowCode is code to report.
type slowCode struct {
	code     codeName
	label    string
	log      *slog.Logger
	isEntity bool
}

// report logs slow code and ends the turns that are abandoned. One profile provides all stacks.
// The log contains the stack of each function at most once per stackAge.
func (w *watchdog) report(now time.Time, slow []slowCode, abandoned []*stall) {
	var profile map[string]string
	stackOf := func(code codeName, label string) (stack string, isNew bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if one, ok := w.taken[code]; ok && now.Sub(one.at) < stackAge {
			return one.text, false
		}
		if profile == nil {
			profile = stacks()
		}
		w.taken[code] = takenStack{profile[label], now}
		return profile[label], true
	}
	for _, one := range slow {
		log := one.log
		if stack, isNew := stackOf(one.code, one.label); isNew {
			log = log.With("stack", stack)
		}
		if one.isEntity {
			log.Warn("operation of an entity does not return")
		} else {
			log.Error("orchestrator does not yield; it must wait for durable tasks only")
		}
	}
	for _, s := range abandoned {
		s.stack, s.isNewStack = stackOf(orchestratorOf(s.start), s.turn.label)
		s.turn.over <- s
	}
}

// stalled returns the reported code that is still running, unordered.
func (w *watchdog) stalled() []BlockedFunction {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := make(map[codeName]BlockedFunction)
	for t := range w.turns {
		if !t.reported {
			continue
		}
		f, ok := found[t.code]
		if !ok {
			f = BlockedFunction{
				Kind: t.code.kind, Name: t.code.name, Version: t.code.version, Operation: t.code.operation,
				Runs: true, Since: t.since, Stack: w.taken[t.code].text,
			}
		}
		if t.since.Before(f.Since) {
			f.Since = t.since
		}
		f.Instances = append(f.Instances, t.instanceID)
		found[t.code] = f
	}
	return slices.Collect(maps.Values(found))
}

// A verdict is the decision of a tick about a turn.
type verdict int

const (
	noAction verdict = iota
	warns
	abandons
)

// itemLabel is the profiler label of the goroutines of an item. Goroutines that they start
// inherit it, including the coroutines of an orchestrator.
const itemLabel = "durable.item"

// labeled runs f with an item's labels on its goroutine.
func labeled(it *item, f func()) {
	pprof.Do(context.Background(), pprof.Labels(itemLabel, it.label, crashes.Label, it.work), func(context.Context) { f() })
}

// stacks returns the stacks of the goroutines of each item, by the item's label. It omits
// goroutines that only wait for the orchestrator.
func stacks() map[string]string {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return nil
	}
	// The profile consists of paragraphs. A paragraph with labels has a line for them.
	name := strconv.Quote(itemLabel)
	found := make(map[string]string)
	for block := range strings.SplitSeq(all.String(), "\n\n") {
		_, value, ok := strings.Cut(block, name+":")
		if !ok || slices.ContainsFunc(waiters, func(w string) bool { return strings.Contains(block, w) }) {
			continue
		}
		quoted, err := strconv.QuotedPrefix(value)
		if err != nil {
			continue
		}
		label, _ := strconv.Unquote(quoted) // QuotedPrefix has checked it
		if len(found[label]) > maxStack {
			continue
		}
		if found[label] != "" {
			found[label] += "\n"
		}
		found[label] += framesOf(block)
	}
	return found
}

// waiters are functions on the stacks of goroutines that only wait for the orchestrator.
var waiters = []string{"dispatch.(*orchestrationSession).", "dispatch.(*entitySession).", "coro.(*Group).Run+", "coro.(*Group).Close"}

// framesOf returns the functions and lines of a paragraph of a goroutine profile, in the format
// of a panic.
func framesOf(block string) string {
	var frames strings.Builder
	for line := range strings.Lines(block) {
		if f := strings.Fields(line); len(f) >= 4 && f[0] == "#" && strings.HasPrefix(f[1], "0x") {
			function, _, _ := strings.Cut(f[2], "+0x")
			_, _ = frames.WriteString(function + "\n\t" + strings.Join(f[3:], " ") + "\n") // it never fails
		}
	}
	return strings.TrimSuffix(frames.String(), "\n")
}

// end ends a turn. It returns false if the turn was abandoned.
func (w *watchdog) end(t *turn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !t.isAbandoned
}
