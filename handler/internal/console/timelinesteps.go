package console

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A step is an action of an execution or an event that it received, with its outcome.
type step struct {
	Kind     string // one of the constants below
	Name     string // of the function, operation or event
	Instance string // the child, the receiver of the event, or the entity
	Due      time.Time
	Position int // of its first event in the history, -1 if it has none
	Attempts []attempt
}

// Kinds of steps. They are also style classes.
const (
	stepActivity = "activity"
	stepDurable  = "step" // a durable step
	stepChild    = "child"
	stepTimer    = "timer"
	stepEvent    = "event"
	stepEntity   = "entity"
	stepSent     = "sent"
	stepControl  = "control"
)

// An attempt is one try of a step. Only activities, durable steps and children can have several.
type attempt struct {
	Begin, End time.Time // End is zero while it runs
	Outcome    string    // one of the constants below
}

// Outcomes of attempts. They are also style classes.
const (
	outcomeOpen    = "open"
	outcomeDone    = "done"
	outcomeFailed  = "failed"
	outcomeDropped = "dropped" // the execution ended first
)

// Begin returns the start time of the step.
func (s *step) Begin() time.Time { return s.Attempts[0].Begin }

// End returns the end time of the step, or zero while it runs.
func (s *step) End() time.Time { return s.last().End }

// Outcome returns the outcome of the last attempt.
func (s *step) Outcome() string { return s.last().Outcome }

func (s *step) last() *attempt { return &s.Attempts[len(s.Attempts)-1] }

// stepsOf returns the steps of a history in the order of their start.
func stepsOf(events []history.Event) []step {
	b := builder{events: events, open: map[int]*step{}, calls: map[string]*step{}, timers: map[int]retry{}}
	for i, e := range events {
		b.add(i, e)
	}
	kept := make([]step, 0, len(b.steps))
	for _, s := range b.steps {
		if b.ended && s.Outcome() == outcomeOpen {
			s.last().Outcome = outcomeDropped
		}
		if s.Kind != "" {
			kept = append(kept, *s)
		}
	}
	return kept
}

// A builder turns events into steps. A history does not record which activities are retries. The
// builder infers a retry from a timer: it was created when an activity failed, and when it fired, an
// activity with the same name was scheduled.
type builder struct {
	events []history.Event
	steps  []*step
	open   map[int]*step    // by event ID
	calls  map[string]*step // entity calls by request ID and by origin
	ended  bool

	suspended *step
	now       time.Time     // start of the current episode
	failed    []*step       // failures of this episode, for which no timer is known yet
	timers    map[int]retry // by event ID
	due       []retry       // timers that fired in this episode
}

// A retry is a timer that was created after a failure.
type retry struct{ timer, of *step }

func (b *builder) add(i int, e history.Event) {
	id, at := e.Head().EventID, e.Head().Timestamp
	switch e := e.(type) {
	case *history.OrchestratorStarted:
		b.now, b.failed, b.due = at, nil, nil
	case *history.TaskScheduled:
		b.schedule(id, at, step{Kind: b.kindOf(i), Name: e.Name, Position: i})
	case *history.SubOrchestrationInstanceCreated:
		child := step{Kind: stepChild, Name: e.Name, Instance: e.InstanceID, Position: i}
		if _, forgotten := e.Tags[history.FireAndForget]; forgotten {
			b.instant(at, child)
		} else {
			b.schedule(id, at, child)
		}
	case *history.TimerCreated:
		b.timer(id, at, step{Kind: stepTimer, Due: e.FireAt, Position: i})
	case *history.TimerFired:
		b.complete(e.TimerID, at, outcomeDone)
		if r, ok := b.timers[e.TimerID]; ok {
			b.due = append(b.due, r)
		}
	case *history.TaskCompleted:
		b.complete(e.TaskScheduledID, at, outcomeDone)
	case *history.SubOrchestrationInstanceCompleted:
		b.complete(e.TaskScheduledID, at, outcomeDone)
	case *history.TaskFailed:
		b.complete(e.TaskScheduledID, at, outcomeFailed)
	case *history.SubOrchestrationInstanceFailed:
		b.complete(e.TaskScheduledID, at, outcomeFailed)
	case *history.EventSent:
		b.sent(i, e)
	case *history.EventRaised:
		b.raised(i, e)
	case *history.ExecutionSuspended:
		b.suspended = b.begin(at, step{Kind: stepControl, Name: "suspended", Position: i})
	case *history.ExecutionResumed:
		if b.suspended != nil {
			b.suspended.Attempts[0].End, b.suspended.Attempts[0].Outcome = at, outcomeDone
		}
	case *history.ExecutionTerminated:
		b.instant(at, step{Kind: stepControl, Name: "terminated", Position: i})
	case *history.ExecutionRewound:
		b.instant(at, step{Kind: stepControl, Name: "rewound", Position: i})
		b.ended = false
	case *history.ExecutionCompleted, *history.ContinueAsNew:
		b.ended = true
	}
}

// kindOf returns the kind of the task that event i schedules. Only the record of a durable step is followed
// by the step's completion, or by the record of its start, in the same episode.
func (b *builder) kindOf(i int) string {
	if i+1 < len(b.events) {
		completed, isCompletion := history.Completes(b.events[i+1])
		_, isStart := history.StepStartOf(b.events[i+1])
		if isStart || isCompletion && completed == b.events[i].Head().EventID {
			return stepDurable
		}
	}
	return stepActivity
}

// begin adds a step that is running.
func (b *builder) begin(at time.Time, s step) *step {
	s.Attempts = []attempt{{Begin: at, Outcome: outcomeOpen}}
	b.steps = append(b.steps, &s)
	return &s
}

// instant adds a step without a duration.
func (b *builder) instant(at time.Time, s step) {
	*b.begin(at, s).last() = attempt{at, at, outcomeDone}
}

// schedule adds an activity or child, or another attempt of a previous one.
func (b *builder) schedule(id int, at time.Time, s step) {
	for n, r := range b.due {
		if r.of.Kind == s.Kind && r.of.Name == s.Name {
			b.due = append(b.due[:n:n], b.due[n+1:]...)
			r.timer.Kind = "" // the pause between the attempts
			r.of.Instance = s.Instance
			r.of.Attempts = append(r.of.Attempts, attempt{Begin: at, Outcome: outcomeOpen})
			b.open[id] = r.of
			return
		}
	}
	b.open[id] = b.begin(at, s)
}

// timer adds a timer. .NET also creates a timer with no delay after the last attempt, which is hidden
// (DurableTask.Core/RetryInterceptor.cs, Invoke).
func (b *builder) timer(id int, at time.Time, s step) {
	timer := b.begin(at, s)
	b.open[id] = timer
	if len(b.failed) == 0 {
		return
	}
	b.timers[id] = retry{timer, b.failed[0]}
	b.failed = b.failed[1:]
	if !s.Due.After(b.now) {
		timer.Kind = ""
	}
}

func (b *builder) complete(id int, at time.Time, outcome string) {
	s := b.open[id]
	if s == nil {
		return
	}
	delete(b.open, id)
	s.last().End, s.last().Outcome = at, outcome
	if outcome == outcomeFailed {
		b.failed = append(b.failed, s)
	}
}

// sent adds an event for another instance, or a call or signal of an entity.
func (b *builder) sent(i int, e *history.EventSent) {
	s := step{Kind: stepSent, Name: e.Name, Instance: e.InstanceID, Position: i}
	var request struct {
		ID, Origin string
		Op         *string
		Signal     bool
	}
	if !history.IsEntity(e.InstanceID) || e.Input == nil || json.Unmarshal([]byte(*e.Input), &request) != nil || request.ID == "" {
		b.instant(e.Timestamp, s)
		return
	}
	s.Kind, s.Name = stepEntity, "lock"
	if request.Op != nil {
		s.Name = *request.Op
	}
	if request.Signal || !strings.HasPrefix(e.Name, "op") {
		b.instant(e.Timestamp, s)
		return
	}
	call := b.begin(e.Timestamp, s)
	b.calls[strings.ToLower(request.ID)] = call
	if request.Origin != "" {
		b.calls[request.Origin] = call
	}
}

// raised adds a received event, or completes the entity call that the event answers.
func (b *builder) raised(i int, e *history.EventRaised) {
	if len(b.calls) > 0 {
		call := b.calls[strings.ToLower(e.Name)]
		if call == nil {
			call = b.calls[originOf(e.Input)]
		}
		if call != nil {
			call.last().End, call.last().Outcome = e.Timestamp, outcomeDone
			return
		}
	}
	b.instant(e.Timestamp, step{Kind: stepEvent, Name: e.Name, Position: i})
}

// originOf returns the origin at the end of an entity's answer, or "". An answer that is sent again
// under another ID contains one.
func originOf(answer *string) string {
	if answer == nil {
		return ""
	}
	if _, origin, ok := strings.Cut((*answer)[max(0, len(*answer)-64):], `,"origin":"`); ok {
		return strings.TrimSuffix(origin, `"}`)
	}
	return ""
}
