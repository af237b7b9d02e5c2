package dispatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

const (
	MaxWaitingSessions    = maxWaitingSessions
	MaxStepResults        = maxStepResults
	MaxStepResultSize     = maxStepResultSize
	MaxGenerations        = maxGenerations
	MaxGenerationMessages = maxGenerationMessages
	MaxBlocked            = maxBlocked
	ForgetBlocked         = forgetBlocked
)

// Reconcile calls reconcile and returns the fields of its result.
func Reconcile(past []history.Event, messages []provider.TaskMessage) (begins *history.ExecutionStarted, kept []history.Event, dropped []string, err error) {
	in, err := reconcile(history.StartOf(past), past, messages)
	for _, d := range in.dropped {
		dropped = append(dropped, d.message.Event.Type().String()+": "+d.reason)
	}
	return in.start, in.events, dropped, err
}

// ActivitySlotsInUse returns the number of slots that activities and steps occupy.
func (d *Dispatcher) ActivitySlotsInUse() int { return d.activities.inUse() }

// StepLoad returns the load of steps.
func (d *Dispatcher) StepLoad() provider.QueueLoad { return d.stepLoad.read(d.config.Now()) }

// InUse returns the resources in use.
func (d *Dispatcher) InUse() inuse.Counts { return d.inUse() }

// LogScheduled is logScheduled.
var LogScheduled = logScheduled

// Add records that an instance waits for an orchestrator.
func (w *BlockedFunctions) Add(instanceID string, now time.Time) bool {
	return w.add(instanceID, &unknownFunctionError{kind: "orchestrator", name: "O"}, now)
}

// Remove deletes the records of an instance for orchestrators.
func (w *BlockedFunctions) Remove(instanceID string) { w.remove(instanceID, "orchestrator") }

// OpenActions is openActions.
var OpenActions = openActions

// WithAliases is withAliases.
var WithAliases = withAliases

// Record calls record with an empty checkpoint.
func Record(start *history.ExecutionStarted, actions []replay.Action, now time.Time) (*provider.Checkpoint, *replay.Complete, error) {
	cp := new(provider.Checkpoint)
	end, err := record(cp, start, actions, false, now)
	return cp, end, err
}

// NextGeneration returns the first events of the generation after start.
func NextGeneration(start *history.ExecutionStarted, end *replay.Complete, executionID string, now time.Time) []history.Event {
	return nextEvents(nextStart(start, end, executionID, now), end, now)
}

// EpisodeTime calls episodeTime.
func EpisodeTime(arrived []history.Event, now time.Time) time.Time { return episodeTime(arrived, now) }

// Turns runs code in turns like a session, to measure the cost.
type Turns struct{ s *orchestrationSession }

// NewTurns returns turns of an instance.
func NewTurns() *Turns {
	d := &Dispatcher{watchdog: newWatchdog(time.Hour, time.Hour)}
	s := &orchestrationSession{session: session{d: d, live: lifetimes{work: context.Background()}, log: slog.New(slog.DiscardHandler)}}
	s.x = &execution{start: &history.ExecutionStarted{}, progress: new(progress), limit: s.limit}
	return &Turns{s}
}

// Run runs f in one turn.
func (t *Turns) Run(f func()) { _ = t.s.runTurn(func() { t.RunHere(f) }) }

// RunHere runs f on the caller's goroutine, without a turn's goroutine.
func (t *Turns) RunHere(f func()) {
	if t.s.x.turn == nil {
		t.s.x.turn = &turn{log: t.s.log}
	}
	_ = t.s.x.limit(t.s.x, f, func() {})
}

// DefaultTicks is the default limit of a turn in ticks.
const DefaultTicks = 300

// A Watched is a turn whose code runs without progress.
type Watched struct {
	w *watchdog
	t *turn
}

// NewWatched returns a turn that is abandoned after the given number of ticks.
func NewWatched(ticks int) *Watched {
	w := newWatchdog(time.Hour, time.Duration(ticks)*tick)
	t := &turn{log: slog.New(slog.DiscardHandler), over: make(chan error, 1)}
	w.watch(t, &history.ExecutionStarted{}, new(progress))
	return &Watched{w, t}
}

// Tick makes a tick arrive late.
func (w *Watched) Tick(late time.Duration) {
	w.w.mu.Lock()
	w.w.due = time.Now().Add(-late)
	w.w.mu.Unlock()
	w.w.tick()
}

// IsAbandoned reports whether the turn was abandoned.
func (w *Watched) IsAbandoned() bool { return len(w.t.over) > 0 }

// End ends the turn.
func (w *Watched) End() { w.w.unwatch(w.t) }

// Fits is fits.
var Fits = fits
