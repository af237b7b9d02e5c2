package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A Ledger is the state of the entities of an app: it writes down what it was
// told, in the order in which it was, until it is closed.
type Ledger struct {
	Balance int
	Entries []Entry
	Pad     string `json:",omitempty"` // of the last order
}

// An Order is what a ledger is told.
type Order struct {
	From    string // who gives it: the path of an orchestration, or a client
	Number  int    // grows with each order of From
	Section string `json:",omitempty"` // the critical section that it is part of
	Amount  int    `json:",omitempty"`
	Value   int    `json:",omitempty"` // what the balance is set to

	To      string        `json:",omitempty"` // the ledger that is told as well
	Wait    time.Duration `json:",omitempty"` // when
	Program int           `json:",omitempty"` // what is started
	Batch   []Entry       `json:",omitempty"` // what a ledger wrote until it was closed
	Pad     string        `json:",omitempty"` // makes it large
}

// padded returns an order of an app.
func (o Order) padded(a *App) Order {
	o.Pad = a.padded("")
	return o
}

func (o Order) key() orderKey { return orderKey{o.From, o.Number} }

// An orderKey tells an order from others.
type orderKey struct {
	from   string
	number int
}

func (k orderKey) String() string { return fmt.Sprintf("%s#%d", k.from, k.number) }

// An Entry is an order that was carried out.
type Entry struct {
	Order
	Op      string
	Caller  string `json:",omitempty"` // the instance that sent it
	Balance int    // after it
}

// String says what was carried out.
func (e Entry) String() string {
	return fmt.Sprintf("%s of order %v, amount %d, section %q, sent by %q", e.Op, e.key(), e.Amount, e.Section, e.Caller)
}

// A Receipt is what a ledger answers to an order.
type Receipt struct {
	From    string
	Number  int
	Ledger  string
	Op      string
	Place   int // of the last entry, since the ledger was closed last
	Balance int
	Pad     string `json:",omitempty"` // that of the order
}

// An operation is what ledgers can be told to do.
type operation = durable.EntityOperation[Order, Receipt]

// The operations of ledgers.
const (
	addOp     operation = "add"
	setOp     operation = "Set"
	readOp    operation = "read"
	forwardOp operation = "forward" // and tell another ledger
	startOp   operation = "start"   // and start an orchestration
	closeOp   operation = "close"   // give all that was written to the archive, and be deleted
	refuseOp  operation = "refuse"  // do much, and fail
	archiveOp operation = "archive"
)

// ledgerNamed returns the entity with the given key. Case does not matter in its
// name.
func ledgerNamed(key string) durable.EntityID { return durable.EntityID{Name: "Ledger", Key: key} }

// archiveOf returns the key of the ledger that gets what another one wrote.
func archiveOf(key string) string { return "archive of " + key }

var errRefused = errors.New("the ledger refuses")

// ledgers returns the entities of apps. Take is called by whatever one does, and
// takes the time that it takes.
func ledgers(take func(context.Context, Order) error) *durable.Function {
	timed := func(l *Ledger, ctx *durable.EntityContext, o Order, do func(*Ledger, *durable.EntityContext, Order) error) (Receipt, error) {
		err := errors.Join(take(ctx, o), do(l, ctx, o))
		return Receipt{From: o.From, Number: o.Number, Ledger: ctx.ID().Key, Op: ctx.Operation(), Place: len(l.Entries) - 1, Balance: l.Balance, Pad: o.Pad}, err
	}
	return durable.Entity(
		"ledger",
		durable.Op(string(addOp), func(l *Ledger, ctx *durable.EntityContext, o Order) (Receipt, error) {
			return timed(l, ctx, o, (*Ledger).add)
		}),
		durable.Op(strings.ToLower(string(setOp)), func(l *Ledger, ctx *durable.EntityContext, o Order) (Receipt, error) {
			return timed(l, ctx, o, (*Ledger).set)
		}),
		durable.Op(string(readOp), func(l *Ledger, ctx *durable.EntityContext, o Order) (Receipt, error) {
			return timed(l, ctx, o, func(*Ledger, *durable.EntityContext, Order) error { return nil })
		}),
		durable.Op(string(forwardOp), func(l *Ledger, ctx *durable.EntityContext, o Order) (Receipt, error) {
			return timed(l, ctx, o, (*Ledger).forward)
		}),
		durable.Op(string(startOp), func(l *Ledger, ctx *durable.EntityContext, o Order) (Receipt, error) {
			return timed(l, ctx, o, (*Ledger).start)
		}),
		durable.Op(string(closeOp), func(l *Ledger, ctx *durable.EntityContext, o Order) (Receipt, error) {
			return timed(l, ctx, o, (*Ledger).close)
		}),
		durable.Op(string(refuseOp), func(l *Ledger, ctx *durable.EntityContext, o Order) (Receipt, error) {
			return timed(l, ctx, o, (*Ledger).refuse)
		}),
		durable.Op(string(archiveOp), func(l *Ledger, ctx *durable.EntityContext, o Order) (Receipt, error) {
			return timed(l, ctx, o, (*Ledger).archive)
		}),
	)
}

func (l *Ledger) write(ctx *durable.EntityContext, o Order) {
	l.Balance, l.Pad = l.Balance+o.Amount, o.Pad
	o.Pad = ""
	l.Entries = append(l.Entries, Entry{o, ctx.Operation(), string(ctx.Caller()), l.Balance})
}

func (l *Ledger) add(ctx *durable.EntityContext, o Order) error {
	l.write(ctx, o)
	return nil
}

// set sets the balance to a value that its sender has worked out.
func (l *Ledger) set(ctx *durable.EntityContext, o Order) error {
	l.Balance = o.Value - o.Amount
	l.write(ctx, o)
	return nil
}

func (l *Ledger) forward(ctx *durable.EntityContext, o Order) error {
	l.write(ctx, o)
	told := Order{From: o.From, Number: o.Number, Amount: o.Amount, Wait: o.Wait, Pad: o.Pad}
	addOp.SignalFrom(ctx, ledgerNamed(o.To), told, durable.SignalAfter(o.Wait))
	return nil
}

func (l *Ledger) start(ctx *durable.EntityContext, o Order) error {
	l.write(ctx, o)
	id := startedBy(o.key())
	_, err := child.StartFrom(ctx, Input{Path: id, Program: o.Program, Named: true, Pad: o.Pad}, durable.InstanceID(id))
	return err
}

// startedBy returns the ID of the orchestration that is started by an order.
func startedBy(k orderKey) string { return fmt.Sprintf("by.%s.%d", k.from, k.number) }

func (l *Ledger) close(ctx *durable.EntityContext, o Order) error {
	l.write(ctx, o)
	archiveOp.SignalFrom(ctx, ledgerNamed(archiveOf(ctx.ID().Key)), Order{From: o.From, Number: o.Number, Batch: l.Entries, Pad: o.Pad})
	ctx.Delete()
	return nil
}

// refuse fails or panics after it has done all that must not count.
func (l *Ledger) refuse(ctx *durable.EntityContext, o Order) error {
	l.write(ctx, o)
	addOp.SignalFrom(ctx, ledgerNamed(o.To), o)
	id := durable.InstanceID(refused + startedBy(o.key()))
	if _, err := child.StartFrom(ctx, Input{Path: string(id), Program: o.Program}, id); err != nil {
		return err
	}
	if o.Amount%2 == 0 {
		panic(fmt.Sprintf("%v %v", errRefused, o.key()))
	}
	if o.Amount%3 == 0 {
		ctx.Delete()
	}
	return fmt.Errorf("%w %v", errRefused, o.key())
}

// refused begins the IDs of orchestrations that are never started.
const refused = "refused."

func (l *Ledger) archive(ctx *durable.EntityContext, o Order) error {
	l.write(ctx, o)
	return nil
}

// isOwnOf reports whether an entry is of the instance that gives the orders of a
// section.
func (e Entry) isOwnOf(section string) bool {
	owner, _, _ := strings.Cut(e.From, "~")
	return !history.IsEntity(e.Caller) && strings.HasPrefix(section, "section "+owner+"#")
}
