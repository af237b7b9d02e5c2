package memhub

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Hub is a task hub in memory. It contains its first worker; [Hub.NewWorker] returns others.
type Hub struct {
	*Worker

	// Now is the hub's clock. Default time.Now. Set another one before the hub is used, and
	// then fetch work with [Worker.TryOrchestration] and [Worker.TryActivity]: methods that
	// wait use package time.
	Now func() time.Time

	mu         sync.Mutex // protects the fields below
	changed    chan struct{}
	instances  map[string]*instance
	withMail   []*instance // the instances that may have messages, in the order of arrival
	activities []*message
	sequence   int
	faults     map[Fault]func() bool
	log        []Commit
}

var (
	_ provider.Provider = (*Hub)(nil)
	_ provider.Purger   = (*Hub)(nil)
	_ provider.Rewinder = (*Hub)(nil)
)

// Commit is a committed checkpoint.
type Commit struct {
	At         time.Time
	Checkpoint provider.Checkpoint
}

// New returns an empty hub.
func New() *Hub {
	h := &Hub{
		Now:       time.Now,
		changed:   make(chan struct{}),
		instances: make(map[string]*instance),
		faults:    make(map[Fault]func() bool),
	}
	h.Worker = h.NewWorker()
	return h
}

// Commits returns all committed checkpoints in order.
func (h *Hub) Commits() []Commit {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.log)
}

// Pending returns the number of messages and activities that wait or are in flight.
func (h *Hub) Pending() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.activities)
	for _, i := range h.instances {
		n += len(i.mail)
	}
	return n
}

// notify wakes all waiters. The caller holds mu.
func (h *Hub) notify() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// instance returns the instance with the given ID; it creates it if necessary.
func (h *Hub) instance(id string) *instance {
	i := h.instances[id]
	if i == nil {
		i = new(instance)
		h.instances[id] = i
	}
	return i
}

// post enqueues m for its instance, visible at the given time or, if that is later, when m is
// due.
func (h *Hub) post(m provider.TaskMessage, at time.Time) {
	if due, ok := provider.DelayedUntil(m); ok && due.After(at) {
		at = due
	}
	if start, ok := m.Event.(*history.ExecutionStarted); ok && start.ScheduledStart.After(at) {
		at = start.ScheduledStart
	}
	i := h.instance(m.Target.InstanceID)
	h.enlist(i)
	i.mail = append(i.mail, h.message(m, at))
	if i.mail[len(i.mail)-1].endsPause() {
		i.endPause(at)
	}
	if h.happens(DuplicateDelivery) {
		i.mail = append(i.mail, h.message(m, at))
	}
	h.notify()
}

// enlist records that an instance may have messages.
func (h *Hub) enlist(i *instance) {
	if !i.inWithMail {
		i.inWithMail = true
		h.withMail = append(h.withMail, i)
	}
}

func (h *Hub) message(m provider.TaskMessage, at time.Time) *message {
	if h.happens(DelayedDelivery) {
		at = at.Add(deliveryDelay)
	}
	m.Event = clone(m.Event)
	h.sequence++
	return &message{TaskMessage: m, sequence: h.sequence, visible: at}
}

// StartInstance implements provider.Client.
func (h *Hub) StartInstance(ctx context.Context, start provider.TaskMessage, refuse []history.RuntimeStatus) error {
	e := start.Event.(*history.ExecutionStarted)
	if err := checkID(e.Instance.InstanceID); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.instance(e.Instance.InstanceID)
	generation := 0
	if i.state != nil {
		if slices.Contains(refuse, i.state.Status) {
			return &provider.InstanceExistsError{InstanceID: e.Instance.InstanceID, Status: i.state.Status}
		}
		if i.state.Instance == e.Instance {
			return nil
		}
		generation = i.state.Generation + 1
		i.history = nil
		if i.session != nil {
			i.session.revoke(0)
		}
	}
	e = new(*e)
	if e.Generation == nil {
		e.Generation = new(generation)
	}
	start.Event = e
	i.state = provider.NewInstanceState(e)
	i.state.LastUpdatedAt = h.Now()
	at := h.Now()
	if e.ScheduledStart.After(at) {
		at = e.ScheduledStart
	}
	h.post(start, at)
	return nil
}

// maxID is the maximum length of an instance ID, in bytes; other hubs have similar limits.
const maxID = 1024

func checkID(id string) error {
	if len(id) > maxID {
		return fmt.Errorf("instance ID has %d bytes; want at most %d", len(id), maxID)
	}
	return nil
}

// Send implements provider.Client.
func (h *Hub) Send(ctx context.Context, m provider.TaskMessage) error {
	if err := checkID(m.Target.InstanceID); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.instance(m.Target.InstanceID).terminateUnstarted(m.Event, h.Now()) {
		h.post(m, h.Now())
	}
	return nil
}

// Instance implements provider.Client.
func (h *Hub) Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.instances[id]
	if i == nil || i.state == nil {
		return nil, provider.ErrInstanceNotFound
	}
	return fetched(i.state, fetch), nil
}

// Instances implements provider.Client. A continuation contains the last ID of the page.
func (h *Hub) Instances(ctx context.Context, q provider.Query) (*provider.Page, error) {
	after := ""
	if q.Continuation != "" {
		places, err := provider.DecodeContinuation(q.Continuation, 1)
		if err != nil {
			return nil, err
		}
		after = places[0]
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []*provider.InstanceState
	for id, i := range h.instances {
		if i.state != nil && id > after && q.Matches(i.state) {
			found = append(found, fetched(i.state, q.Fetch))
		}
	}
	slices.SortFunc(found, func(a, b *provider.InstanceState) int {
		return cmp.Compare(a.Instance.InstanceID, b.Instance.InstanceID)
	})
	p, room := &provider.Page{}, q.PageBudget()
	for _, s := range found {
		if room.Remaining() == 0 || q.PageSize > 0 && len(p.Instances) == q.PageSize {
			p.Continuation = provider.EncodeContinuation(p.Instances[len(p.Instances)-1].Instance.InstanceID)
			break
		}
		room.Subtract(s)
		p.Instances = append(p.Instances, s)
	}
	return p, nil
}

// fetched returns a copy of s with only the large fields that fetch requests.
func fetched(s *provider.InstanceState, fetch provider.Fetch) *provider.InstanceState {
	s = new(*s)
	if !fetch.Input {
		s.Input = nil
	}
	if !fetch.Output {
		s.Output = nil
	}
	return s
}

// History implements provider.Client.
func (h *Hub) History(ctx context.Context, id string) ([]history.Event, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.instances[id]
	if i == nil {
		return nil, nil
	}
	return cloneAll(i.history), nil
}

// Purge implements provider.Purger.
func (h *Hub) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.instances[id]
	if i == nil || i.state == nil && len(i.history) == 0 {
		return provider.ErrInstanceNotFound
	}
	if seen != nil && !i.state.SameAs(seen) {
		return provider.ErrInstanceChanged
	}
	i.state, i.history = nil, nil
	if i.session != nil {
		i.session.revoke(0)
	}
	return nil
}

// Rewind implements provider.Rewinder.
func (h *Hub) Rewind(ctx context.Context, id, reason string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.Now()
	if i := h.instances[id]; i != nil && i.state != nil {
		start := history.StartOf(i.history)
		if !provider.CanRewind(i.state.Status) || start == nil || start.Instance.ExecutionID != i.state.Instance.ExecutionID {
			return provider.ErrInstanceChanged
		}
	}
	plan, err := provider.PlanRewind(ctx, id, reason, now, func(_ context.Context, id string) ([]history.Event, error) {
		if i := h.instances[id]; i != nil {
			return i.history, nil
		}
		return nil, nil
	})
	if err != nil {
		return err
	}
	for _, x := range plan.Executions {
		i := h.instances[x.Instance.InstanceID]
		i.history = x.Apply(i.history)
		if i.state != nil {
			i.state = new(*i.state)
			i.state.Status, i.state.LastUpdatedAt = history.Pending, now
		}
	}
	for _, m := range plan.Messages {
		h.post(m, now)
	}
	return nil
}

// Inject makes a fault happen each time it can and when returns true. A nil function removes
// the fault. The calls of when do not overlap; it must not call the hub.
func (h *Hub) Inject(f Fault, when func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults[f] = when
	h.notify()
}

// happens reports whether f happens now. The caller holds mu.
func (h *Hub) happens(f Fault) bool {
	when := h.faults[f]
	return when != nil && when()
}

// nextOrchestration returns the work item of an instance with messages. Without one, it returns
// when to try again. The caller holds mu.
func (h *Hub) nextOrchestration(w *Worker) (*provider.OrchestrationWorkItem, time.Time) {
	var next time.Time
	kept := h.withMail[:0]
	var item *provider.OrchestrationWorkItem
	for _, i := range h.withMail {
		if len(i.mail) > 0 && item == nil && i.session == nil {
			var at time.Time
			item, at = h.offer(w, i)
			next = earlier(next, at)
		}
		if len(i.mail) > 0 {
			kept = append(kept, i)
		} else {
			i.inWithMail = false
		}
	}
	h.withMail = kept
	return item, next
}

// offer returns the work item of i, or nil and when to try again. The caller holds mu.
func (h *Hub) offer(w *Worker, i *instance) (*provider.OrchestrationWorkItem, time.Time) {
	visible, next := due(i.mail, h.Now())
	if len(visible) == 0 {
		return nil, next
	}
	sorted := i.sort(visible)
	i.mail = remove(i.mail, func(m *message) bool { return sorted.drop[m] })
	if len(sorted.take) == 0 {
		return nil, next
	}
	s := &session{worker: w, i: i, execution: sorted.execution, isNew: sorted.isNew}
	i.session = s
	w.sessions[s] = struct{}{}
	item := &provider.OrchestrationWorkItem{Instance: s.execution, Messages: s.dispatch(sorted.take), OwnedSince: w.since, Session: s}
	if !s.isNew {
		item.History = cloneAll(i.history)
	}
	return item, time.Time{}
}

// nextActivity returns the work item of an activity. Without one, it returns when to try again.
// The caller holds mu.
func (h *Hub) nextActivity(w *Worker) (*provider.ActivityWorkItem, time.Time) {
	visible, next := due(h.activities, h.Now())
	if len(visible) == 0 {
		return nil, next
	}
	m := visible[0]
	m.inFlight = true
	m.attempts++
	a := &activity{worker: w, m: m}
	w.activities[a] = struct{}{}
	return &provider.ActivityWorkItem{
		Instance: m.Target,
		Task:     clone(m.Event).(*history.TaskScheduled),
		Attempt:  m.attempts,
		Lock:     a,
	}, time.Time{}
}

// await calls try, with mu locked, until it returns true or ctx ends. It calls try immediately,
// after every change of the hub, and at the time that try returned, unless that is zero.
func (h *Hub) await(ctx context.Context, try func() (done bool, again time.Time)) error {
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		h.mu.Lock()
		done, again := try()
		changed := h.changed
		h.mu.Unlock()
		if done {
			return nil
		}
		var due <-chan time.Time
		if !again.IsZero() {
			due = time.After(again.Sub(h.Now()))
		}
		select {
		case <-changed:
		case <-due:
		case <-ctx.Done():
		}
	}
}

// NewWorker returns a new worker of the hub.
func (h *Hub) NewWorker() *Worker {
	return &Worker{
		hub:          h,
		since:        h.Now(),
		DrainTimeout: 20 * time.Second,
		sessions:     make(map[*session]struct{}),
		activities:   make(map[*activity]struct{}),
	}
}
