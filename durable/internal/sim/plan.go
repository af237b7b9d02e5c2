package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Plan is a simulation: an app and the disturbances of its workers.
type Plan struct {
	Seed     uint64
	App      *App
	Workers  int
	Sessions bool // with extended sessions
	// Activities is the maximum number of concurrent activities and steps of a worker; zero means 6.
	Activities int
	// EntityBatch is the maximum number of entity operations in a batch; zero means the default.
	EntityBatch int

	// Faults is the probability that a request of a worker fails, until Quiet has passed.
	Faults float64
	Quiet  time.Duration
	// Repeats is the probability that a request is also delivered twice, delivered again later, or delayed.
	Repeats float64
	// Cuts is the probability that a caller gives up during a call. Most callers then repeat the call. If
	// Cuts is positive, requests of clients can fail, too.
	Cuts float64
	// Contests are IDs that several clients start at the same time.
	Contests []Contest
	// Restarts are restarts of the app's instances under new IDs.
	Restarts []Restart
	// Streams are sequences of events that must arrive in order.
	Streams []Stream
	// Disturbances happen to the workers. Skews holds for each worker how far its clock is ahead.
	Disturbances []Disturbance
	Skews        []time.Duration
	// Moves are the times at which the hub is replaced by a copy, on a [Mover].
	Moves []time.Duration
	// StopAt is the number of a ledger operation, counted from 1. The worker that executes it is stopped.
	// Zero means none.
	StopAt int

	// Ignorant is true for each worker that knows no functions until Quiet has passed. Other processes then
	// replace these workers. Nil means that all workers know the functions.
	Ignorant []bool

	// Foreign is true for each worker that calls activities in place of steps until Quiet has passed. It acts
	// like a worker of .NET on a history with steps, and like an older version of the app. Unlike .NET, it
	// fails an interrupted step that runs at most once. Nil means that all workers run steps.
	Foreign []bool

	// Purger runs a client that crashes during the final purge, no later than Purged after its start. If
	// Purged is 0, only the platform kills it. Another client completes the purge.
	Purger bool
	Purged time.Duration

	// Inside sends the requests of clients through the processes of workers while one is alive. They can then
	// fail like the workers' requests.
	Inside bool

	// Awaited lets clients in the processes of workers wait for the end of each instance. Most of them give
	// up early.
	Awaited bool

	// Asked, if not nil, counts the quiet states in which a client asks why instances wait.
	Asked *Answers

	// Pace is the duration of every activity. Zero means random durations. Most of them are short, and some
	// exceed the lifetime of a lock that is not renewed.
	Pace time.Duration

	// Partitions and Loose configure platforms with queues.
	Partitions int
	Loose      bool
	// Varied lets the seed choose the configuration of such a platform.
	Varied bool
	// Strangers is the number of undecodable messages that are put into the queues of such a platform.
	Strangers int
	// Audit enables an audit of all changes to instances on such a platform.
	Audit bool
}

// DisturbanceKind is the kind of a disturbance.
type DisturbanceKind int

// Kinds of disturbances.
const (
	KillIt   DisturbanceKind = iota // the process dies immediately
	FreezeIt                        // the process stops running for a while
	StopIt                          // the worker shuts down
	disturbanceKinds
)

// Disturbance is an event that happens to a worker. A killed or stopped worker is replaced after For. A
// frozen worker continues after For.
type Disturbance struct {
	Kind   DisturbanceKind
	Worker int
	At     time.Duration
	For    time.Duration
}

// String describes the disturbance.
func (d Disturbance) String() string {
	kind := [...]string{"killed", "frozen", "stopped"}[d.Kind]
	return fmt.Sprintf("worker %d is %s at %v for %v", d.Worker, kind, d.At, d.For)
}

// NewVariedPlan is [NewPlan] with a platform configuration that depends on the seed.
func NewVariedPlan(seed uint64) *Plan {
	p := NewPlan(seed)
	p.Varied = true
	return p
}

// NewRepeatedPlan is [NewVariedPlan] with repeated and delayed requests.
func NewRepeatedPlan(seed uint64) *Plan { return NewVariedPlan(seed).repeated() }

// NewRepeatedEntityPlan is [NewEntityPlan] with repeated and delayed requests.
func NewRepeatedEntityPlan(seed uint64) *Plan { return NewEntityPlan(seed).repeated() }

// repeated adds repeated and delayed requests to p. The rest of the plan stays the same for the seed.
func (p *Plan) repeated() *Plan {
	p.Repeats = []float64{0.01, 0.05, 0.2}[mix(p.Seed, "repeats")%3]
	return p
}

// NewStepPlan is [NewRepeatedPlan], or [NewCallerPlan] for every third seed, with durable steps in place of
// some activities.
func NewStepPlan(seed uint64) *Plan {
	p := NewRepeatedPlan(seed)
	if seed%3 == 0 {
		p = NewCallerPlan(seed)
	}
	p.App.Inline = mix(seed, "inline") | 1
	return p
}

// NewPollPlan is [NewStepPlan] with polls in place of some durable steps.
func NewPollPlan(seed uint64) *Plan {
	p := NewStepPlan(seed)
	p.App.Polls = true
	return p
}

// NewTakeoverPlan is [NewStepPlan], or [NewPollPlan] for every second seed, with workers that call activities
// in place of steps.
func NewTakeoverPlan(seed uint64) *Plan {
	p := NewStepPlan(seed)
	p.App.Polls = seed%2 == 0
	r := rand.New(rand.NewPCG(seed, 0x7A4E))
	for range p.Workers {
		p.Foreign = append(p.Foreign, r.IntN(2) == 0)
	}
	return p
}

// NewStrangePlan is [NewRepeatedPlan] with undecodable messages in the queues.
func NewStrangePlan(seed uint64) *Plan {
	p := NewRepeatedPlan(seed)
	p.Strangers = 1 + int(mix(seed, "strangers")%8)
	return p
}

// NewAuditedPlan is [NewVariedPlan] with an audit. All clocks agree, because workers pass compressed audit
// data on, and a simulated clock does not shift the times in compressed data.
func NewAuditedPlan(seed uint64) *Plan {
	p := NewVariedPlan(seed)
	p.Audit = true
	clear(p.Skews)
	return p
}

// NewLargePlan is [NewVariedPlan], or [NewEntityPlan] for every second seed, with payloads that do not fit
// into messages. For every third seed nothing fails.
func NewLargePlan(seed uint64) *Plan {
	p := NewVariedPlan(seed)
	if seed%2 == 0 {
		p = NewEntityPlan(seed)
	}
	if seed%3 == 0 {
		p.Workers, p.Skews, p.Faults, p.Disturbances = 1, p.Skews[:1], 0, nil
	}
	p.App.Large, p.Purger, p.Awaited = true, true, true
	p.Purged = time.Duration(mix(seed, "purged") % uint64(time.Second))
	return p
}

// NewEndingPlan is [NewVariedPlan] with instances that are terminated near their start, some of them while no
// worker knows their function. Some functions are never registered.
func NewEndingPlan(seed uint64) *Plan {
	p := NewVariedPlan(seed)
	r := rand.New(rand.NewPCG(seed, 0xE4D))
	for i := range p.App.Instances {
		in := &p.App.Instances[i]
		program := &p.App.Programs[in.Program]
		if program.sends() || program.receives() {
			continue
		}
		in.Unknown = r.IntN(5) == 0
		if in.Unknown && r.IntN(3) == 0 {
			in.Raised, in.Suspended = nil, 0 // the instance would be held forever
			continue
		}
		if r.IntN(2) == 0 && !in.Unknown {
			continue
		}
		in.Terminated = max(in.At, in.At+in.Delay+time.Duration(r.Int64N(int64(4*time.Second)))-2*time.Second)
		in.Raised = nil
		program.Steps = append(program.Steps, Step{Kind: EventStep, Event: "never"}) // keeps the instance from completing
	}
	for range p.Workers {
		p.Ignorant = append(p.Ignorant, r.IntN(2) == 0)
	}
	p.App.BegunByOthers = true
	return p
}

// NewCallerPlan is [NewVariedPlan] with callers that give up and with clients that start one ID at the same
// time. Requests of workers and clients are repeated and delayed.
func NewCallerPlan(seed uint64) *Plan {
	p := NewVariedPlan(seed).repeated()
	r := rand.New(rand.NewPCG(seed, 0xCA11))
	p.Cuts = []float64{0.1, 0.3, 0.6}[r.IntN(3)]
	for n := range 1 + r.IntN(3) {
		p.Contests = append(p.Contests, newContest(r, fmt.Sprintf("c%d", n), p.App))
	}
	return p
}

// NewRestartPlan is [NewCallerPlan] with clients that restart instances and give up during the call.
func NewRestartPlan(seed uint64) *Plan {
	p := NewCallerPlan(seed)
	r := rand.New(rand.NewPCG(seed, 0x2E57))
	for _, in := range p.App.Instances {
		program := p.App.Programs[in.Program]
		if in.Terminated > 0 || slices.ContainsFunc([]StepKind{EventStep, DeadlineStep, SendStep, ReceiveStep, ChildStep, ChildrenStep}, program.has) {
			continue // a second run would have another result, or the same children
		}
		p.Restarts = append(p.Restarts, Restart{Of: in, ID: "again " + in.ID, At: in.At + time.Duration(r.Int64N(int64(40*time.Second)))})
	}
	return p
}

// NewAskedPlan is [NewVariedPlan], or [NewEntityPlan] for every second seed, in which a client asks why
// instances wait. Half of the instances are suspended, most of them shortly before an event arrives.
func NewAskedPlan(seed uint64, asked *Answers) *Plan {
	p := NewVariedPlan(seed)
	if seed%2 == 0 {
		p = NewEntityPlan(seed)
	}
	p.Asked = asked
	r := rand.New(rand.NewPCG(seed, 0x3417))
	for i := range p.App.Instances {
		in := &p.App.Instances[i]
		if in.Terminated > 0 || r.IntN(2) == 0 {
			continue
		}
		in.Suspended = in.At + in.Delay + time.Duration(r.Int64N(int64(20*time.Second)))
		if len(in.Raised) > 0 {
			in.Suspended = in.Raised[0].At - time.Duration(r.Int64N(int64(2*time.Second)))
		}
	}
	return p
}

// NewSignalerPlan is [NewRepeatedEntityPlan] with clients that give up while they signal entities, and repeat
// the signals.
func NewSignalerPlan(seed uint64) *Plan {
	p := NewRepeatedEntityPlan(seed)
	r := rand.New(rand.NewPCG(seed, 0x516))
	for _, c := range p.App.Signals {
		for range r.IntN(4) {
			c.Cut = time.Duration(1 + r.Int64N(int64(80*time.Millisecond)))
			c.Order.Number++ // a repeated signal has no identity and counts as a new one
			c.At += time.Duration(r.Int64N(int64(5 * time.Second)))
			p.App.Signals = append(p.App.Signals, c)
		}
	}
	return p
}

// clientsMayFail reports whether calls of clients may fail.
func (p *Plan) clientsMayFail() bool { return p.Cuts > 0 || p.Inside }

// NewInsiderPlan is [NewStreamPlan] with concurrent events, or [NewSignalerPlan] for every third seed, with
// clients in the processes of workers.
func NewInsiderPlan(seed uint64) *Plan {
	p := NewSignalerPlan(seed)
	if seed%3 > 0 {
		p = NewStreamPlan(seed)
	}
	r := rand.New(rand.NewPCG(seed, 0x1251DE))
	p.Inside = true
	for i := range p.Streams {
		p.Streams[i].Burst = r.IntN(8)
	}
	return p
}

// NewPlan returns the plan of a seed.
func NewPlan(seed uint64) *Plan {
	r := rand.New(rand.NewPCG(seed, 0x5117))
	return newPlan(seed, r, NewApp(r, DefaultSize))
}

// NewEntityPlan returns the plan of a seed for an app with entities.
func NewEntityPlan(seed uint64) *Plan {
	r := rand.New(rand.NewPCG(seed, 0xE4717))
	p := newPlan(seed, r, NewLedgerApp(r, DefaultSize))
	if r.IntN(2) == 0 {
		p.EntityBatch = 1 + r.IntN(3)
	}
	if r.IntN(3) == 0 {
		p.StopAt = 1 + r.IntN(40)
	}
	return p
}

func newPlan(seed uint64, r *rand.Rand, app *App) *Plan {
	p := &Plan{
		Seed: seed, App: app, Workers: 1 + r.IntN(4), Sessions: r.IntN(3) == 0,
		Quiet: 45 * time.Second, Partitions: 1 + r.IntN(3), Loose: r.IntN(2) == 0,
	}
	between := func(lo, hi time.Duration) time.Duration { return lo + time.Duration(r.Int64N(int64(hi-lo))) }
	if r.IntN(4) > 0 {
		p.Faults = []float64{0.01, 0.03, 0.1}[r.IntN(3)]
	}
	for range r.IntN(4) {
		p.Disturbances = append(p.Disturbances, Disturbance{
			Kind: DisturbanceKind(r.IntN(int(disturbanceKinds))), Worker: r.IntN(p.Workers),
			At: between(time.Second, p.Quiet), For: between(time.Second, 50*time.Second),
		})
	}
	for range p.Workers {
		skew := time.Duration(0)
		if r.IntN(3) == 0 {
			skew = between(-30*time.Second, 30*time.Second)
		}
		p.Skews = append(p.Skews, skew)
	}
	return p
}
