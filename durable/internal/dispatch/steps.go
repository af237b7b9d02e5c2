package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/tracing"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Causes for canceling the contexts of steps or for abandoning their instance.
var (
	errExecutionOver = errors.New("the orchestration has ended or continued as new")
	errHandover      = errors.New("another worker takes the orchestration over")
	errNoSlot        = errors.New("too many orchestrations wait for a slot for their steps")
	errUncommitted   = errors.New("the results of the orchestration's last episode could not be stored")
)

const (
	// deferLimit is the time after which a deferred checkpoint is written.
	deferLimit = 100 * time.Millisecond
	// stepGrace is the maximum wait for functions that ignore the cancellation of their contexts. After it,
	// the session leaves the instance.
	stepGrace = 5 * time.Second
	// handoverReserve is the last part of a drain. It is reserved for storing results.
	handoverReserve = time.Second
	// giveBackDelay is the delay before the hub redelivers an instance that a session has abandoned because
	// of its steps. It limits the rate of sessions while the lock on the instance is in doubt.
	giveBackDelay = 100 * time.Millisecond
	// maxWaitingSessions is the maximum number of sessions whose steps all wait for a slot. A session that
	// exceeds it leaves its instance, which is redelivered after waitingDelay or when a poll is due. The
	// number of sessions that wait for polls in memory has the same limit.
	maxWaitingSessions = 1000
	waitingDelay       = 10 * time.Second
	// maxStepResults and maxStepResultSize limit the number and the bytes of results that one episode
	// records. A single result may be larger.
	maxStepResults    = 1000
	maxStepResultSize = 8 << 20
	// pollStay is the maximum time that a session waits in memory for the next call of a poll.
	pollStay = 10 * time.Second
	// unlimited is longer than any wait.
	unlimited = 365 * 24 * time.Hour
)

// steps runs the steps of one execution for a session:
//
//	decided → queue → running → ended → recorded by the session's next episode
//
// A step that runs at most once leaves the queue with a slot and is then ready. It runs after the session's
// next episode has recorded its start.
//
// A poll returns to the queue until it is done:
//
//	running → waiting → queue
//	sleeping → queue
//
// A sleeping poll waits for a message of [provider.WakePolls].
//
// A step occupies a slot for activities while its function runs. A function starts only if the session still
// holds its instance. Otherwise no further step starts, and unrecorded steps run again when the instance is
// redelivered.
type steps struct {
	d        *Dispatcher
	instance history.OrchestrationInstance
	log      *slog.Logger
	mayStart func() bool     // reports whether the session holds its instance
	ctx      context.Context // of the functions
	cancel   context.CancelCauseFunc
	starting sync.WaitGroup    // goroutines of startNext
	sleeping []*replay.RunStep // polls; belongs to the goroutine of the session

	mu      sync.Mutex // protects the following
	queue   []startedStep
	ready   []startedStep // they have slots, and the next episode records their starts
	begins  []startedStep // they have slots, and the session's current episode records their starts
	running int
	ended   []stepResult
	waiting map[*replay.RunStep]*waitingPoll
	paused  bool                  // no step starts: the instance is suspended
	left    bool                  // no step starts: the session leaves its instance
	aside   *unknownFunctionError // set if the next step is set aside; no step starts then
	isBusy  bool                  // startNext runs
	changed func()                // called after a change; may be nil
}

// A waitingPoll is a poll whose next call is not due.
type waitingPoll struct {
	startedStep
	timer *time.Timer
}

func newSteps(d *Dispatcher, work context.Context, instance history.OrchestrationInstance, log *slog.Logger, mayStart func() bool) *steps {
	s := &steps{d: d, instance: instance, log: log, mayStart: mayStart, waiting: make(map[*replay.RunStep]*waitingPoll)}
	s.ctx, s.cancel = context.WithCancelCause(work)
	d.stepLoad.add(s)
	return s
}

// add adds the steps of an episode, which start as soon as slots are free. A poll that is not due
// waits.
func (s *steps) add(x *execution, traced *tracing.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.d.config.Now()
	for _, step := range x.newSteps {
		started := startedStep{RunStep: step, scheduled: scheduledStep(step)}
		traced.StampStep(started.scheduled)
		if step.Poll != nil && !x.intake.isDue(step, now) {
			s.await(started, now)
			continue
		}
		s.queue = append(s.queue, started)
	}
	s.start()
}

// await makes a poll wait until its next call is due, and then queues it. s.mu is locked.
func (s *steps) await(step startedStep, now time.Time) {
	_, _, step.due = step.pollAt(now)
	s.waiting[step.RunStep] = &waitingPoll{step, time.AfterFunc(step.due.Sub(now), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.waiting[step.RunStep] == nil {
			return
		}
		delete(s.waiting, step.RunStep)
		s.queue = append(s.queue, step)
		s.start()
		s.notify()
	})}
}

// rest removes the waiting polls, which then sleep. It returns their earliest due time and their task IDs. If
// a poll has become due or another step is in progress, it does nothing and returns no IDs.
func (s *steps) rest() (due time.Time, ids []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.onlyWaits() {
		return time.Time{}, nil
	}
	return s.nextPoll(), s.stopPolls()
}

// onlyWaits reports whether all steps of the session are polls that wait. s.mu is locked.
func (s *steps) onlyWaits() bool {
	return s.running+len(s.queue)+len(s.ready)+len(s.begins)+len(s.ended) == 0
}

// stopPolls removes the waiting polls and returns their task IDs. s.mu is locked.
func (s *steps) stopPolls() (ids []int) {
	for step, w := range s.waiting {
		w.timer.Stop()
		ids = append(ids, step.ID)
	}
	clear(s.waiting)
	slices.Sort(ids)
	return ids
}

// nextPoll returns the earliest due time of the waiting polls, or zero if no poll waits. s.mu is locked.
func (s *steps) nextPoll() (due time.Time) {
	for _, w := range s.waiting {
		if due.IsZero() || w.due.Before(due) {
			due = w.due
		}
	}
	return due
}

// sleep adds sleeping polls. It removes and returns those that a delivery wakes.
func (s *steps) sleep(polls []*replay.RunStep, in *intake) (woken []*replay.RunStep) {
	for _, step := range s.sleeping {
		if in.wakesPoll(step) {
			woken = append(woken, step)
		}
	}
	s.sleeping = append(slices.DeleteFunc(s.sleeping, in.wakesPoll), polls...)
	return woken
}

// pause prevents the start of further steps while the instance is suspended. Running steps and steps whose
// start is recorded continue.
func (s *steps) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = true
	s.requeue()
}

// resume ends a pause and starts queued steps. The dispatcher must have released the work that was set aside
// for the instance. Without a pause, resume does nothing.
func (s *steps) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused {
		s.paused, s.aside = false, nil
		s.start()
	}
}

// requeue returns the ready steps to the queue. s.mu is locked.
func (s *steps) requeue() {
	for range s.ready {
		s.d.activities.release()
	}
	s.queue = slices.Concat(s.ready, s.queue)
	s.ready = nil
}

// stop prevents the start of further steps, because the session leaves its instance. s.mu is locked.
func (s *steps) stop() {
	s.left = true
	s.requeue()
}

// start makes a goroutine start the queued steps. s.mu is locked.
func (s *steps) start() {
	if s.isBusy || !s.canStart() {
		return
	}
	s.isBusy = true
	s.starting.Go(func() {
		for s.startNext() {
		}
	})
}

// canStart reports whether the first queued step may start. s.mu is locked.
func (s *steps) canStart() bool {
	return len(s.queue) > 0 && !s.paused && !s.left && s.aside == nil
}

// startNext waits for a slot and starts the next step. It returns false if no further step may start.
func (s *steps) startNext() bool {
	if !s.d.activities.enter(s.ctx) {
		return s.idle(s.stop)
	}
	s.mu.Lock()
	step := s.queue[0]
	s.mu.Unlock()
	switch {
	case s.d.config.Crashes.IsSetAside(step.work(s.instance)):
		s.d.activities.release()
		return s.idle(func() { s.aside = &unknownFunctionError{kind: "step", name: step.Name, crashed: true} })
	case !s.mayStart():
		s.d.activities.release()
		return s.idle(s.stop)
	}
	return s.idle(func() {
		switch {
		case !s.canStart() || s.queue[0].RunStep != step.RunStep: // the queue has changed meanwhile
			s.d.activities.release()
			return
		case step.AtMostOnce:
			s.ready = append(s.ready, step)
		default:
			s.begin(step)
		}
		s.queue = s.queue[1:]
	})
}

// begin runs a step in its slot. s.mu is locked.
func (s *steps) begin(step startedStep) {
	s.running++
	s.d.handle(&item{
		what: fmt.Sprintf("step %s of orchestration %s", step.Name, s.instance.InstanceID), work: step.work(s.instance),
		instance: s.instance,
		running:  RunningActivity{TaskID: step.ID, Name: step.Name, Since: s.d.config.Now(), IsStep: true, Attempt: step.Attempt},
	}, func(it *item) { s.run(step, it) })
}

// beginRecorded runs the steps whose starts the last episode has recorded. If holds returns false, it runs
// none of them, and their outcomes are unknown.
func (s *steps) beginRecorded(holds func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := len(s.begins) == 0 || holds()
	if !held {
		s.stop()
	}
	for _, step := range s.begins {
		if held {
			s.begin(step)
		} else {
			s.d.activities.release()
		}
	}
	s.begins = nil
}

// idle calls f, which changes s. It returns false, which ends the goroutine of startNext, if no further step
// may start.
func (s *steps) idle(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.isBusy = s.canStart()
	s.notify()
	return s.isBusy
}

// notify reports a change to the session. s.mu is locked.
func (s *steps) notify() {
	if s.changed != nil {
		s.changed()
		s.changed = nil
	}
}

// run runs the function of a step.
func (s *steps) run(step startedStep, it *item) {
	d := s.d
	log := s.log.With("name", step.Name, "taskEventId", step.ID)
	r, again := taskResult{failure: replay.FailureOf(errStepGoexit)}, false
	end := d.config.Meter.Begin(metering.Activity, d.config.Now)
	defer func() {
		interrupted := (r.failure != nil || again) && s.ctx.Err() != nil
		outcome := metering.Completed
		switch {
		case interrupted && again:
			outcome = metering.Abandoned
		case interrupted:
			outcome = metering.Abandoned
			log.LogAttrs(s.ctx, slog.LevelInfo, "step was interrupted", append(failureAttrs(r.failure), slog.String("reason", context.Cause(s.ctx).Error()))...)
		case r.failure != nil:
			outcome = metering.Failed
			log.LogAttrs(s.ctx, slog.LevelWarn, "step failed", failureAttrs(r.failure)...)
		}
		end(step.Name, outcome)
		d.activities.release()
		s.mu.Lock()
		s.running--
		switch {
		case interrupted, again && s.ctx.Err() != nil: // the context may have ended after interrupted was set
			s.stop()
		case again:
			s.await(step, d.config.Now())
		default:
			s.ended = append(s.ended, stepResult{step, r, d.config.Now()})
		}
		s.notify()
		s.mu.Unlock()
		d.resetCrashes(it.work)
	}()
	ctx := step.withInfo(s.ctx, s.instance, d.config.Now())
	ctx, traced := d.config.Tracer.RunActivity(ctx, step.scheduled, s.instance)
	r, again = invokeStep(ctx, step.Func.(StepFunc))
	traced(r.failure)
}

// take returns the events for the session's next episode. They record the results of ended steps and, if
// starts is set, the starts of ready steps. Results that exceed the limits of an episode remain.
func (s *steps) take(starts bool) (records []history.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := 0, 0
	for _, r := range s.ended {
		record := r.record()
		size += payloadOf(record[len(record)-1])
		if n == maxStepResults || n > 0 && size > maxStepResultSize {
			break
		}
		n++
		records = append(records, record...)
	}
	s.ended = slices.Clone(s.ended[n:])
	if starts {
		for _, step := range s.ready {
			records = append(records, step.recordStart(s.d.config.Now())...)
		}
		s.begins, s.ready = s.ready, nil
	}
	return records
}

// areRunning reports whether steps run, or have results to record.
func (s *steps) areRunning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running+len(s.begins)+len(s.ended) > 0
}

// A stepState describes the steps of a waiting session.
type stepState struct {
	running int
	records bool // the next episode has results or starts to record
	left    bool
	aside   *unknownFunctionError
	waiting int       // polls that wait
	poll    time.Time // time of the next poll if all steps are waiting polls; else zero
}

// look returns the state. It calls changed once, after the next change.
func (s *steps) look(changed func()) stepState {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = changed
	state := stepState{running: s.running, records: len(s.ended)+len(s.ready) > 0, left: s.left, aside: s.aside, waiting: len(s.waiting)}
	if s.onlyWaits() {
		state.poll = s.nextPoll()
	}
	return state
}

// load returns the load of one execution. Queued steps that may not start do not count.
func (s *steps) load(now time.Time) provider.QueueLoad {
	s.mu.Lock()
	defer s.mu.Unlock()
	load := provider.QueueLoad{Length: s.running + len(s.ready) + len(s.begins)}
	if s.canStart() {
		load.Length += len(s.queue)
		load.Latency = max(0, now.Sub(s.queue[0].waitsSince(now)))
	}
	return load
}

// leave is stop for a caller that does not hold mu.
func (s *steps) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
}

// end cancels the contexts of the running steps and discards their results.
func (s *steps) end(cause error) {
	s.leave()
	s.cancel(cause)
	s.starting.Wait()
	s.d.stepLoad.remove(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopPolls()
	for range s.begins {
		s.d.activities.release()
	}
	s.begins = nil
}

// awaitReturn waits until no function runs, for at most stepGrace or until ctx ends.
func (s *steps) awaitReturn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stepGrace)
	defer cancel()
	for ctx.Err() == nil {
		changed, notify := context.WithCancel(ctx)
		if s.look(notify).running == 0 {
			notify()
			return
		}
		<-changed.Done()
		notify()
	}
}
