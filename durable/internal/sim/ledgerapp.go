package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A ClientSignal is what a client tells a ledger.
type ClientSignal struct {
	Ledger string
	Op     string
	Order  Order
	At     time.Duration
	// Cut is after how long the client goes away, and does not get to know whether the
	// ledger is told. Zero means that it stays.
	Cut time.Duration
}

// ledgerKeys are keys that a hub has to tell from one another.
var ledgerKeys = []string{"a", "A", "", "b@c", "d e"}

// NewLedgerApp returns a random app that has entities.
func NewLedgerApp(r *rand.Rand, size Size) *App {
	g := &generator{r: r, app: &App{}, steps: size.Steps}
	first := r.IntN(len(ledgerKeys))
	for i := range 2 + r.IntN(3) {
		g.app.Ledgers = append(g.app.Ledgers, ledgerKeys[(first+i)%len(ledgerKeys)])
	}
	n := 1 + r.IntN(size.Instances)
	for i := range n {
		g.app.Instances = append(g.app.Instances, Instance{ID: fmt.Sprintf("i%d", i), At: g.upTo(10 * time.Second)})
	}
	for i := range n {
		if g.oneIn(5) {
			g.endless(i)
		} else {
			g.instance(i)
		}
	}
	for i := range r.IntN(5) {
		g.app.Signals = append(g.app.Signals, g.clientSignal(i))
	}
	return g.app
}

// endless makes an instance that waits for ever, mostly with locks, and is
// terminated. How far it gets before that is not known.
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

// ledgersOf returns some of keys, each at most once.
func (g *generator) some(keys []string) []string {
	var all []string
	for _, i := range g.r.Perm(len(keys))[:1+g.r.IntN(min(3, len(keys)))] {
		all = append(all, keys[i])
	}
	return all
}

// What can be done in which place.
var (
	callKinds   = []ActKind{CallAct, CallAct, RefuseAct, CloseAct, FanAct, SignalAct, SignalAct, DelayedAct, RefusedAct, ForwardAct, ForwardAct, LaterAct, ClosedAct}
	branchKinds = []ActKind{CallAct, SignalAct, SignalAct, ForwardAct, WorkAct, RestAct}
	lockedKinds = []ActKind{CallAct, RefuseAct, CloseAct, FanAct, TransferAct, TransferAct, TransferAct, RestAct, WorkAct}
)

// ledgerStep returns a step of a program at the given depth.
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

// section returns a critical section. One that holds is not left.
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

// actsOf returns some acts of the given kinds on ledgers with the given keys.
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

// hold lets a program end, fail or continue as new in a critical section.
func (g *generator) hold(p *Program) {
	last := len(p.Steps) - 1
	if p.Steps[last].Kind == LedgerStep && g.oneIn(4) {
		g.acts = 60
		p.Steps[last].Acts = append(p.Steps[last].Acts, g.section(true))
	}
}

// holds reports whether a program ends in a critical section. Others may wait for
// that: it must not wait for others.
func (p Program) holds() bool {
	acts := p.Steps[len(p.Steps)-1].Acts
	return len(acts) > 0 && acts[len(acts)-1].Holds
}
