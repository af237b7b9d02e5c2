package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// App is the application of a simulation: programs for its single orchestrator, and the instances that
// clients start.
type App struct {
	Programs  []Program
	Instances []Instance
	// Ledgers are the keys of the app's entities; Signals are the signals that clients send to them.
	Ledgers []string
	Signals []ClientSignal
	// Large makes all payloads of users too large for a message or a row. Custom statuses are the exception,
	// because they must fit.
	Large bool
	// BegunByOthers means that a worker without the app's code may suspend an instance before its first
	// episode. The code then sees its start as a replay.
	BegunByOthers bool

	// Inline, if not zero, makes some tasks durable steps instead of activities; [AllInline] all of them.
	Inline uint64
	// Polls makes some of the durable steps polls.
	Polls bool
	// foreign makes all tasks activities, with the names of the steps.
	foreign bool

	received func(Receipt)                                           // receives the receipts of ledgers; see Registry
	perform  func(context.Context, Task, inlineKind) (string, error) // runs the tasks; see Registry
}

// Program is the sequence of steps of an orchestrator. The orchestrator folds the results of its steps into
// one number and returns it.
type Program struct {
	Steps []Step
	// Rounds is the number of times that the program continues as new.
	Rounds int
	// Fails makes the program fail after its last step.
	Fails bool
}

// sends and receives report whether a program sends an event to another instance or waits for one.
func (p Program) sends() bool    { return p.has(SendStep) }
func (p Program) receives() bool { return p.has(ReceiveStep) }

func (p Program) has(k StepKind) bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Kind == k })
}

// StepKind is the kind of a step.
type StepKind int

// Kinds of steps.
const (
	CallStep     StepKind = iota // one activity
	FailStep                     // an activity that fails
	RetryStep                    // an activity that fails in all attempts
	FanOutStep                   // Count concurrent activities
	SleepStep                    // a timer
	EventStep                    // an event that a client raises
	TimeoutStep                  // an event that never arrives, with a timeout
	DeadlineStep                 // an event that arrives long before its timeout
	ChildStep                    // a sub-orchestration
	ChildrenStep                 // Count concurrent sub-orchestrations with explicit IDs
	BranchStep                   // two branches of two activities each
	SendStep                     // an event for another instance, which waits for it
	ReceiveStep                  // the event of another instance
	StatusStep                   // a custom status
	BigStep                      // an activity whose input and result are too large for messages
	stepKinds
	LedgerStep // operations on entities
)

// Step is one step of a program.
type Step struct {
	Kind  StepKind
	Count int
	Wait  time.Duration
	Child int    // program of the child
	Peer  string // the instance that sends or receives the event
	Event string
	Acts  []Act // of a LedgerStep
}

// Instance is an instance that a client starts, with the actions of clients on it.
type Instance struct {
	ID      string
	Program int
	// At is the time of the start, Delay the time from At to the scheduled start.
	At, Delay time.Duration
	// Raised are the events that clients raise. Suspended and Terminated are the times of a temporary
	// suspension and of a termination; zero means never.
	Raised     []RaisedEvent
	Suspended  time.Duration
	Terminated time.Duration
	// Unknown starts the instance with a function that no worker has registered.
	Unknown bool
}

// RaisedEvent is an event and the time at which a client raises it.
type RaisedEvent struct {
	Name string
	At   time.Duration
}

// Size limits the size of a random app.
type Size struct {
	Instances, Steps int
}

// DefaultSize is the default size of an app.
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
	at    int // index of the instance that is being generated
	round int // number of events so far
	acts  int // number of acts in the current step
}

func (g *generator) upTo(d time.Duration) time.Duration {
	return time.Duration(g.r.Int64N(int64(d)/int64(time.Millisecond))) * time.Millisecond
}

func (g *generator) oneIn(n int) bool { return g.r.IntN(n) == 0 }

func (g *generator) instance(i int) {
	g.at = i
	in := &g.app.Instances[i]
	if g.oneIn(12) {
		// The instance waits forever and is terminated.
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

// beforeSend is the delay before an instance sends an event to another one.
const beforeSend = 12 * time.Second

// send lets an earlier instance send an event to instance i. The order excludes circular waits.
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
	// The receiver exists when the event arrives, because it was started much earlier, unless there was an
	// outage.
	program.Steps = append(program.Steps, Step{Kind: SleepStep, Wait: beforeSend}, Step{Kind: SendStep, Peer: to.ID, Event: event})
	g.app.Programs[to.Program].Steps = append(g.app.Programs[to.Program].Steps, Step{Kind: ReceiveStep, Event: event, Peer: from.ID})
}

func (g *generator) add(p Program) int {
	g.app.Programs = append(g.app.Programs, p)
	return len(g.app.Programs) - 1
}

// program generates a program. Only programs of depth 0, of instances that clients start, wait for events.
func (g *generator) program(depth int) int {
	p := Program{Fails: g.oneIn(10)}
	if g.oneIn(4) {
		p.Rounds = 1 + g.r.IntN(3)
		if depth > 0 { // the program may have many instances
			p.Rounds = 1
		}
	}
	for range 1 + g.r.IntN(g.steps) {
		p.Steps = append(p.Steps, g.step(depth, p.Rounds > 0))
	}
	if len(g.app.Ledgers) > 0 {
		g.holdAtEnd(&p)
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
			s.Kind = EventStep // DeadlineStep is rare because its timer makes the simulation long
		}
	case ChildStep, ChildrenStep:
		if depth == 2 {
			return Step{Kind: CallStep}
		}
		s.Count, s.Child = 1+g.r.IntN(3-depth), g.program(depth+1)
	case SendStep, ReceiveStep:
		return Step{Kind: CallStep} // generated in pairs by send
	case BigStep:
		if !g.oneIn(3) {
			return Step{Kind: CallStep}
		}
	case CallStep, FailStep, RetryStep, BranchStep, StatusStep, stepKinds, LedgerStep:
	}
	return s
}

// padded returns text. In a large app it appends padding that exceeds the size of a message.
func (a *App) padded(text string) string {
	if a.Large {
		return text + strings.Repeat("p", big)
	}
	return text
}

// inlineKind says how a task runs.
type inlineKind int

const (
	asActivity inlineKind = iota
	asStep
	asOnce // a step that runs at most once
	asPoll
)

// AllInline is the value of [App.Inline] that makes all tasks durable steps.
const AllInline = math.MaxUint64

// inlineKind returns how the task with a key runs.
func (a *App) inlineKind(key string) inlineKind {
	switch a.Inline {
	case 0:
		return asActivity
	case AllInline:
		return asStep
	}
	kind := []inlineKind{asActivity, asStep, asStep, asOnce}[mix(a.Inline, key)%4]
	if kind == asStep && a.Polls && mix(a.Inline, key+"?")%2 == 0 {
		return asPoll
	}
	return kind
}

// poll returns the policy of a poll, and the number of the call that is done: calls in memory, and calls
// between which the instance leaves memory.
func (a *App) poll(key string) (durable.PollPolicy, int) {
	r := mix(a.Inline, key+"!")
	return durable.PollPolicy{Interval: []time.Duration{700 * time.Millisecond, 3 * time.Second, 15 * time.Second}[r%3], Coefficient: 1.5}, 1 + int(r/3%4)
}

// Registry returns the functions of the app. perform runs its activities and steps. Every entity operation
// calls take. received is called with every receipt of a ledger.
func (a *App) Registry(
	perform func(context.Context, Task, inlineKind) (string, error), take func(context.Context, Order) error, received func(Receipt),
) *durable.Registry {
	run := *a
	run.received, run.perform = received, perform
	activity := func(ctx context.Context, t Task) (string, error) { return perform(ctx, t, asActivity) }
	foreignOnce := func(ctx context.Context, t Task) (string, error) { return perform(ctx, t, asActivity) }
	return durable.NewRegistry(
		durable.Orchestrator("Run", run.run), durable.Orchestrator(string(listen), hear),
		durable.Activity(string(work), activity), durable.Activity(string(once), foreignOnce), ledgers(take),
	)
}

// inForeignCode returns the app in the code of another language, which has no steps and calls activities of
// their names.
func (a *App) inForeignCode() *App {
	foreign := *a
	foreign.foreign = true
	return &foreign
}

// replayed returns the functions of the app for replays, which run no tasks.
func (a *App) replayed() *durable.Registry {
	none := func(context.Context, Task, inlineKind) (string, error) { return "", errors.New("a replay ran a task") }
	return a.Registry(none, func(context.Context, Order) error { return nil }, func(Receipt) {})
}

// run is the app's orchestrator.
func (a *App) run(ctx *durable.Context, in Input) (Output, error) {
	p := a.Programs[in.Program]
	x := &execution{app: a, ctx: ctx, in: in}
	for i, s := range p.Steps {
		result, err := x.step(i, s)
		if err != nil {
			return Output{}, err
		}
		in.Sum = fold(in.Sum, result)
	}
	if in.Round < p.Rounds {
		in.Round++
		return durable.ContinueAsNew(ctx, a.run, in)
	}
	if p.Fails {
		return Output{}, errors.New(a.padded(fmt.Sprintf("failed with %x", in.Sum)))
	}
	return a.output(in.Sum), nil
}

func (a *App) output(sum uint64) Output { return Output{Sum: sum, Pad: a.padded("")} }

// endless generates an instance that waits forever, mostly while it holds locks, and is terminated. Its
// progress at that time is unpredictable.
func (g *generator) endless(i int) {
	in := &g.app.Instances[i]
	g.acts = 0
	first := g.actsOf(callKinds, g.app.Ledgers)
	g.acts = 0
	last := Act{Kind: NeverAct, Index: 99}
	if !g.oneIn(4) {
		last = g.section(true)
		last.Acts = append(last.Acts, Act{Kind: NeverAct, Index: 99})
	}
	in.Program = g.add(Program{Steps: []Step{{Kind: LedgerStep, Acts: first}, {Kind: LedgerStep, Acts: []Act{last}}}})
	in.Terminated = in.At + time.Second + g.upTo(20*time.Second)
}

func (g *generator) clientSignal(i int) ClientSignal {
	o := Order{From: fmt.Sprintf("client %d", i), Amount: g.amount(), To: g.ledger()}
	ops := []operation{addOp, addOp, forwardOp, refuseOp, closeOp}
	op := ops[g.r.IntN(len(ops))]
	switch {
	case op == closeOp:
		o.Amount = 0
	case op == addOp && g.oneIn(2):
		o.Wait = g.upTo(20 * time.Second)
	}
	return ClientSignal{Ledger: g.ledger(), Op: string(op), Order: o, At: g.upTo(25 * time.Second)}
}

func (g *generator) ledger() string { return g.app.Ledgers[g.r.IntN(len(g.app.Ledgers))] }

func (g *generator) amount() int { return 1 + g.r.IntN(99) }

// some returns a random subset of keys.
func (g *generator) some(keys []string) []string {
	var all []string
	for _, i := range g.r.Perm(len(keys))[:1+g.r.IntN(min(3, len(keys)))] {
		all = append(all, keys[i])
	}
	return all
}

// ledgerStep generates a step with ledgers for a program of the given depth.
func (g *generator) ledgerStep(depth int) Step {
	s := Step{Kind: LedgerStep}
	g.acts = 0
	for range 1 + g.r.IntN(3) {
		switch {
		case g.oneIn(3):
			s.Acts = append(s.Acts, g.section(false))
		case g.oneIn(8):
			a := g.indexed(Act{Kind: BranchAct})
			a.Acts = append(g.actsOf(branchKinds, g.app.Ledgers), g.actsOf(branchKinds, g.app.Ledgers)...)
			s.Acts = append(s.Acts, a)
		case g.oneIn(8) && depth < 2:
			a := g.indexed(Act{Kind: StartAct, Ledger: g.ledger(), Amount: g.amount()})
			before := g.acts
			a.Child = g.program(depth + 1)
			g.acts = before
			s.Acts = append(s.Acts, a)
		default:
			s.Acts = append(s.Acts, g.actsOf(callKinds, g.app.Ledgers)...)
		}
	}
	return s
}

func (g *generator) indexed(a Act) Act {
	a.Index = g.acts
	g.acts++
	return a
}

// section generates a critical section. A section with holds keeps its locks until the execution ends.
func (g *generator) section(holds bool) Act {
	a := g.indexed(Act{Kind: SectionAct, Keys: g.some(g.app.Ledgers), Holds: holds})
	a.Acts = g.actsOf(lockedKinds, a.Keys)
	for _, key := range g.app.Ledgers {
		locked := false
		for _, other := range a.Keys {
			locked = locked || key == other
		}
		if !locked && g.oneIn(4) {
			a.Acts = append(a.Acts, g.indexed(Act{Kind: SignalAct, Ledger: key, Amount: g.amount()}))
		}
	}
	return a
}

// actsOf generates acts of the given kinds on ledgers with the given keys.
func (g *generator) actsOf(kinds []ActKind, keys []string) []Act {
	var all []Act
	for range 1 + g.r.IntN(3) {
		key := func() string { return keys[g.r.IntN(len(keys))] }
		a := g.indexed(Act{Kind: kinds[g.r.IntN(len(kinds))], Ledger: key(), To: g.ledger(), Amount: g.amount()})
		switch a.Kind {
		case FanAct:
			a.Keys = g.some(keys)
		case DelayedAct, LaterAct, RestAct:
			a.Wait = 100*time.Millisecond + g.upTo(12*time.Second)
		case TransferAct:
			if a.To = key(); a.To == a.Ledger {
				a.Kind = CallAct
			}
			if g.oneIn(2) {
				a.Wait = g.upTo(5 * time.Second)
			}
		case CallAct, RefuseAct, CloseAct, SignalAct, RefusedAct, ForwardAct, StartAct, ClosedAct, BranchAct, SectionAct, WorkAct, NeverAct:
		}
		all = append(all, a)
	}
	return all
}

// holdAtEnd sometimes adds a critical section that is still open when the program ends, fails or continues
// as new.
func (g *generator) holdAtEnd(p *Program) {
	last := len(p.Steps) - 1
	if p.Steps[last].Kind == LedgerStep && g.oneIn(4) {
		g.acts = 60
		p.Steps[last].Acts = append(p.Steps[last].Acts, g.section(true))
	}
}

// holds reports whether a program ends in a critical section. Such a program must not wait for other
// instances, because they may wait for its locks.
func (p Program) holds() bool {
	acts := p.Steps[len(p.Steps)-1].Acts
	return len(acts) > 0 && acts[len(acts)-1].Holds
}

// events returns the names of all events that instances wait for.
func (a *App) events() []string {
	all := []string{"never"}
	for _, p := range a.Programs {
		for _, s := range p.Steps {
			if s.Event != "" {
				all = append(all, s.Event)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// expectOrders returns the expected entries of all ledgers.
func (a *App) expectOrders() *orders {
	e := &orders{app: a, books: map[string]book{}}
	for _, key := range a.Ledgers {
		e.books[key], e.books[archiveOf(key)] = book{}, book{}
	}
	for _, in := range a.Instances {
		e.program(Input{Path: in.ID, Program: in.Program}, in.Terminated > 0)
	}
	for _, c := range a.Signals {
		e.expect(c.Ledger, operation(c.Op), expectedEntry{order: c.Order, late: true, optional: c.Cut > 0})
	}
	return e
}

// postpone increases the delay of delayed signals, so that some are pending while the hub is copied.
func (g *generator) postpone(acts []Act) {
	for i := range acts {
		if acts[i].Kind == DelayedAct {
			acts[i].Wait += g.upTo(40 * time.Second)
		}
		g.postpone(acts[i].Acts)
	}
}

// Expect returns the expected outcome of an instance. It executes the instance's steps in sequence, without a
// hub.
func (a *App) Expect(in Instance) Outcome {
	if in.Terminated > 0 {
		return Outcome{Status: history.Terminated}
	}
	if in.Unknown {
		return Outcome{Status: history.Failed}
	}
	sum, ok := a.expect(Input{Path: in.ID, Program: in.Program})
	if !ok {
		return Outcome{Status: history.Failed}
	}
	return Outcome{Status: history.Completed, Sum: sum}
}

// expect returns the expected sum of an instance; ok is false if the instance fails.
func (a *App) expect(in Input) (sum uint64, ok bool) {
	p := a.Programs[in.Program]
	for in.Round = range p.Rounds + 1 {
		for i, s := range p.Steps {
			in.Sum = fold(in.Sum, a.expectStep(in, i, s))
		}
	}
	return in.Sum, !p.Fails
}

func (a *App) expectStep(in Input, i int, s Step) string {
	result := func(n int) string {
		t := Task{Key: fmt.Sprintf("%s/%d/%d/%d", in.Path, in.Round, i, n)}
		if s.Kind == BigStep || a.Large {
			t.Big = "x"
		}
		return t.Result()
	}
	switch s.Kind {
	case CallStep, BigStep:
		return result(0)
	case FailStep, RetryStep:
		return "failed"
	case FanOutStep:
		all := make([]string, s.Count)
		for n := range all {
			all[n] = result(n)
		}
		return strings.Join(all, ",")
	case SleepStep:
		return "slept"
	case EventStep, DeadlineStep:
		return a.padded(s.Event + " raised")
	case ReceiveStep:
		return a.padded(s.Event + " sent")
	case TimeoutStep:
		return "timeout"
	case ChildStep, ChildrenStep:
		return a.expectChildren(in, i, s)
	case BranchStep:
		return result(0) + result(1) + "," + result(2) + result(3)
	case SendStep:
		return "sent"
	case StatusStep:
		return "status"
	case LedgerStep:
		return "acted"
	case stepKinds:
	}
	return ""
}

func (a *App) expectChildren(in Input, i int, s Step) string {
	all := make([]string, s.Count)
	for n := range all {
		sum, ok := a.expect(Input{Path: childPath(in.Path, in.Round, i, n), Program: s.Child})
		all[n] = fmt.Sprint(sum)
		if !ok {
			all[n] = "child failed"
		}
	}
	return strings.Join(all, ",")
}
