package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A Plan is a simulation: an app, and what happens to the workers that run it.
type Plan struct {
	Seed     uint64
	App      *App
	Workers  int
	Sessions bool // extended sessions
	// EntityBatch is how many operations of an entity are carried out at once;
	// zero means many.
	EntityBatch int

	// Faults is the chance of each request of a worker to go wrong, until Quiet
	// has passed.
	Faults float64
	Quiet  time.Duration
	// Repeats is the chance of a request to be delivered twice, once more later, or
	// late, in addition.
	Repeats float64
	// Cuts is the chance of a caller to go away in the middle of what it asks for, and
	// mostly to ask for it again. The requests of clients go wrong, too, then.
	Cuts float64
	// Contests are IDs that several clients start at once.
	Contests []Contest
	// Restarts are of instances of the app, under other IDs.
	Restarts []Restart
	// Streams are events that must come in the order in which they are raised.
	Streams []Stream
	// Disturbances are what happens to workers meanwhile, Skews how far their
	// clocks are ahead.
	Disturbances []Disturbance
	Skews        []time.Duration
	// Moves are when the hub is copied and goes on as the copy, on a [Mover].
	Moves []time.Duration
	// StopAt is the operation of a ledger, counted from 1, in which the worker that
	// carries it out is told to stop. Zero means none.
	StopAt int

	// Ignorant workers know no function until Quiet has passed; then others follow
	// them.
	Ignorant []bool

	// Purger says that a client begins to purge everything at the end, and dies: Purged
	// after it began, if it is not killed otherwise. Others finish what it began.
	Purger bool
	Purged time.Duration

	// Inside says that what clients send goes through processes of workers, as long as one
	// lives, and may fail as what these do.
	Inside bool

	// Awaited says that clients in the processes of workers wait for the end of each
	// instance, and that most of them go away before.
	Awaited bool

	// Asked, if not nil, counts the quiet states in which a client asks why instances wait.
	Asked *Answers

	// Pace is how long every activity takes. Zero means mostly a moment, and
	// sometimes longer than anything stays locked without being renewed.
	Pace time.Duration

	// Partitions and Loose are for platforms that have queues.
	Partitions int
	Loose      bool
	// Varied says that such a platform is set up as the seed says, too, and not as
	// it is by default.
	Varied bool
	// Strangers is how many messages come into the queues of such a platform that no
	// worker can decode.
	Strangers int
	// Audit says that such a platform keeps an audit of what happens to instances.
	Audit bool
}

// A DisturbanceKind is what happens to a worker.
type DisturbanceKind int

// The kinds of disturbances.
const (
	KillIt   DisturbanceKind = iota // it dies without being able to do anything
	FreezeIt                        // it does not get on for a while
	StopIt                          // it is told to stop
	disturbanceKinds
)

// A Disturbance happens to one of the workers at some time. One that is killed
// or stopped is followed by another after the given time, one that is frozen goes
// on then.
type Disturbance struct {
	Kind   DisturbanceKind
	Worker int
	At     time.Duration
	For    time.Duration
}

// String says what happens.
func (d Disturbance) String() string {
	kind := [...]string{"killed", "frozen", "stopped"}[d.Kind]
	return fmt.Sprintf("worker %d is %s at %v for %v", d.Worker, kind, d.At, d.For)
}

// NewVariedPlan is [NewPlan] for a platform that is set up as the seed says.
func NewVariedPlan(seed uint64) *Plan {
	p := NewPlan(seed)
	p.Varied = true
	return p
}

// NewRepeatedPlan is [NewVariedPlan] with requests that come twice and late.
func NewRepeatedPlan(seed uint64) *Plan { return NewVariedPlan(seed).repeated() }

// NewRepeatedEntityPlan is [NewEntityPlan] with requests that come twice and late.
func NewRepeatedEntityPlan(seed uint64) *Plan { return NewEntityPlan(seed).repeated() }

// repeated adds requests that come twice and late. What else the seed stands for stays.
func (p *Plan) repeated() *Plan {
	p.Repeats = []float64{0.01, 0.05, 0.2}[mix(p.Seed, "repeats")%3]
	return p
}

// NewStrangePlan is [NewRepeatedPlan] with messages in the queues that no worker can
// decode.
func NewStrangePlan(seed uint64) *Plan {
	p := NewRepeatedPlan(seed)
	p.Strangers = 1 + int(mix(seed, "strangers")%8)
	return p
}

// NewAuditedPlan is [NewVariedPlan] with an audit. Clocks agree: what one worker leaves
// to the next about the audit is compressed, and a simulated clock does not move the
// times in that.
func NewAuditedPlan(seed uint64) *Plan {
	p := NewVariedPlan(seed)
	p.Audit = true
	clear(p.Skews)
	return p
}

// NewLargePlan is [NewVariedPlan], and every other one [NewEntityPlan], with payloads that
// do not fit into messages. In every third nothing goes wrong.
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

// NewEndingPlan is [NewVariedPlan] with instances that are terminated about when
// they begin, some while nobody is there who knows their function, and with some
// whose function nobody ever knows.
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
			in.Raised, in.Suspended = nil, 0 // it would be held for ever
			continue
		}
		if r.IntN(2) == 0 && !in.Unknown {
			continue
		}
		in.Terminated = max(in.At, in.At+in.Delay+time.Duration(r.Int64N(int64(4*time.Second)))-2*time.Second)
		in.Raised = nil
		program.Steps = append(program.Steps, Step{Kind: EventStep, Event: "never"}) // lest it ends by itself
	}
	for range p.Workers {
		p.Ignorant = append(p.Ignorant, r.IntN(2) == 0)
	}
	p.App.BegunByOthers = true
	return p
}

// NewCallerPlan is [NewVariedPlan] with callers that go away, requests that come twice
// and late, from clients too, and clients that start one ID at once.
func NewCallerPlan(seed uint64) *Plan {
	p := NewVariedPlan(seed).repeated()
	r := rand.New(rand.NewPCG(seed, 0xCA11))
	p.Cuts = []float64{0.1, 0.3, 0.6}[r.IntN(3)]
	for n := range 1 + r.IntN(3) {
		p.Contests = append(p.Contests, newContest(r, fmt.Sprintf("c%d", n), p.App))
	}
	return p
}

// NewRestartPlan is [NewCallerPlan] with clients that restart instances, and go away
// meanwhile.
func NewRestartPlan(seed uint64) *Plan {
	p := NewCallerPlan(seed)
	r := rand.New(rand.NewPCG(seed, 0x2E57))
	for _, in := range p.App.Instances {
		program := p.App.Programs[in.Program]
		if in.Terminated > 0 || slices.ContainsFunc([]StepKind{EventStep, DeadlineStep, SendStep, ReceiveStep, ChildStep, ChildrenStep}, program.has) {
			continue // its second run would not end as the first, or would have the children of that
		}
		p.Restarts = append(p.Restarts, Restart{Of: in, ID: "again " + in.ID, At: in.At + time.Duration(r.Int64N(int64(40*time.Second)))})
	}
	return p
}

// NewAskedPlan is [NewVariedPlan], or every other one [NewEntityPlan], in which a client asks why
// instances wait. Half of the instances are suspended, most of them shortly before an event comes.
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

// NewSignalerPlan is [NewRepeatedEntityPlan] with clients that go away while they signal
// entities, and signal them again.
func NewSignalerPlan(seed uint64) *Plan {
	p := NewRepeatedEntityPlan(seed)
	r := rand.New(rand.NewPCG(seed, 0x516))
	for _, c := range p.App.Signals {
		for range r.IntN(4) {
			c.Cut = time.Duration(1 + r.Int64N(int64(80*time.Millisecond)))
			c.Order.Number++ // a signal has nothing by which it would be known as the same
			c.At += time.Duration(r.Int64N(int64(5 * time.Second)))
			p.App.Signals = append(p.App.Signals, c)
		}
	}
	return p
}

// unsure reports whether what clients ask for may fail.
func (p *Plan) unsure() bool { return p.Cuts > 0 || p.Inside }

// NewInsiderPlan is [NewStreamPlan], with events that are raised at once, or every third
// time [NewSignalerPlan], with clients in the processes of workers.
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

// NewPlan returns the plan that a seed stands for.
func NewPlan(seed uint64) *Plan {
	r := rand.New(rand.NewPCG(seed, 0x5117))
	return newPlan(seed, r, NewApp(r, DefaultSize))
}

// NewEntityPlan returns the plan, of an app that has entities, that a seed stands
// for.
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
