package sim

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Mover is a [Platform] that can go on with a copy of its hub.
type Mover interface {
	// Move copies the hub, which no worker has, into an empty one, which takes its
	// place. It returns what is not in the copy as it was.
	Move(ctx context.Context) (faults []string)
}

// NewMovedPlan returns the plan that a seed stands for, of an app with entities or without
// them, of a hub that is copied and goes on as the copy.
func NewMovedPlan(seed uint64) *Plan {
	p := NewRepeatedPlan(seed)
	if mix(seed, "entities")%2 == 0 {
		p = NewEntityPlan(seed)
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
				s.Kind = EventStep // a timer that was sent twice keeps the hub from being copied
			default:
				s.Wait = 20 * time.Minute // the hub rests while it is copied
			}
		}
	}
	at := 5*time.Second + g.upTo(35*time.Second)
	for i := range p.App.Instances {
		in := &p.App.Instances[i]
		if in.Terminated > 0 || in.At+in.Delay+suspension > at || !g.oneIn(2) {
			continue
		}
		in.Suspended = at - g.upTo(suspension) // mostly it is when the hub is copied, and sleeps
		program := &p.App.Programs[in.Program]
		program.Steps = append([]Step{{Kind: SleepStep, Wait: at - in.At - in.Delay + g.upTo(20*time.Second)}}, program.Steps...)
	}
	for range 1 + r.IntN(3) {
		p.Moves = append(p.Moves, at)
		at += 5*time.Second + g.upTo(30*time.Second)
	}
	return p
}
