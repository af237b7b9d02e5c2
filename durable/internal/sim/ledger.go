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

// Ledger is the state of the app's entities. It records the orders that it receives, in order, until it is
// closed.
type Ledger struct {
	Balance int
	Entries []Entry
	Pad     string `json:",omitempty"` // padding of the last order
}

// Order is the argument of a ledger operation.
type Order struct {
	From    string // sender: the path of an orchestration, or a client
	Number  int    // increases with each order of From
	Section string `json:",omitempty"` // name of the surrounding critical section
	Amount  int    `json:",omitempty"`
	Value   int    `json:",omitempty"` // new balance of a Set

	To      string        `json:",omitempty"` // ledger that the order is forwarded to
	Wait    time.Duration `json:",omitempty"` // delay of the signal, or of the forwarded order
	Program int           `json:",omitempty"` // program to start
	Batch   []Entry       `json:",omitempty"` // entries of a ledger that was closed
	Pad     string        `json:",omitempty"` // makes the order large
}

// padded adds the padding of a large app.
func (o Order) padded(a *App) Order {
	o.Pad = a.padded("")
	return o
}

func (o Order) key() orderKey { return orderKey{o.From, o.Number} }

// orderKey identifies an order.
type orderKey struct {
	from   string
	number int
}

func (k orderKey) String() string { return fmt.Sprintf("%s#%d", k.from, k.number) }

// Entry is the record of an executed order.
type Entry struct {
	Order
	Op      string
	Caller  string `json:",omitempty"` // instance that sent the order
	Balance int    // after the order
}

// String describes the entry.
func (e Entry) String() string {
	return fmt.Sprintf("%s of order %v, amount %d, section %q, sent by %q", e.Op, e.key(), e.Amount, e.Section, e.Caller)
}

// Receipt is the result of a ledger operation.
type Receipt struct {
	From    string
	Number  int
	Ledger  string
	Op      string
	Place   int // index of the last entry since the ledger was last closed
	Balance int
	Pad     string `json:",omitempty"` // padding of the order
}

// operation is an operation of a ledger.
type operation = durable.EntityOperation[Order, Receipt]

// Operations of ledgers.
const (
	addOp     operation = "add"
	setOp     operation = "Set"
	readOp    operation = "read"
	forwardOp operation = "forward" // add, and signal another ledger
	startOp   operation = "start"   // add, and start an orchestration
	closeOp   operation = "close"   // send all entries to the archive, and delete the ledger
	refuseOp  operation = "refuse"  // perform actions that must have no effect, and fail
	archiveOp operation = "archive"
)

// ledgerNamed returns the entity with the given key. Entity names are case-insensitive.
func ledgerNamed(key string) durable.EntityID { return durable.EntityID{Name: "Ledger", Key: key} }

// archiveOf returns the key of the ledger that archives the entries of another one.
func archiveOf(key string) string { return "archive of " + key }

var errRefused = errors.New("the ledger refuses")

// ledgers returns the app's entity. Every operation calls take, which determines its duration.
func ledgers(take func(context.Context, Order) error) *durable.Registration {
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

// set sets the balance to a value that the sender has computed.
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

// startedBy returns the ID of the orchestration that an order starts.
func startedBy(k orderKey) string { return fmt.Sprintf("by.%s.%d", k.from, k.number) }

func (l *Ledger) close(ctx *durable.EntityContext, o Order) error {
	l.write(ctx, o)
	archiveOp.SignalFrom(ctx, ledgerNamed(archiveOf(ctx.ID().Key)), Order{From: o.From, Number: o.Number, Batch: l.Entries, Pad: o.Pad})
	ctx.Delete()
	return nil
}

// refuse performs actions that must have no effect, and then fails or panics.
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

// refused is the prefix of the IDs of orchestrations that must never start.
const refused = "refused."

func (l *Ledger) archive(ctx *durable.EntityContext, o Order) error {
	l.write(ctx, o)
	return nil
}

// isOwnOf reports whether an entry belongs to the instance that executes section.
func (e Entry) isOwnOf(section string) bool {
	owner, _, _ := strings.Cut(e.From, "~")
	return !history.IsEntity(e.Caller) && strings.HasPrefix(section, "section "+owner+"#")
}
