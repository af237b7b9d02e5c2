package durabletest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/explain"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// TB is what a [Hub] needs of a testing.TB. Fatalf must not return.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// DefaultMaxEpisodes is how many episodes a hub runs within one call, unless
// [Hub.MaxEpisodes] says otherwise.
const DefaultMaxEpisodes = 100_000

// epoch is when a hub's clock begins, as that of a testing/synctest bubble does.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// A Hub is a task hub in memory and in virtual time, with a worker. It belongs
// to one test, and to the goroutine of that test; only its [Hub.Client] may be
// used by others.
type Hub struct {
	// MaxEpisodes is how many episodes one call may run before the test fails,
	// so that an orchestrator which never ends does not keep the test for ever.
	// Zero means 100,000.
	MaxEpisodes int

	t      TB
	ctx    context.Context // of activities; ends with the test
	store  *memhub.Hub
	client *durable.Client
	logger *slog.Logger

	// The test's goroutine owns the following.
	registry  *durable.Registry
	instances map[string]*instance // those in memory, by ID
	entities  dispatch.EntityStepper
	started   int  // instances that were given an ID
	answers   bool // HTTP requests are answered by a stub

	mu           sync.Mutex // protects the following
	running      bool
	now          time.Time
	appointments []appointment // by time, and then as they were made
	executions   int
	calls        map[string][]*string // inputs by the activity's name in upper case
}

// An appointment is something to do at a time.
type appointment struct {
	at time.Time
	do func()
}

// An instance is what the hub has in memory of an instance that has not ended.
type instance struct {
	stepper
	waits map[*replay.Future]time.Time // for external events, with when they began
}

// New returns a Hub that runs fns, which must be as [durable.NewRegistry] wants
// them. It has no instances.
func New(t TB, fns ...*durable.Function) *Hub {
	ctx, cancel := context.WithCancel(context.Background())
	h := &Hub{
		t: t, ctx: ctx, now: epoch,
		store:     memhub.New(),
		instances: make(map[string]*instance),
		calls:     make(map[string][]*string),
	}
	h.store.Now = h.Now
	h.logger = newLogger(h)
	h.registry = durable.NewRegistry(fns...).WithLogger(h.logger)
	h.client = durable.NewClient(&clientHub{h.store, h}, h.registry)
	t.Cleanup(func() {
		cancel()
		for _, i := range h.instances {
			h.unload(i)
		}
	})
	return h
}

// Now returns the hub's time.
func (h *Hub) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// functions returns the functions of the registry, as the engine runs them.
func (h *Hub) functions() dispatch.AllFunctions { return dispatch.FunctionsOf(h.registry) }

// Elapsed returns how much of the hub's time has passed since [New].
func (h *Hub) Elapsed() time.Duration { return h.Now().Sub(epoch) }

// Client returns a client of the hub, for the code under test that needs one.
// What it sends is taken when the hub next runs; it may be used by several
// goroutines, and by activities and functions given to [Hub.After].
//
// Waiting by a client takes real time and lets nothing happen, so that a call
// which waits for an instance does not return: use [Instance.Wait] and
// [Hub.Advance], and terminate an instance and its children one by one, since a
// Terminate with durable.Recursive waits for each of them.
func (h *Hub) Client() *durable.Client { return h.client }

// After has f called when d has passed. It may use the hub, but not wait. d below
// zero counts as zero.
//
// If f raises an event at the very time at which a timer is due, the timer comes
// first.
func (h *Hub) After(d time.Duration, f func()) {
	h.at(h.Now().Add(max(d, 0)), f)
}

func (h *Hub) at(at time.Time, do func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, _ := slices.BinarySearchFunc(h.appointments, at, func(a appointment, at time.Time) int {
		if a.at.After(at) {
			return 1
		}
		return -1 // also if it is for the same time: the new one comes after it
	})
	h.appointments = slices.Insert(h.appointments, i, appointment{at, do})
}

// appointment takes the next appointment if it is due. Else next is when it is,
// zero if there is none.
func (h *Hub) appointment() (do func(), next time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.appointments) == 0 {
		return nil, time.Time{}
	}
	a := h.appointments[0]
	if a.at.After(h.now) {
		return nil, a.at
	}
	h.appointments = h.appointments[1:]
	return a.do, time.Time{}
}

// newExecutionID returns 32 hexadecimal digits, as .NET has them: the executions
// of a hub are numbered.
func (h *Hub) newExecutionID() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.executions++
	return fmt.Sprintf("%032x", h.executions)
}

// note remembers the input of an activity that is run.
func (h *Hub) note(name string, input *string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name = strings.ToUpper(name)
	h.calls[name] = append(h.calls[name], input)
}

// lookup returns what a function is registered as, and fails the test if it is
// not.
func (h *Hub) lookup(fn any) *durable.Function {
	h.t.Helper()
	f, err := h.registry.Lookup(fn)
	if err != nil {
		h.t.Fatalf("%v: give its Function to New", err)
	}
	return f
}

// activity runs an activity, on this goroutine, and sends its result.
func (h *Hub) activity(w *provider.ActivityWorkItem) {
	h.t.Helper()
	fn, ok := h.functions().Activity(w.Task.Name)
	if !ok {
		h.t.Fatalf("durabletest: instance %q called activity %q (task %d) with input %s, and no activity of this name is registered; "+
			"give its Function to New, or stub it by StubName", w.Instance.InstanceID, w.Task.Name, w.Task.EventID, explain.Payload(w.Task.Input))
	}
	if isHTTP(w.Task.Name) && !h.answers {
		h.t.Fatalf("durabletest: instance %q made the HTTP request %s, and a test sends none; "+
			"answer it by StubName(hub, durable.HTTPActivityName, ...)", w.Instance.InstanceID, explain.Payload(w.Task.Input))
	}
	h.note(w.Task.Name, w.Task.Input)
	run := new(activityRun)
	result := dispatch.RunActivity(context.WithValue(h.ctx, activityRunKey{}, run), fn, w, h.Now)
	if f, ok := result.(*history.TaskFailed); ok && f.Failure.StackTrace != nil {
		h.t.Logf("durabletest: activity %q (task %d of instance %q) ended by a panic: %s\n%s",
			w.Task.Name, w.Task.EventID, w.Instance.InstanceID, f.Failure, *f.Failure.StackTrace)
	}
	complete := func() {
		if err := w.Lock.Complete(h.ctx, result); err != nil {
			h.t.Fatalf("durabletest: send the result of activity %q: %v", w.Task.Name, err)
		}
	}
	if takes := time.Duration(run.takes.Load()); takes > 0 {
		end := h.Now().Add(takes)
		result.Head().Timestamp = history.Ticks(end)
		h.at(end, complete)
		return
	}
	complete()
}

// check runs an orchestrator again from the start, and fails the test if it
// does something else than it did.
func (h *Hub) check(ran dispatch.Ran) {
	h.t.Helper()
	code := ran.Code
	// What it logs, it has logged already.
	if silent, ok := dispatch.FunctionsOf(h.registry.WithLogger(slog.New(slog.DiscardHandler))).Orchestrator(ran.Start.Name, ran.Start.Version); ok {
		code = silent
	}
	difference := ""
	err := dispatch.Bound(ran.Start, code, func(code replay.Code) {
		again := replay.New(ran.Start.Instance, code)
		defer again.Close()
		outcome := again.Episode(ran.Past, ran.Fresh)
		if d := again.Divergence(); d != nil {
			difference = explain.Divergence(d).String()
		} else {
			difference = compare(ran.Outcome, outcome)
		}
	})
	if err != nil {
		h.t.Fatalf("durabletest: run again from the start in episode %d: %v", episodesIn(ran.Past), err)
	}
	if difference == "" {
		return
	}
	h.t.Fatalf("durabletest: orchestrator %q is not deterministic: run again from the start, instance %q did something else in episode %d.\n%s\n%s",
		ran.Start.Name, ran.Start.Instance.InstanceID, episodesIn(ran.Past), difference, advice)
}

// entity performs the operations that an entity was sent.
func (h *Hub) entity(item *provider.OrchestrationWorkItem) {
	h.t.Helper()
	id := item.Instance.InstanceID
	cp, err := h.entities.Step(h.ctx, h.functions(), dispatch.Config{Now: h.Now, NewID: h.newExecutionID, Logger: h.logger}, item)
	if err != nil {
		if dispatch.IsUnknownFunction(err) {
			h.t.Fatalf("durabletest: entity %q got %s, and no entity of this name is registered; give its Function to New", id, describeMail(item.Messages))
		}
		h.t.Fatalf("durabletest: entity %q: %v", id, err)
	}
	if err := item.Session.Commit(h.ctx, cp); err != nil {
		h.t.Fatalf("durabletest: entity %q: commit: %v", id, err)
	}
	h.entities.Committed(cp)
	if err := item.Session.Release(h.ctx); err != nil {
		h.t.Fatalf("durabletest: entity %q: release: %v", id, err)
	}
}

func (h *Hub) wait(id string) {
	h.t.Helper()
	defer h.enter("Wait")()
	ended := func() bool {
		s, err := h.store.Instance(h.ctx, id, provider.Fetch{})
		return err == nil && s.Status.IsTerminal()
	}
	if !h.runUntil(ended) {
		h.t.Fatalf("%s", h.stuck(id))
	}
	h.advance(h.Now()) // the messages of the last episode
}

// Advance lets d pass, and with it all that happens in that time and at its end.
func (h *Hub) Advance(d time.Duration) {
	h.t.Helper()
	defer h.enter("Advance")()
	h.advance(h.Now().Add(max(d, 0)))
}

// AdvanceTo is [Hub.Advance] until a time, which must not have passed.
func (h *Hub) AdvanceTo(t time.Time) {
	h.t.Helper()
	if t.Before(h.Now()) {
		h.t.Fatalf("durabletest: AdvanceTo(%s): the hub's time is %s, and does not go back", explain.Time(t), explain.Time(h.Now()))
	}
	h.Advance(t.Sub(h.Now()))
}

// enter notes that the hub runs, until the function that it returns is called.
func (h *Hub) enter(call string) (leave func()) {
	h.t.Helper()
	if !h.tryEnter() {
		h.t.Fatalf("durabletest: %s was called while the hub runs: by an activity, by an orchestrator, by a function given to After or by another goroutine; "+
			"there, only what does not wait can be done", call)
	}
	return h.leave
}

func (h *Hub) tryEnter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running {
		return false
	}
	h.running = true
	return true
}

func (h *Hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running = false
}

// settle lets everything happen that can happen now. If the hub runs, its runner
// does so.
func (h *Hub) settle() {
	h.t.Helper()
	if h.tryEnter() {
		defer h.leave()
		h.advance(h.Now())
	}
}

// advance lets time pass until a given time.
func (h *Hub) advance(until time.Time) {
	h.t.Helper()
	turns := h.turns(nil)
	for {
		next := turns.take()
		switch {
		case next.IsZero(), next.After(until):
			h.set(until)
			return
		default:
			h.set(next)
		}
	}
}

// runUntil lets everything happen until done. It returns false if nothing can
// happen any more.
func (h *Hub) runUntil(done func() bool) bool {
	h.t.Helper()
	turns := h.turns(done)
	for {
		next := turns.take()
		switch {
		case done():
			return true
		case next.IsZero():
			return false
		default:
			h.set(next)
		}
	}
}

func (h *Hub) set(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.After(h.now) {
		h.now = now
	}
}

func (h *Hub) turns(stop func() bool) *turns {
	t := &turns{hub: h, stop: stop, began: h.Now(), most: h.MaxEpisodes}
	if t.most == 0 {
		t.most = DefaultMaxEpisodes
	}
	return t
}

// episode runs an instance's next episode.
func (h *Hub) episode(item *provider.OrchestrationWorkItem) {
	h.t.Helper()
	i := h.inMemory(item.Instance)
	cp, dropped, err := i.Step(h.functions(), item)
	if err != nil {
		h.t.Fatalf("%s", refused(item, err))
	}
	for _, d := range dropped {
		h.t.Logf("durabletest: instance %q took no notice of a message: %s", item.Instance.InstanceID, d)
	}
	if err := item.Session.Commit(h.ctx, cp); err != nil {
		h.t.Fatalf("durabletest: instance %q: commit: %v", item.Instance.InstanceID, err)
	}
	if err := item.Session.Release(h.ctx); err != nil {
		h.t.Fatalf("durabletest: instance %q: release: %v", item.Instance.InstanceID, err)
	}
	h.logPanic(item.Instance.InstanceID, cp)
	if i.Ended() {
		delete(h.instances, item.Instance.InstanceID)
		h.unload(i)
		return
	}
	i.noteWaits(h.Now())
}

// unload takes an instance out of memory, and fails the test if a deferred call does not return.
func (h *Hub) unload(i *instance) {
	h.t.Helper()
	if err := i.Close(); err != nil {
		h.t.Fatalf("durabletest: take an instance out of memory: %v", err)
	}
}

// inMemory returns what runs an execution.
func (h *Hub) inMemory(execution history.OrchestrationInstance) *instance {
	id := execution.InstanceID
	i := h.instances[id]
	if i != nil && i.Instance() != execution {
		h.unload(i) // another instance has the ID now
		i = nil
	}
	if i == nil {
		i = &instance{stepper: dispatch.NewStepper(h.Now)}
		i.Ran = h.check
		h.instances[id] = i
	}
	return i
}

// noteWaits remembers since when the instance waits for external events.
func (i *instance) noteWaits(now time.Time) {
	var waits []*replay.Future
	if i.Live() != nil {
		waits = i.Live().EventWaits()
	}
	since := make(map[*replay.Future]time.Time, len(waits))
	for _, f := range waits {
		if since[f] = i.waits[f]; since[f].IsZero() {
			since[f] = now
		}
	}
	i.waits = since
}

// logPanic logs the stack of an orchestrator that ended by a panic.
func (h *Hub) logPanic(id string, cp *provider.Checkpoint) {
	h.t.Helper()
	for _, e := range cp.NewEvents {
		if end, ok := e.(*history.ExecutionCompleted); ok && end.Failure != nil && end.Failure.StackTrace != nil {
			h.t.Logf("durabletest: the orchestrator of instance %q ended by a panic: %s\n%s", id, end.Failure, *end.Failure.StackTrace)
		}
	}
}

// stuck says why nothing can happen any more although an instance has not ended.
func (h *Hub) stuck(id string) string {
	page, err := h.store.Instances(h.ctx, provider.Query{})
	if err != nil {
		return fmt.Sprintf("durabletest: instance %q has not ended, and nothing can happen any more: %v", id, err)
	}
	r := report{hub: h}
	r.printf("durabletest: instance %q has not ended, and nothing can happen any more. Time is %s, %v after the hub began.\n",
		id, explain.Time(h.Now()), h.Elapsed())
	for _, s := range page.Instances {
		switch {
		case history.IsEntity(s.Instance.InstanceID):
			r.entity(s)
		case !s.Status.IsTerminal():
			r.instance(s)
		}
	}
	if r.forEvents {
		r.printf("Raise what is waited for before waiting, or have it raised at a time by Hub.After.")
	}
	return r.String()
}
