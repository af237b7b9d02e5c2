package dispatch

import (
	"bytes"
	"context"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/crashes"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// A watchdog detects orchestrators that wait for something other than a durable task, or compute
// without end. It reports them first and abandons their turns later. The comment of [turn]
// describes the consequences.
//
// It counts ticks of a timer without progress of the orchestrator. A tick counts only if it
// arrives on time, so that a debugger, SIGSTOP, a paused machine or a throttled container uses
// none up.
type watchdog struct {
	warnAfter   int // ticks until the first report; each next takes twice as long
	giveUpAfter int // ticks

	mu    sync.Mutex // protects the following, and the fields of turns that say so
	turns map[*turn]struct{}
	timer *time.Timer // runs while there are turns
	due   time.Time   // when the timer fires
}

const (
	// tick is the time between two ticks.
	tick = 100 * time.Millisecond
	// tickDelay is the largest delay of a tick that counts.
	tickDelay = tick / 2
	// soonTicks is the limit for an orchestrator that can never continue, or that delays
	// the end of the worker.
	soonTicks = int(time.Second / tick)
)

func newWatchdog(warnAfter, giveUpAfter time.Duration) *watchdog {
	ticks := func(d time.Duration) int { return max(1, int(d/tick)) }
	return &watchdog{warnAfter: ticks(warnAfter), giveUpAfter: ticks(giveUpAfter), turns: make(map[*turn]struct{})}
}

// progress counts the steps of an execution. Its methods are called from any goroutine.
type progress struct {
	steps   atomic.Uint64
	foreign atomic.Pointer[error]
}

var _ replay.Observer = (*progress)(nil)

// Progressed implements replay.Observer.
func (p *progress) Progressed() { p.steps.Add(1) }

// ForeignCall implements replay.Observer.
func (p *progress) ForeignCall(err error) { p.foreign.CompareAndSwap(nil, &err) }

// watch watches the code of t, which runs until the caller calls unwatch.
func (w *watchdog) watch(t *turn, start *history.ExecutionStarted, p *progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.start, t.progress, t.began = start, p, time.Now()
	t.restart(w)
	w.turns[t] = struct{}{}
	if len(w.turns) == 1 {
		w.arm(t.began)
	}
}

// unwatch ends the watch of t. It returns false if t was given up.
func (w *watchdog) unwatch(t *turn) bool {
	w.mu.Lock()
	delete(w.turns, t)
	if len(w.turns) == 0 {
		w.timer.Stop()
	}
	reported, givenUp := t.reported, t.isGivenUp
	t.reported = false
	w.mu.Unlock()
	if !reported && !givenUp {
		return true
	}
	// Only this goroutine changes start and began.
	log := t.log.With("name", t.start.Name, "running", time.Since(t.began).Round(time.Millisecond))
	if givenUp {
		log.Warn("orchestrator has yielded after it was given up; its decisions are discarded")
	} else {
		log.Warn("orchestrator has yielded")
	}
	return !givenUp
}

// hurry has the watchdog give t up soon, since the worker is stopping.
func (w *watchdog) hurry(t *turn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.isStopping = true
	t.restart(w)
}

// arm has the timer fire in one tick. mu is locked.
func (w *watchdog) arm(now time.Time) {
	w.due = now.Add(tick)
	if w.timer == nil {
		w.timer = time.AfterFunc(tick, w.tick)
	} else {
		w.timer.Reset(tick)
	}
}

// tick counts a tick of all turns.
func (w *watchdog) tick() {
	now := time.Now()
	w.mu.Lock()
	if len(w.turns) == 0 || now.Before(w.due) { // the timer was stopped while it fired
		w.mu.Unlock()
		return
	}
	var slow []*turn
	var givenUp []*stall
	if now.Sub(w.due) <= tickDelay {
		for t := range w.turns {
			switch t.tick(w) {
			case warns:
				t.reported = true
				slow = append(slow, t)
			case givesUp:
				t.isGivenUp = true
				delete(w.turns, t)
				givenUp = append(givenUp, t.stall(now))
			case goesOn:
			}
		}
	}
	if len(w.turns) > 0 {
		w.arm(now)
	}
	w.mu.Unlock()
	if len(slow)+len(givenUp) == 0 {
		return
	}
	stacks := stacks()
	shown := make(map[string]bool) // functions whose stack is in the log of this tick
	for _, t := range slow {
		log := t.log.With("name", t.start.Name, "running", now.Sub(t.began).Round(time.Millisecond))
		if !shown[t.start.Name] {
			shown[t.start.Name] = true
			log = log.With("stack", stacks[t.label])
		}
		log.Error("orchestrator does not yield; it must wait for durable tasks only")
	}
	for _, s := range givenUp {
		if !shown[s.start.Name] {
			shown[s.start.Name] = true
			s.stack = stacks[s.turn.label]
		}
		s.turn.over <- s
	}
}

// A verdict is the decision of a tick about a turn.
type verdict int

const (
	goesOn verdict = iota
	warns
	givesUp
)

// itemLabel is the profiler label of the goroutines of an item. Goroutines that they
// start inherit it, an orchestrator's coroutines too.
const itemLabel = "durable.item"

// labelled runs f with an item's labels on its goroutine.
func labelled(it *item, f func()) {
	pprof.Do(context.Background(), pprof.Labels(itemLabel, it.label, crashes.Label, it.work), func(context.Context) { f() })
}

// stacks returns where the goroutines of each item are, by the item's label. It leaves out the
// goroutines that only wait for the orchestrator.
func stacks() map[string]string {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return nil
	}
	// The profile is a list of paragraphs; one with labels has a line of them.
	name := strconv.AppendQuote(nil, itemLabel)
	found := make(map[string]string)
	for block := range bytes.SplitSeq(all.Bytes(), []byte("\n\n")) {
		_, value, ok := bytes.Cut(block, append(name, ':'))
		if !ok || bytes.Contains(block, []byte("dispatch.(*session).")) {
			continue
		}
		quoted, err := strconv.QuotedPrefix(string(value))
		if err != nil {
			continue
		}
		label, _ := strconv.Unquote(quoted) // which QuotedPrefix has checked
		if found[label] != "" {
			found[label] += "\n\n"
		}
		found[label] += string(bytes.TrimSpace(block))
	}
	return found
}

// end ends a turn. It returns false if the turn was given up.
func (w *watchdog) end(t *turn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !t.isGivenUp
}
