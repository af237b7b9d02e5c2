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

// TB is the subset of testing.TB that a [Hub] uses. Fatalf must not return.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// DefaultMaxEpisodes is the default of [Hub.MaxEpisodes].
const DefaultMaxEpisodes = 100_000

// epoch is the initial time of a hub's clock, the same as in a testing/synctest bubble.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// A Hub is a task hub in memory and in virtual time, with a worker. It belongs to one test and to that
// test's goroutine. Only its [Hub.Client] may be used by other goroutines.
type Hub struct {
	// MaxEpisodes is the maximum number of episodes that one call may run. The test fails when a call
	// exceeds it, which stops orchestrators that never end. Zero means [DefaultMaxEpisodes].
	MaxEpisodes int

	t      TB
	ctx    context.Context // for activities; canceled when the test ends
	store  *memhub.Hub
	client *durable.Client
	logger *slog.Logger

	// The fields in this group belong to the test's goroutine.
	registry  *durable.Registry
	instances map[string]*instance // instances in memory, by ID
	entities  dispatch.EntityStepper
	started   int  // number of instances that Start has started
	stubsHTTP bool // a stub answers HTTP requests
	stepStubs map[string]dispatch.StepFunc

	mu           sync.Mutex // guards the following fields
	running      bool
	now          time.Time
	appointments []appointment // sorted by time, then in the order of insertion
	executions   int
	calls        map[string][]*string // inputs, by the name of the activity in upper case
}

// An appointment is a function that runs at a time of the hub.
type appointment struct {
	at time.Time
	do func()
}

// An instance is the in-memory state of an instance that has not ended.
type instance struct {
	stepper
	waits map[*replay.Future]time.Time // external events that it waits for, with the start of the wait
	polls []waitingPoll
}

// A waitingPoll is a poll of an execution whose next call is due at a given time.
type waitingPoll struct {
	*replay.RunStep
	execution history.OrchestrationInstance
	due       time.Time
}

// New returns a Hub without instances that runs fns. The rules of [durable.NewRegistry] apply to fns.
func New(t TB, fns ...*durable.Registration) *Hub {
	ctx, cancel := context.WithCancel(context.Background())
	h := &Hub{
		t: t, ctx: ctx, now: epoch,
		store:     memhub.New(),
		instances: make(map[string]*instance),
		calls:     make(map[string][]*string),
		stepStubs: make(map[string]dispatch.StepFunc),
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

// Now returns the current time of the hub.
func (h *Hub) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// functions returns the registered functions in the form that the engine runs.
func (h *Hub) functions() dispatch.AllFunctions { return dispatch.FunctionsOf(h.registry) }

// Elapsed returns the time of the hub that has passed since [New].
func (h *Hub) Elapsed() time.Duration { return h.Now().Sub(epoch) }

// Client returns a client of the hub, for code under test that needs one. Goroutines, activities and
// functions passed to [Hub.After] may use it concurrently. The hub processes what the client sends when it
// next runs.
//
// Client calls that wait do so in real time, and the hub does not run meanwhile. A call that waits for an
// instance therefore never returns; use [Instance.Wait] and [Hub.Advance] instead. For the same reason,
// terminate an instance and its children one by one: Terminate with durable.Recursive waits for each of
// them.
func (h *Hub) Client() *durable.Client { return h.client }

// After calls f when d has passed. A negative d counts as zero. f may use the hub but must not call [Run],
// [Instance.Wait], [Hub.Advance] or [Hub.AdvanceTo].
//
// If f raises an event at the time at which a timer is due, the timer fires first.
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
		return -1 // also for equal times: a new appointment comes last
	})
	h.appointments = slices.Insert(h.appointments, i, appointment{at, do})
}

// appointment removes and returns the next appointment if it is due. Otherwise it returns the time at
// which the next one is due, zero without appointments.
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

// newExecutionID returns a sequential number as 32 hexadecimal digits, the format of .NET's execution IDs.
func (h *Hub) newExecutionID() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.executions++
	return fmt.Sprintf("%032x", h.executions)
}

// recordCall records the input of an activity call, for Calls.
func (h *Hub) recordCall(name string, input *string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name = strings.ToUpper(name)
	h.calls[name] = append(h.calls[name], input)
}

// lookup returns the registration of the function fn. It fails the test if fn is not registered.
func (h *Hub) lookup(fn any) *durable.Registration {
	h.t.Helper()
	f, err := h.registry.Lookup(fn)
	if err != nil {
		h.t.Fatalf("%v: pass its Function to New", err)
	}
	return f
}

// activity runs an activity on the calling goroutine and sends its result.
func (h *Hub) activity(w *provider.ActivityWorkItem) {
	h.t.Helper()
	fn, ok := h.functions().Activity(w.Task.Name)
	if !ok {
		h.t.Fatalf("durabletest: instance %q called activity %q (task %d) with input %s, but no activity has this name; "+
			"pass its Function to New, or stub it with StubName", w.Instance.InstanceID, w.Task.Name, w.Task.EventID, explain.Payload(w.Task.Input))
	}
	if isHTTP(w.Task.Name) && !h.stubsHTTP {
		h.t.Fatalf("durabletest: instance %q made the HTTP request %s, but a Hub sends no requests; "+
			"stub it with StubName(hub, durable.HTTPActivityName, ...)", w.Instance.InstanceID, explain.Payload(w.Task.Input))
	}
	h.recordCall(w.Task.Name, w.Task.Input)
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
		result.Head().Timestamp = history.TruncateToTicks(end)
		h.at(end, complete)
		return
	}
	complete()
}

// check replays an orchestrator from the start, and fails the test if the replay differs from the first
// run.
func (h *Hub) check(ran dispatch.GenerationRun) {
	h.t.Helper()
	code := ran.Code
	if silent, ok := h.silent().Orchestrator(ran.Start.Name, ran.Start.Version); ok {
		code = silent
	}
	difference := ""
	err := dispatch.RunWithLimit(ran.Start, code, func(code replay.Code) {
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
		h.t.Fatalf("durabletest: replay of episode %d: %v", episodesIn(ran.Past), err)
	}
	if difference == "" {
		return
	}
	h.t.Fatalf("durabletest: orchestrator %q is not deterministic: the replay of instance %q differs from its first run in episode %d.\n%s\n%s",
		ran.Start.Name, ran.Start.Instance.InstanceID, episodesIn(ran.Past), difference, advice)
}

// entity runs the pending operations of an entity.
func (h *Hub) entity(item *provider.OrchestrationWorkItem) {
	h.t.Helper()
	id := item.Instance.InstanceID
	cp, err := h.entities.Step(h.ctx, h.functions(), dispatch.Config{Now: h.Now, NewID: h.newExecutionID, Logger: h.logger}, item)
	if err != nil {
		if dispatch.IsUnknownFunction(err) {
			h.t.Fatalf("durabletest: entity %q got %s, but no entity has this name; pass its Function to New", id, describeMail(item.Messages))
		}
		h.t.Fatalf("durabletest: entity %q: %v", id, err)
	}
	if err := item.Session.Commit(h.ctx, cp); err != nil {
		h.t.Fatalf("durabletest: entity %q: commit: %v", id, err)
	}
	h.entities.MarkSettled(cp)
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
	h.advance(h.Now()) // process the messages of the last episode
}

// Advance advances the hub's time by d and runs all work that is due until then.
func (h *Hub) Advance(d time.Duration) {
	h.t.Helper()
	defer h.enter("Advance")()
	h.advance(h.Now().Add(max(d, 0)))
}

// AdvanceTo is [Hub.Advance] up to time t. It fails the test if t has passed.
func (h *Hub) AdvanceTo(t time.Time) {
	h.t.Helper()
	if t.Before(h.Now()) {
		h.t.Fatalf("durabletest: AdvanceTo(%s): the hub's time is already %s", explain.Time(t), explain.Time(h.Now()))
	}
	h.Advance(t.Sub(h.Now()))
}

// enter marks the hub as running until the caller calls leave. It fails the test if the hub is running
// already.
func (h *Hub) enter(call string) (leave func()) {
	h.t.Helper()
	if !h.tryEnter() {
		h.t.Fatalf("durabletest: %s was called while the hub runs (by an activity, an orchestrator, a function passed to After or another goroutine); "+
			"only calls that do not wait are allowed there", call)
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

// settle runs all work that is due now. If the hub is running already, the call that runs it does that
// work.
func (h *Hub) settle() {
	h.t.Helper()
	if h.tryEnter() {
		defer h.leave()
		h.advance(h.Now())
	}
}

// advance runs all work that is due until a given time and sets the clock to that time.
func (h *Hub) advance(until time.Time) {
	h.t.Helper()
	turns := h.turns(nil)
	for {
		next := turns.runDue()
		switch {
		case next.IsZero(), next.After(until):
			h.set(until)
			return
		default:
			h.set(next)
		}
	}
}

// runUntil runs work and advances the clock until done returns true. It returns false if no work is left.
func (h *Hub) runUntil(done func() bool) bool {
	h.t.Helper()
	turns := h.turns(done)
	for {
		next := turns.runDue()
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

// episode runs the next episode of an instance.
func (h *Hub) episode(item *provider.OrchestrationWorkItem) {
	h.t.Helper()
	i := h.inMemory(item.Instance)
	cp, dropped, err := i.Step(h.functions(), item)
	if err != nil {
		h.t.Fatalf("%s", stepError(item, err))
	}
	for _, d := range dropped {
		h.t.Logf("durabletest: instance %q ignored a message: %s", item.Instance.InstanceID, d)
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
	for _, step := range slices.Concat(i.NewSteps(), i.duePolls(h.Now())) {
		h.step(i, step)
	}
}

// duePolls removes the polls that are due, and returns the ones that the current execution called. It returns none while
// the instance is suspended.
func (i *instance) duePolls(now time.Time) (due []*replay.RunStep) {
	if live := i.Execution(); live == nil || live.IsSuspended() {
		return nil
	}
	i.polls = slices.DeleteFunc(i.polls, func(p waitingPoll) bool {
		isDue := !p.due.After(now)
		if isDue && p.execution == i.Instance() {
			due = append(due, p.RunStep)
		}
		return isDue
	})
	return due
}

// step runs a step on the calling goroutine. The instance records its result in its next episode.
func (h *Hub) step(i *instance, step *replay.RunStep) {
	h.t.Helper()
	run, execution := new(activityRun), i.Instance()
	ctx := dispatch.WithPause(context.WithValue(h.ctx, activityRunKey{}, run), run.spend)
	record := dispatch.RunStep(ctx, step, h.stepStubs[step.Name], execution, h.Now)
	if record == nil {
		h.pollAgain(i, step, h.Now().Add(time.Duration(run.takes.Load())))
		return
	}
	if f, ok := record[len(record)-1].(*history.TaskFailed); ok && f.Failure.StackTrace != nil {
		h.t.Logf("durabletest: step %q (task %d of instance %q) ended by a panic: %s\n%s",
			step.Name, step.ID, execution.InstanceID, f.Failure, *f.Failure.StackTrace)
	}
	finish := func() {
		if h.instances[execution.InstanceID] != i || i.Instance() != execution {
			return // the execution has ended
		}
		h.checkRepetition(i, step)
		i.AddResult(record)
		if err := h.store.Send(h.ctx, provider.WakeSteps(execution, h.Now())); err != nil {
			h.t.Fatalf("durabletest: record step %q: %v", step.Name, err)
		}
	}
	if takes := time.Duration(run.takes.Load()); takes > 0 {
		end := h.Now().Add(takes)
		record[len(record)-1].Head().Timestamp = history.TruncateToTicks(end)
		h.at(end, finish)
		return
	}
	finish()
}

// pollAgain makes the function of a poll run again when it is due. The previous call ended at the given time.
func (h *Hub) pollAgain(i *instance, step *replay.RunStep, ended time.Time) {
	h.t.Helper()
	_, _, next := step.PollAt(ended)
	i.polls = append(i.polls, waitingPoll{step, i.Instance(), next})
	if err := h.store.Send(h.ctx, provider.WakePolls(i.Instance(), next, []int{step.ID})); err != nil {
		h.t.Fatalf("durabletest: wait for poll %q: %v", step.Name, err)
	}
}

// checkRepetition fails the test unless a worker would run the step again after a crash that loses its
// result.
func (h *Hub) checkRepetition(i *instance, step *replay.RunStep) {
	h.t.Helper()
	events, err := h.store.History(h.ctx, i.Instance().InstanceID)
	if err != nil {
		h.t.Fatalf("durabletest: instance %q: %v", i.Instance().InstanceID, err)
	}
	start := history.StartOf(events)
	code, ok := h.silent().Orchestrator(start.Name, start.Version)
	if !ok {
		return
	}
	repeats := false
	err = dispatch.RunWithLimit(start, code, func(code replay.Code) {
		again := replay.New(start.Instance, code)
		defer again.Close()
		again.Episode(events, nil)
		other := again.UnrecordedStep(step.ID)
		repeats = other != nil && other.Name == step.Name
	})
	if err != nil || !repeats {
		h.t.Fatalf("durabletest: orchestrator %q is not deterministic: after a crash, the replay of instance %q does not repeat step %q (decision %d). %v\n%s",
			start.Name, start.Instance.InstanceID, step.Name, step.ID, err, advice)
	}
}

// silent returns the registered functions without a logger: a first run has written the log already.
func (h *Hub) silent() dispatch.AllFunctions {
	return dispatch.FunctionsOf(h.registry.WithLogger(slog.New(slog.DiscardHandler)))
}

// unload removes an instance from memory. It fails the test if a deferred call of the orchestrator does
// not return.
func (h *Hub) unload(i *instance) {
	h.t.Helper()
	if err := i.Close(); err != nil {
		h.t.Fatalf("durabletest: unload an instance: %v", err)
	}
}

// inMemory returns the in-memory state of an execution, and creates it if necessary.
func (h *Hub) inMemory(execution history.OrchestrationInstance) *instance {
	id := execution.InstanceID
	i := h.instances[id]
	if i != nil && i.Instance() != execution {
		h.unload(i) // the ID belongs to a new execution now
		i = nil
	}
	if i == nil {
		i = &instance{stepper: dispatch.NewStepper(h.Now)}
		i.OnGeneration = h.check
		h.instances[id] = i
	}
	return i
}

// noteWaits records since when the instance has waited for each external event.
func (i *instance) noteWaits(now time.Time) {
	var waits []*replay.Future
	if i.Execution() != nil {
		waits = i.Execution().EventWaits()
	}
	since := make(map[*replay.Future]time.Time, len(waits))
	for _, f := range waits {
		if since[f] = i.waits[f]; since[f].IsZero() {
			since[f] = now
		}
	}
	i.waits = since
}

// logPanic logs the stack if an orchestrator ended with a panic.
func (h *Hub) logPanic(id string, cp *provider.Checkpoint) {
	h.t.Helper()
	for _, e := range cp.NewEvents {
		if end, ok := e.(*history.ExecutionCompleted); ok && end.Failure != nil && end.Failure.StackTrace != nil {
			h.t.Logf("durabletest: the orchestrator of instance %q ended by a panic: %s\n%s", id, end.Failure, *end.Failure.StackTrace)
		}
	}
}

// stuck returns the failure message for an instance that has not ended and cannot continue.
func (h *Hub) stuck(id string) string {
	page, err := h.store.Instances(h.ctx, provider.Query{})
	if err != nil {
		return fmt.Sprintf("durabletest: instance %q cannot end: no work or timer is left; list instances: %v", id, err)
	}
	r := report{hub: h}
	r.printf("durabletest: instance %q cannot end: no work or timer is left. The hub's time is %s, %v after New.\n",
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
		r.printf("Raise the event before you wait for the instance, or at a chosen time with Hub.After.")
	}
	return r.String()
}
