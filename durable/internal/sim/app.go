package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// An App is what a hub runs in a simulation: programs for its one orchestrator,
// and the instances that clients start.
type App struct {
	Programs  []Program
	Instances []Instance
	// Ledgers are the keys of its entities, Signals what clients tell them.
	Ledgers []string
	Signals []ClientSignal
	// Large says that nothing which users give or get fits into a message or a row, but
	// for custom statuses, which must.
	Large bool

	received func(Receipt) // of those that run: Registry
}

// A Program is what an orchestrator does. It folds the results of its steps into
// one number, which is its output.
type Program struct {
	Steps []Step
	// Rounds is how often it continues as new.
	Rounds int
	// Fails says that it fails in the end.
	Fails bool
}

// sends and receives report whether a program sends an event to another instance,
// which waits for it, or waits for one.
func (p Program) sends() bool    { return p.has(SendStep) }
func (p Program) receives() bool { return p.has(ReceiveStep) }

func (p Program) has(k StepKind) bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Kind == k })
}

// A StepKind is a kind of thing that an orchestrator does.
type StepKind int

// The kinds of steps.
const (
	CallStep     StepKind = iota // one activity
	FailStep                     // an activity that fails
	RetryStep                    // one that fails as often as it is tried
	FanOutStep                   // Count activities at once
	SleepStep                    // a timer
	EventStep                    // an event that a client raises
	TimeoutStep                  // an event that does not come in time
	DeadlineStep                 // an event that comes long before the time is over
	ChildStep                    // a sub-orchestration
	ChildrenStep                 // Count sub-orchestrations at once, with IDs of their own
	BranchStep                   // two branches of two activities each
	SendStep                     // an event for another instance, which waits for it
	ReceiveStep                  // the event of another instance
	StatusStep                   // a custom status
	BigStep                      // an activity whose input and result are too large for messages
	stepKinds
	LedgerStep // what is done with entities
)

// A Step is one thing that an orchestrator does.
type Step struct {
	Kind  StepKind
	Count int
	Wait  time.Duration
	Child int    // the program of a child
	Peer  string // the instance that an event is for
	Event string
	Acts  []Act // of a step with entities
}

// An Instance is one that a client starts, and what clients do to it.
type Instance struct {
	ID      string
	Program int
	// At is when it is started, Delay how long after that it is to begin.
	At, Delay time.Duration
	// Raised are events that a client raises, Suspended and Terminated when it is
	// suspended, for a while, and terminated; zero means never.
	Raised     []RaisedEvent
	Suspended  time.Duration
	Terminated time.Duration
	// Unknown says that it is of a function that nobody knows.
	Unknown bool
}

// A RaisedEvent is an event and when a client raises it.
type RaisedEvent struct {
	Name string
	At   time.Duration
}

// Size bounds an app.
type Size struct {
	Instances, Steps int
}

// DefaultSize is that of the apps of a simulation.
var DefaultSize = Size{Instances: 5, Steps: 4}

// NewApp returns a random app.
func NewApp(r *rand.Rand, size Size) *App {
	g := &generator{r: r, app: &App{}, steps: size.Steps}
	n := 1 + r.IntN(size.Instances)
	for i := range n {
		g.app.Instances = append(g.app.Instances, Instance{
			ID: fmt.Sprintf("i%d", i), At: g.upTo(10 * time.Second),
		})
	}
	for i := range n {
		g.instance(i)
	}
	return g.app
}

type generator struct {
	r     *rand.Rand
	app   *App
	steps int
	at    int // the instance in the making
	round int // events so far
	acts  int // in the step in the making
}

func (g *generator) upTo(d time.Duration) time.Duration {
	return time.Duration(g.r.Int64N(int64(d)/int64(time.Millisecond))) * time.Millisecond
}

func (g *generator) oneIn(n int) bool { return g.r.IntN(n) == 0 }

func (g *generator) instance(i int) {
	g.at = i
	in := &g.app.Instances[i]
	if g.oneIn(12) {
		// It waits for ever and is terminated.
		in.Program = g.add(Program{Steps: []Step{{Kind: CallStep}, {Kind: EventStep, Event: "never"}}})
		in.Terminated = in.At + 2*time.Second + g.upTo(20*time.Second)
		return
	}
	in.Program = g.program(0)
	if g.oneIn(8) {
		in.Delay = g.upTo(8 * time.Second)
	}
	if g.oneIn(8) {
		in.Suspended = in.At + in.Delay + g.upTo(10*time.Second)
	}
	g.send(i)
}

// send lets an instance send an event to one that comes later; so no two wait
// for each other.
func (g *generator) send(i int) {
	if i == 0 || !g.oneIn(3) {
		return
	}
	to := g.app.Instances[i]
	from := g.app.Instances[g.r.IntN(i)]
	program := &g.app.Programs[from.Program]
	if from.Terminated > 0 || program.Fails || to.Delay > 0 || g.app.Programs[to.Program].holds() || g.app.Programs[to.Program].Rounds > 0 || program.Rounds > 0 {
		return
	}
	event := fmt.Sprintf("from-%s-%d", from.ID, i)
	// The receiver is there when the event arrives: it was started long before.
	program.Steps = append(program.Steps, Step{Kind: SleepStep, Wait: 12 * time.Second}, Step{Kind: SendStep, Peer: to.ID, Event: event})
	g.app.Programs[to.Program].Steps = append(g.app.Programs[to.Program].Steps, Step{Kind: ReceiveStep, Event: event, Peer: from.ID})
}

func (g *generator) add(p Program) int {
	g.app.Programs = append(g.app.Programs, p)
	return len(g.app.Programs) - 1
}

// program returns a new program. Only those of instances that clients start, at
// depth 0, wait for events.
func (g *generator) program(depth int) int {
	p := Program{Fails: g.oneIn(10)}
	if g.oneIn(4) {
		p.Rounds = 1 + g.r.IntN(3)
		if depth > 0 { // there may be many of it
			p.Rounds = 1
		}
	}
	for range 1 + g.r.IntN(g.steps) {
		p.Steps = append(p.Steps, g.step(depth, p.Rounds > 0))
	}
	if len(g.app.Ledgers) > 0 {
		g.hold(&p)
	}
	return g.add(p)
}

func (g *generator) step(depth int, repeated bool) Step {
	if len(g.app.Ledgers) > 0 && !g.oneIn(3) {
		return g.ledgerStep(depth)
	}
	s := Step{Kind: StepKind(g.r.IntN(int(stepKinds)))}
	switch s.Kind {
	case FanOutStep:
		s.Count = 2 + g.r.IntN(7)
	case SleepStep:
		s.Wait = g.upTo(15 * time.Second)
	case TimeoutStep:
		s.Wait, s.Event = 500*time.Millisecond+g.upTo(5*time.Second), "never"
	case EventStep, DeadlineStep:
		if depth > 0 || repeated {
			return Step{Kind: CallStep}
		}
		g.round++
		s.Event = fmt.Sprintf("event-%d", g.round)
		s.Wait = 4 * time.Minute
		in := &g.app.Instances[g.at]
		in.Raised = append(in.Raised, RaisedEvent{Name: s.Event, At: in.At + 10*time.Second + g.upTo(10*time.Second)})
		if s.Kind == DeadlineStep && !g.oneIn(4) {
			s.Kind = EventStep // its timer makes a simulation last
		}
	case ChildStep, ChildrenStep:
		if depth == 2 {
			return Step{Kind: CallStep}
		}
		s.Count, s.Child = 1+g.r.IntN(3-depth), g.program(depth+1)
	case SendStep, ReceiveStep:
		return Step{Kind: CallStep} // these come in pairs
	case BigStep:
		if !g.oneIn(3) {
			return Step{Kind: CallStep}
		}
	case CallStep, FailStep, RetryStep, BranchStep, StatusStep, stepKinds, LedgerStep:
	}
	return s
}
