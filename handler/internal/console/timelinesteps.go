package console

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A step is something that an execution began or that came to it, and what became of it.
type step struct {
	Kind     string // one of the kinds below
	Name     string // of the function, operation or event
	Instance string // the child, the receiver of an event or the entity
	Due      time.Time
	Position int // of its first event in the history, -1 if it has none
	Attempts []attempt
}

// Kinds of steps, which are classes of the style sheet too.
const (
	stepActivity = "activity"
	stepChild    = "child"
	stepTimer    = "timer"
	stepEvent    = "event"
	stepEntity   = "entity"
	stepSent     = "sent"
	stepControl  = "control"
)

// An attempt is one try of a step. Only activities and children have several.
type attempt struct {
	Begin, End time.Time // End is zero while it goes on
	Outcome    string    // one of the outcomes below
}

// Outcomes of attempts, which are classes of the style sheet too.
const (
	outcomeOpen    = "open"
	outcomeDone    = "done"
	outcomeFailed  = "failed"
	outcomeDropped = "dropped" // the execution ended without it
)

// Begin is when the step began.
func (s *step) Begin() time.Time { return s.Attempts[0].Begin }

// End is when the step ended, zero while it goes on.
func (s *step) End() time.Time { return s.last().End }

// Outcome is that of the last attempt.
func (s *step) Outcome() string { return s.last().Outcome }

func (s *step) last() *attempt { return &s.Attempts[len(s.Attempts)-1] }

// stepsOf returns the steps of a history, in the order in which they began.
func stepsOf(events []history.Event) []step {
	b := builder{open: map[int]*step{}, calls: map[string]*step{}, timers: map[int]retry{}}
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

// A builder makes steps of events. A history does not say which activity is another
// attempt of one before, so that it is taken for one if it looks like one: a timer was
// created when that failed, and when it fired something of the same name was scheduled.
type builder struct {
	steps []*step
	open  map[int]*step    // by number of the action
	calls map[string]*step // calls of entities, by ID and origin of their request
	ended bool

	suspended *step
	now       time.Time     // of the episode
	failed    []*step       // in this episode, without a timer yet
	timers    map[int]retry // by number
	due       []retry       // whose timers fired in this episode
}

// A retry is a timer that was created after a failure.
type retry struct{ timer, of *step }

func (b *builder) add(i int, e history.Event) {
	id, at := e.Head().EventID, e.Head().Timestamp
	switch e := e.(type) {
	case *history.OrchestratorStarted:
		b.now, b.failed, b.due = at, nil, nil
	case *history.TaskScheduled:
		b.schedule(id, at, step{Kind: stepActivity, Name: e.Name, Position: i})
	case *history.SubOrchestrationInstanceCreated:
		b.schedule(id, at, step{Kind: stepChild, Name: e.Name, Instance: e.InstanceID, Position: i})
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

// begin adds a step that goes on.
func (b *builder) begin(at time.Time, s step) *step {
	s.Attempts = []attempt{{Begin: at, Outcome: outcomeOpen}}
	b.steps = append(b.steps, &s)
	return &s
}

// instant adds a step that takes no time.
func (b *builder) instant(at time.Time, s step) {
	*b.begin(at, s).last() = attempt{at, at, outcomeDone}
}

// schedule adds an activity or a child, or another attempt of one.
func (b *builder) schedule(id int, at time.Time, s step) {
	for n, r := range b.due {
		if r.of.Kind == s.Kind && r.of.Name == s.Name {
			b.due = append(b.due[:n:n], b.due[n+1:]...)
			r.timer.Kind = "" // the pause between the two
			r.of.Instance = s.Instance
			r.of.Attempts = append(r.of.Attempts, attempt{Begin: at, Outcome: outcomeOpen})
			b.open[id] = r.of
			return
		}
	}
	b.open[id] = b.begin(at, s)
}

// timer adds a timer. After the last attempt there is one of no length, which is not shown
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

// sent adds an event for another instance or, if it is for an entity, a call or a signal.
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

// raised adds an event that came, or ends the call of an entity that it answers.
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

// originOf returns the origin at the end of an entity's answer, of an answer that comes
// again under another ID; empty if there is none.
func originOf(answer *string) string {
	if answer == nil {
		return ""
	}
	if _, origin, ok := strings.Cut((*answer)[max(0, len(*answer)-64):], `,"origin":"`); ok {
		return strings.TrimSuffix(origin, `"}`)
	}
	return ""
}
