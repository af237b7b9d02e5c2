package sim

import (
	"context"
	"math/rand/v2"
	"time"
)

// Mover is a [Platform] that can replace its hub by a copy.
type Mover interface {
	// Move copies the hub, which has no workers, to an empty one and switches to it. It returns the
	// differences of the copy.
	Move(ctx context.Context) (faults []string)
}

// NewMovedPlan returns the plan of a seed for a hub that is replaced by copies of itself. The app has
// entities for about half of the seeds, and durable steps for half.
func NewMovedPlan(seed uint64) *Plan {
	p := NewRepeatedPlan(seed)
	if mix(seed, "entities")%2 == 0 {
		p = NewEntityPlan(seed)
	}
	if mix(seed, "steps")%2 == 0 {
		p.App.Inline = mix(seed, "inline") | 1
		p.App.Polls = seed%4 == 2
	}
	r := rand.New(rand.NewPCG(seed, 0xC0B1))
	g := generator{r: r}
	p.Workers = 1
	clear(p.Skews)
	for i := range p.Disturbances {
		p.Disturbances[i].Worker = 0
	}
	for i := range p.App.Programs {
		for j := range p.App.Programs[i].Steps {
			s := &p.App.Programs[i].Steps[j]
			g.postpone(s.Acts)
			switch {
			case s.Kind != DeadlineStep:
			case p.Faults+p.Repeats > 0:
				s.Kind = EventStep // a timer that was sent twice prevents the copy
			default:
				s.Wait = 20 * time.Minute // the hub is stopped during the copy
			}
		}
	}
	at := 5*time.Second + g.upTo(35*time.Second)
	for i := range p.App.Instances {
		in := &p.App.Instances[i]
		if in.Terminated > 0 || in.At+in.Delay+suspension > at || !g.oneIn(2) {
			continue
		}
		in.Suspended = at - g.upTo(suspension) // usually suspended and sleeping during the copy
		program := &p.App.Programs[in.Program]
		program.Steps = append([]Step{{Kind: SleepStep, Wait: at - in.At - in.Delay + g.upTo(20*time.Second)}}, program.Steps...)
	}
	for range 1 + r.IntN(3) {
		p.Moves = append(p.Moves, at)
		at += 5*time.Second + g.upTo(30*time.Second)
	}
	return p
}
