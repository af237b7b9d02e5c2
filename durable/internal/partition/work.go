package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// work is the pending work of a partition in memory: instances with messages, activities,
// alarms, and locks. Open loads it from the records. Afterwards the effects of transactions
// change it.
type work struct {
	cfg     Config
	closing chan struct{} // closed by Close
	// Each of these channels holds at most one token, which says that new work is available.
	instanceReady, activityReady, alarmSet chan struct{}

	mu        sync.Mutex // protects the fields below, and the fields of other types that name it
	instances map[string]*instance
	ready     fifo[*instance]
	sessions  map[*session]struct{}
	waiters   map[string]map[chan struct{}]struct{} // channels to close when an instance ends, by ID

	readyActivities fifo[*activity]
	locks           map[*activityLock]struct{}
	delivered       map[*activity]struct{} // dispatched since the partition was opened, and not done

	alarms  alarms
	running bool          // Run runs
	ended   func() error  // Err of the context of Run
	drained chan struct{} // non-nil while Run waits for work in flight
	revokes time.Time     // the end of that wait
	closed  bool
}

func newWork(cfg Config) work {
	return work{
		cfg:           cfg,
		closing:       make(chan struct{}),
		instanceReady: make(chan struct{}, 1),
		activityReady: make(chan struct{}, 1),
		alarmSet:      make(chan struct{}, 1),
		instances:     make(map[string]*instance),
		sessions:      make(map[*session]struct{}),
		waiters:       make(map[string]map[chan struct{}]struct{}),
		locks:         make(map[*activityLock]struct{}),
		delivered:     make(map[*activity]struct{}),
	}
}

// load loads the routes of the pending messages and timers, and the delivery counts of the
// activities. It does not keep their contents. crashes is the hub's crash count.
func (w *work) load(t tables, crashes uint64) error {
	err := t.eachWithKeyLength(messagesTable, 8, func(key, value []byte) error {
		r, err := decodeRoute(value)
		if err == nil {
			w.deliver(&message{number: binary.BigEndian.Uint64(key), size: len(value), route: r})
		}
		return err
	})
	if err != nil {
		return err
	}
	err = t.eachWithKeyLength(timersTable, 16, func(key, value []byte) error {
		r, err := decodeRoute(value)
		if err == nil {
			m := &message{number: binary.BigEndian.Uint64(key[8:]), size: len(value), route: r}
			newDecoder(key[:8]).Time(&m.due)
			w.deliverWhenDue(m)
		}
		return err
	})
	if err != nil {
		return err
	}
	return t.eachWithKeyLength(activitiesTable, 8, func(key, value []byte) error {
		head, _, err := decodeActivityHead(value)
		if err != nil {
			return err
		}
		if head.crashes > crashes {
			return fmt.Errorf("its crash count is %d; the hub has counted only %d", head.crashes, crashes)
		}
		// Each later crash may have lost the count of one delivery.
		earlier := head.deliveries + crashes - head.crashes
		w.makeReady(&activity{number: binary.BigEndian.Uint64(key), earlier: int(earlier)})
		return nil
	})
}

// errRunning is returned by Run if it is already running.
var errRunning = errors.New("task hub is running already")

// run dispatches work until ctx ends or the partition is closed. Then it waits for the work in
// flight.
func (w *work) run(ctx context.Context) error {
	w.mu.Lock()
	switch {
	case w.closed:
		w.mu.Unlock()
		return logstore.ErrClosed
	case w.running:
		w.mu.Unlock()
		return errRunning
	}
	w.running, w.ended = true, ctx.Err
	inuse.Register(ctx, w.inUse)
	notify(w.instanceReady)
	notify(w.activityReady)
	w.mu.Unlock()

	w.watchClock(ctx)
	w.drain()
	if ctx.Err() == nil {
		return logstore.ErrClosed
	}
	return nil
}

// maxSleep is the maximum time between two readings of the clock while an alarm is set. Go's
// timers do not notice when the clock is set or the machine sleeps.
const maxSleep = time.Minute

// watchClock fires alarms until ctx ends or the partition is closed.
func (w *work) watchClock(ctx context.Context) {
	clock := time.NewTimer(maxSleep)
	defer clock.Stop()
	for {
		w.mu.Lock()
		wait, ok := w.alarms.fireDue()
		w.mu.Unlock()
		var due <-chan time.Time
		if ok {
			clock.Reset(min(wait, maxSleep))
			due = clock.C
		}
		select {
		case <-ctx.Done():
			return
		case <-w.closing:
			return
		case <-w.alarmSet:
		case <-due:
		}
	}
}

// drain waits until no work is in flight. After the drain timeout it revokes the remaining
// locks.
func (w *work) drain() {
	w.mu.Lock()
	drained := make(chan struct{}, 1)
	w.drained, w.revokes = drained, time.Now().Add(w.cfg.DrainTimeout)
	for s := range w.sessions {
		notify(s.changed) // Next returns
	}
	w.checkDrained()
	w.mu.Unlock()

	timeout := time.NewTimer(w.cfg.DrainTimeout)
	defer timeout.Stop()
	select {
	case <-drained:
	case <-timeout.C:
		w.cfg.Logger.Warn("drain timeout exceeded; work in flight will be dispatched again")
	case <-w.closing:
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	w.drained = nil
	for s := range w.sessions {
		s.revoke()
	}
	for l := range w.locks {
		l.revoke()
	}
	w.running = false
}

// checkDrained notifies drain if no work is in flight. mu is locked.
func (w *work) checkDrained() {
	if w.drained == nil || len(w.locks) > 0 {
		return
	}
	for s := range w.sessions {
		if len(s.inFlight) > 0 {
			return
		}
	}
	notify(w.drained)
}

// serves reports whether work may be dispatched. It checks the context of Run directly because
// Run may not have noticed its end yet. mu is locked.
func (w *work) serves() bool { return w.running && !w.closed && w.ended() == nil }

// close stops Run and revokes all sessions. It returns true for the first call.
func (w *work) close() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.closed = true
	close(w.closing)
	for s := range w.sessions {
		s.revoke()
	}
	return true
}

// lockInstance waits for a ready instance and locks it for s.
func (w *work) lockInstance(ctx context.Context, s *session) error {
	for {
		if err := ctx.Err(); err != nil {
			notify(w.instanceReady) // this call may have consumed another caller's token
			return err
		}
		w.mu.Lock()
		if w.closed {
			w.mu.Unlock()
			return logstore.ErrClosed
		}
		for w.serves() && w.ready.len() > 0 {
			inst := w.ready.pop()
			inst.ready = false
			if len(inst.inbox) == 0 {
				w.schedule(inst)
				continue
			}
			s.inst, s.inFlight = inst, inst.take()
			inst.session = s
			w.sessions[s] = struct{}{}
			if w.ready.len() > 0 {
				notify(w.instanceReady) // for the next caller
			}
			w.mu.Unlock()
			return nil
		}
		w.mu.Unlock()
		select {
		case <-w.instanceReady:
		case <-w.closing:
		case <-ctx.Done():
		}
	}
}

// lockActivity waits for a ready activity and locks it for l.
func (w *work) lockActivity(ctx context.Context, l *activityLock) error {
	for {
		if err := ctx.Err(); err != nil {
			notify(w.activityReady) // this call may have consumed another caller's token
			return err
		}
		w.mu.Lock()
		if w.closed {
			w.mu.Unlock()
			return logstore.ErrClosed
		}
		for w.serves() && w.readyActivities.len() > 0 {
			a := w.readyActivities.pop()
			if a.done || a.result != nil || a.lock != nil {
				continue
			}
			a.deliveries++
			l.a, l.attempt = a, a.earlier+a.deliveries
			a.lock = l
			w.locks[l] = struct{}{}
			w.delivered[a] = struct{}{}
			if w.readyActivities.len() > 0 {
				notify(w.activityReady) // for the next caller
			}
			w.mu.Unlock()
			return nil
		}
		w.mu.Unlock()
		select {
		case <-w.activityReady:
		case <-w.closing:
		case <-ctx.Done():
		}
	}
}

// instance returns the instance in memory with the given ID; it creates it if necessary. mu is
// locked.
func (w *work) instance(id string) *instance {
	inst := w.instances[id]
	if inst == nil {
		inst = &instance{id: id}
		w.instances[id] = inst
	}
	return inst
}

// schedule makes an instance ready if it can be dispatched. It notifies the instance's session,
// if there is one, of new messages, and drops an instance without pending work from memory.
// Call it after every change to an instance. mu is locked.
func (w *work) schedule(inst *instance) {
	switch {
	case inst.session != nil:
		if len(inst.inbox) > 0 {
			notify(inst.session.changed)
		}
	case inst.ready || inst.pause != nil:
	case len(inst.inbox) > 0:
		inst.ready, inst.since = true, time.Now()
		w.ready.push(inst)
		notify(w.instanceReady)
	case len(inst.early) == 0 && len(inst.timers) == 0:
		if w.instances[inst.id] == inst {
			delete(w.instances, inst.id)
		}
	}
}

// deliver adds a message to its instance's inbox. mu is locked.
func (w *work) deliver(m *message) {
	inst := w.instance(m.target.InstanceID)
	inst.add(m)
	if m.isStart() {
		inst.retryEarly()
	}
	if m.endsPause() {
		w.endPause(inst)
	}
	w.schedule(inst)
}

// Stored returns the number of messages to the partition's instances, including those in flight or not due.
func (w *work) Stored() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return storedMessages(w.instances)
}

// deliverWhenDue delivers a message when it is due. mu is locked.
func (w *work) deliverWhenDue(m *message) {
	inst := w.instance(m.target.InstanceID)
	m.slot = len(inst.timers)
	inst.timers = append(inst.timers, m)
	m.alarm = w.setAlarm(m.due, func() {
		inst.removeTimer(m)
		w.deliver(m)
	})
}

// delete removes a message whose record was deleted. mu is locked.
func (w *work) delete(m *message) {
	if m.deleted {
		return
	}
	inst := w.remove(m)
	if m.activity != nil {
		w.finish(m.activity)
	}
	if m.answer != nil {
		m.answer()
	}
	if inst != nil {
		w.schedule(inst)
	}
}

// remove removes a message from its instance, unless it is in flight. It returns the instance,
// or nil if that is not in memory. mu is locked.
func (w *work) remove(m *message) *instance {
	m.deleted = true
	inst := w.instances[m.target.InstanceID]
	switch {
	case inst == nil || m.inFlight:
	case m.alarm != nil:
		w.alarms.stop(m.alarm)
		inst.removeTimer(m)
	default:
		inst.remove(m)
	}
	return inst
}

// restart revokes an instance's session because its execution was replaced, purged or rewound.
// mu is locked.
func (w *work) restart(id string) {
	w.notifyEnded(id)
	inst := w.instances[id]
	if inst == nil {
		return
	}
	if inst.session != nil {
		inst.session.revoke()
	}
	inst.attempts = 0
	w.endPause(inst)
	inst.retryEarly()
	w.schedule(inst)
}

// pauseInstance delays the next dispatch of an abandoned instance. mu is locked.
func (w *work) pauseInstance(inst *instance, cause error) {
	inst.attempts++
	w.alarms.stop(inst.pause)
	inst.pause = w.setAlarm(w.retryAt(inst.attempts, cause), func() {
		inst.pause = nil
		w.schedule(inst)
	})
}

// endPause ends the delay of an abandoned instance. mu is locked.
func (w *work) endPause(inst *instance) {
	w.alarms.stop(inst.pause)
	inst.pause = nil
}

// retryAt returns when work that was abandoned at the given attempt is dispatched again. cause
// may shorten the delay (see [provider.AbandonDelay]).
func (w *work) retryAt(attempt int, cause error) time.Time {
	now := time.Now()
	return now.Add(provider.AbandonDelay(cause, now, w.cfg.abandonDelay(attempt)))
}

// makeReady makes an activity available for dispatch. mu is locked.
func (w *work) makeReady(a *activity) {
	a.since = time.Now()
	w.readyActivities.push(a)
	notify(w.activityReady)
}

// finish marks an activity as done. mu is locked.
func (w *work) finish(a *activity) {
	a.done = true
	w.alarms.stop(a.pause)
	delete(w.delivered, a)
}

// awaitEnd returns a channel that is closed when the instance ends. The caller must call
// cancel.
func (w *work) awaitEnd(id string) (ended chan struct{}, cancel func()) {
	ended = make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiters[id] == nil {
		w.waiters[id] = make(map[chan struct{}]struct{})
	}
	w.waiters[id][ended] = struct{}{}
	return ended, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiters[id], ended)
		if len(w.waiters[id]) == 0 {
			delete(w.waiters, id)
		}
	}
}

// notifyEnded closes the channels of awaitEnd for an instance. mu is locked.
func (w *work) notifyEnded(id string) {
	for ended := range w.waiters[id] {
		close(ended)
	}
	delete(w.waiters, id)
}

// setAlarm schedules a call of fire at a time. Alarms fire only while Run runs. mu is locked.
func (w *work) setAlarm(at time.Time, fire func()) *alarm {
	a := w.alarms.set(at, fire)
	if a.slot == 0 {
		notify(w.alarmSet)
	}
	return a
}

// inUse counts the resources that must be released when a worker is idle. After Run has
// returned, pending activities and instances stay for the next Open and are not counted.
func (w *work) inUse() inuse.Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := inuse.Counts{"sessions": len(w.sessions), "locks of activities": len(w.locks)}
	if w.running {
		all["activities that are not done"], all["instances with messages"] = len(w.delivered), len(w.instances)
	}
	for _, waiters := range w.waiters {
		all["callers that wait for an end"] += len(waiters)
	}
	return all
}
