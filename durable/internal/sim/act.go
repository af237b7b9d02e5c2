package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// ActKind is the kind of an act.
type ActKind int

// Kinds of acts. Acts up to FanAct can occur inside and outside of critical sections. TransferAct needs a
// critical section. SignalAct and DelayedAct must not address a locked ledger. See also callKinds,
// branchKinds and lockedKinds.
const (
	CallAct     ActKind = iota // call add and check the receipt
	RefuseAct                  // call refuse, which fails
	CloseAct                   // call close
	FanAct                     // call add on all ledgers of Keys concurrently
	SignalAct                  // signal add
	DelayedAct                 // signal add with the delay Wait
	RefusedAct                 // signal refuse, which fails
	ForwardAct                 // signal forward: the ledger signals another one
	LaterAct                   // signal forward with the delay Wait
	StartAct                   // signal start: the ledger starts an orchestration
	ClosedAct                  // signal close
	BranchAct                  // two concurrent branches that signal and call
	SectionAct                 // lock all ledgers of Keys and execute Acts
	TransferAct                // read two ledgers and set both
	RestAct                    // a timer
	WorkAct                    // an activity
	NeverAct                   // wait forever
)

// Act is one operation of an orchestrator on ledgers.
type Act struct {
	Kind   ActKind
	Index  int // index in its step
	Ledger string
	To     string // the other ledger of a forward or a transfer
	Keys   []string
	Amount int
	Wait   time.Duration
	Child  int // program of the orchestration to start
	Acts   []Act
	// Holds keeps the locks of a section until the execution ends.
	Holds bool
}

// subs is the maximum number of orders of one act.
const subs = 10

// actor executes the acts of a step.
type actor struct {
	x       *execution
	step    int
	from    string
	section string
}

func (p *actor) all(acts []Act) error {
	for _, a := range acts {
		if err := p.act(a); err != nil {
			return fmt.Errorf("act %d of step %d: %w", a.Index, p.step, err)
		}
	}
	return nil
}

// number returns the number of an order.
func number(round, step, act, sub int) int { return ((round*100+step)*100+act)*subs + sub }

// roundOf returns the round of an order.
func roundOf(number int) int { return number / (100 * 100 * subs) }

func (p *actor) order(a Act, sub int) Order {
	return Order{From: p.from, Number: number(p.x.in.Round, p.step, a.Index, sub), Section: p.section, Amount: a.Amount}.padded(p.x.app)
}

func (p *actor) act(a Act) error {
	ctx, at := p.x.ctx, ledgerNamed(a.Ledger)
	o := p.order(a, 0)
	switch a.Kind {
	case CallAct:
		return p.call(addOp, a.Ledger, o)
	case RefuseAct:
		return p.refused(a)
	case CloseAct:
		o.Amount = 0
		return p.call(closeOp, a.Ledger, o)
	case FanAct:
		return p.fan(a)
	case SignalAct:
		o.Section = "" // the ledger is not locked
		addOp.SignalFrom(ctx, at, o)
	case DelayedAct:
		o.Wait = a.Wait
		addOp.SignalFrom(ctx, at, o, durable.SignalAfter(a.Wait))
	case RefusedAct:
		o.To, o.Program = a.To, a.Child
		refuseOp.SignalFrom(ctx, at, o)
	case ForwardAct, LaterAct:
		o.To, o.Wait = a.To, a.Wait
		forwardOp.SignalFrom(ctx, at, o)
	case StartAct:
		o.Program = a.Child
		startOp.SignalFrom(ctx, at, o)
	case ClosedAct:
		o.Amount = 0
		closeOp.SignalFrom(ctx, at, o)
	case BranchAct:
		return p.branches(a)
	case SectionAct:
		return p.enter(a)
	case TransferAct:
		return p.transfer(a)
	case RestAct:
		ctx.Sleep(a.Wait)
		return nil
	case WorkAct:
		return p.work(a)
	case NeverAct:
		_, err := durable.Event[string]("never").Wait(ctx).Await()
		return err
	}
	return nil
}

func (p *actor) work(a Act) error {
	t := p.x.task(p.step, a.Index)
	t.Key = fmt.Sprintf("%s/%d/%d/%d", p.from, p.x.in.Round, p.step, a.Index) // unique for branches, too
	result, err := work.Call(p.x.ctx, t).Await()
	if err == nil && result != t.Result() {
		return fmt.Errorf("activity %s returned %s", t.Key, result)
	}
	return err
}

// call calls an operation and checks that the receipt belongs to the order.
func (p *actor) call(op operation, ledger string, o Order) error {
	_, err := p.answer(op.Call(p.x.ctx, ledgerNamed(ledger), o), ledger, o)
	return err
}

func (p *actor) answer(t *durable.Task[Receipt], ledger string, o Order) (Receipt, error) {
	r, err := t.Await()
	if err != nil {
		return r, err
	}
	if r.From != o.From || r.Number != o.Number || r.Ledger != ledger {
		return r, fmt.Errorf("order %v to %q got the receipt %+v", o.key(), ledger, r)
	}
	p.x.app.received(r)
	return r, nil
}

// refused calls an operation that must fail.
func (p *actor) refused(a Act) error {
	o := p.order(a, 0)
	o.To, o.Program = a.To, a.Child
	_, err := refuseOp.Call(p.x.ctx, ledgerNamed(a.Ledger), o).Await()
	failed, ok := errors.AsType[*durable.TaskFailedError](err)
	if !ok || !strings.Contains(failed.Error(), fmt.Sprint(errRefused, " ", o.key())) {
		return errors.Join(fmt.Errorf("order %v to %q did not fail with the expected error", o.key(), a.Ledger), err)
	}
	return nil
}

func (p *actor) fan(a Act) error {
	tasks := make([]*durable.Task[Receipt], len(a.Keys))
	for i, key := range a.Keys {
		tasks[i] = addOp.Call(p.x.ctx, ledgerNamed(key), p.order(a, i))
	}
	for i, t := range tasks {
		if _, err := p.answer(t, a.Keys[i], p.order(a, i)); err != nil {
			return err
		}
	}
	return nil
}

// branches runs two sequences of orders concurrently. Each has its own sender name.
func (p *actor) branches(a Act) error {
	branch := func(n int) *durable.Task[string] {
		q := &actor{x: p.x, step: p.step, from: branchOf(p.from, n)}
		return durable.Go(p.x.ctx, func() (string, error) { return "", q.all(a.branch(n)) })
	}
	_, err := durable.AwaitAll(p.x.ctx, branch(0), branch(1))
	return err
}

func branchOf(from string, n int) string { return fmt.Sprintf("%s~%d", from, n) }

// branch returns the acts of branch n.
func (a Act) branch(n int) []Act { return a.Acts[n*len(a.Acts)/2 : (n+1)*len(a.Acts)/2] }

// enter locks ledgers and executes the acts of a section. It unlocks them unless the section holds its locks.
func (p *actor) enter(a Act) error {
	ids := make([]durable.AnyEntity, len(a.Keys))
	for i, key := range a.Keys {
		ids[i] = ledgerNamed(key)
	}
	unlock := durable.LockEntities(p.x.ctx, ids...)
	if got, _ := p.x.ctx.CriticalSection(); len(got) != len(slices.Compact(slices.Sorted(slices.Values(a.Keys)))) {
		return fmt.Errorf("locked entities are %v, want %q", got, a.Keys)
	}
	inside := *p
	inside.section = sectionOf(p.order(a, 0).key())
	if err := inside.all(a.Acts); err != nil {
		return err
	}
	if !a.Holds {
		unlock()
	}
	return nil
}

// sectionOf returns the name of the section that begins with order k.
func sectionOf(k orderKey) string { return "section " + k.String() }

// transfer moves an amount from one ledger to another by reading and setting both. Only the locks make this
// atomic.
func (p *actor) transfer(a Act) error {
	from, err := p.answer(readOp.Call(p.x.ctx, ledgerNamed(a.Ledger), p.order(a, 0)), a.Ledger, p.order(a, 0))
	if err != nil {
		return err
	}
	to, err := p.answer(readOp.Call(p.x.ctx, ledgerNamed(a.To), p.order(a, 1)), a.To, p.order(a, 1))
	if err != nil {
		return err
	}
	if a.Wait > 0 {
		p.x.ctx.Sleep(a.Wait)
	}
	less, more := p.order(a, 2), p.order(a, 3)
	less.Amount, less.Value = -a.Amount, from.Balance-a.Amount
	more.Value = to.Balance + a.Amount
	if err := p.call(setOp, a.Ledger, less); err != nil {
		return err
	}
	return p.call(setOp, a.To, more)
}
