package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// The orders of an app are known, and so is the order in which each sender sends its own. The interleaving of
// different senders is unknown. The oracle therefore checks the entries of the ledgers against the set of
// orders, and for consistency.

// book holds the expected entries of a ledger.
type book map[bookKey]*expectedEntry

type bookKey struct {
	orderKey
	op operation
}

type expectedEntry struct {
	order     Order
	forwarded bool  // sent by another ledger
	late      bool  // may arrive at any time
	optional  bool  // may be missing
	places    []int // indexes in the log
}

// orders holds all orders of an app.
type orders struct {
	app     *App
	books   map[string]book
	started []Input // orchestrations that ledgers start
}

func (e *orders) expect(ledger string, op operation, x expectedEntry) {
	key := bookKey{x.order.key(), op}
	switch op {
	case refuseOp:
		return
	case forwardOp:
		told := x
		told.forwarded, told.late = true, x.late || x.order.Wait > 0
		e.expect(x.order.To, addOp, told)
	case closeOp:
		e.expect(archiveOf(ledger), archiveOp, expectedEntry{order: Order{From: x.order.From, Number: x.order.Number}, forwarded: true, optional: x.optional})
	}
	e.books[ledger][key] = &x
}

// program adds the orders of a program. optional means that the program may not reach them.
func (e *orders) program(in Input, optional bool) {
	p := e.app.Programs[in.Program]
	for in.Round = range p.Rounds + 1 {
		for i, s := range p.Steps {
			if s.Kind == ChildStep || s.Kind == ChildrenStep {
				for n := range s.Count {
					e.program(Input{Path: childPath(in.Path, in.Round, i, n), Program: s.Child}, optional)
				}
			}
			e.acts(in, i, in.Path, "", s.Acts, optional)
		}
	}
}

func (e *orders) acts(in Input, step int, from, section string, acts []Act, optional bool) {
	for _, a := range acts {
		order := func(sub int) Order {
			return Order{From: from, Number: number(in.Round, step, a.Index, sub), Section: section, Amount: a.Amount}
		}
		x := expectedEntry{order: order(0), optional: optional}
		switch a.Kind {
		case CallAct:
			e.expect(a.Ledger, addOp, x)
		case SignalAct:
			x.order.Section = ""
			e.expect(a.Ledger, addOp, x)
		case DelayedAct:
			x.late = true
			e.expect(a.Ledger, addOp, x)
		case ForwardAct, LaterAct:
			x.order.To, x.order.Wait = a.To, a.Wait
			e.expect(a.Ledger, forwardOp, x)
		case CloseAct, ClosedAct:
			x.order.Amount = 0
			e.expect(a.Ledger, closeOp, x)
		case StartAct:
			e.expect(a.Ledger, startOp, x)
			started := Input{Path: startedBy(x.order.key()), Program: a.Child}
			e.started = append(e.started, started)
			e.program(started, optional)
		case FanAct:
			for i, key := range a.Keys {
				e.expect(key, addOp, expectedEntry{order: order(i), optional: optional})
			}
		case BranchAct:
			for n := range 2 {
				e.acts(in, step, branchOf(from, n), section, a.branch(n), optional)
			}
		case SectionAct:
			e.acts(in, step, from, sectionOf(x.order.key()), a.Acts, optional)
		case TransferAct:
			less, more := order(2), order(3)
			less.Amount = -a.Amount
			e.expect(a.Ledger, setOp, expectedEntry{order: less, optional: optional})
			e.expect(a.To, setOp, expectedEntry{order: more, optional: optional})
		case RefuseAct, RefusedAct, RestAct, WorkAct, NeverAct:
		}
	}
}

// check returns the faults in the entries of all ledgers. logs holds the entries by ledger. Each log has one
// batch for each time that the ledger was closed, and a last batch with the entries since then.
func (e *orders) check(logs map[string][][]Entry, receipts map[orderKey]map[string]Receipt) (faults []string) {
	for _, key := range slices.Sorted(maps.Keys(e.books)) {
		for _, what := range slices.Concat(
			e.checkBalances(logs[key]), e.books[key].check(slices.Concat(logs[key]...)), e.checkSections(slices.Concat(logs[key]...)),
		) {
			faults = append(faults, fmt.Sprintf("ledger %q: %s", key, what))
		}
	}
	faults = append(faults, e.checkForwards(logs)...)
	for _, key := range slices.SortedFunc(maps.Keys(receipts), compareKeys) {
		for _, r := range receipts[key] {
			if what := checkReceipt(r, logs[r.Ledger]); what != "" {
				faults = append(faults, fmt.Sprintf("order %v got the receipt %+v: %s", key, r, what))
			}
		}
	}
	return faults
}

func compareKeys(a, b orderKey) int {
	return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.number, b.number))
}

// checkBalances returns the entries whose balance does not follow from the previous entry and the ordered
// amount.
func (e *orders) checkBalances(batches [][]Entry) (faults []string) {
	for i, batch := range batches {
		balance := 0
		for n, entry := range batch {
			if balance += entry.Amount; entry.Balance != balance && !e.mayBeUnlocked(entry.Section) && !explainsBalance(batch[:n], entry, balance-entry.Balance) {
				faults = append(faults, fmt.Sprintf("after entry %d of %d, order %v, the balance is %d, want %d", n, len(batch), entry.key(), entry.Balance, balance))
			}
			balance = entry.Balance
			if closes := i < len(batches)-1 && n == len(batch)-1; closes != (entry.Op == string(closeOp)) {
				faults = append(faults, fmt.Sprintf("entry %d of %d, order %v, is %s; the last entry of a closed batch, and no other, must be close", n, len(batch), entry.key(), entry.Op))
			}
		}
	}
	return faults
}

// explainsBalance reports whether earlier entries explain a difference in the balance of an entry in a
// critical section. Delayed orders of the same instance, or orders of an earlier execution, also run inside
// the section. They may run after the instance has read the balance on which the entry is based. The function
// tries the entries directly before entry.
func explainsBalance(before []Entry, entry Entry, sum int) bool {
	for _, e := range slices.Backward(before) {
		if entry.Op != string(setOp) || !e.isOwnOf(entry.Section) || e.Section != "" {
			break
		}
		if sum -= e.Amount; sum == 0 {
			return true
		}
	}
	return false
}

// check returns the orders that were lost, executed twice, never sent, or executed before an earlier order of
// the same sender.
func (b book) check(log []Entry) (faults []string) {
	last := map[orderKey]int{} // by sender and round; as in .NET, the executions of an instance are not ordered
	for place, entry := range log {
		x := b[bookKey{entry.key(), operation(entry.Op)}]
		switch {
		case x == nil:
			faults = append(faults, fmt.Sprintf("entry %d, %s of order %v, was not expected", place, entry.Op, entry.key()))
			continue
		case x.order.Amount != entry.Amount || x.order.Section != entry.Section || x.forwarded != history.IsEntity(entry.Caller):
			faults = append(faults, fmt.Sprintf("entry %d is %v, want amount %d, section %q, sent by a ledger: %v", place, entry, x.order.Amount, x.order.Section, x.forwarded))
		}
		x.places = append(x.places, place)
		if x.late || x.forwarded {
			continue
		}
		sender := orderKey{entry.From, roundOf(entry.Number)}
		if before, ok := last[sender]; ok && before >= entry.Number {
			faults = append(faults, fmt.Sprintf("entry %d, order %v, follows order %d of the same sender", place, entry.key(), before))
		}
		last[sender] = entry.Number
	}
	for _, key := range slices.SortedFunc(maps.Keys(b), func(a, b bookKey) int { return compareKeys(a.orderKey, b.orderKey) }) {
		x := b[key]
		if n := len(x.places); n > 1 || n == 0 && !x.optional {
			faults = append(faults, fmt.Sprintf("%s of order %v was executed %d times, as entries %v", key.op, key.orderKey, n, x.places))
		}
	}
	return faults
}

// checkSections returns the entries of other senders in the middle of a critical section.
func (e *orders) checkSections(log []Entry) (faults []string) {
	over := map[string]bool{}
	now := ""
	for place, entry := range log {
		if entry.Section == now || entry.Section == "" && entry.isOwnOf(now) {
			continue
		}
		if over[now] = true; entry.Section != "" && over[entry.Section] && !e.mayBeUnlocked(entry.Section) {
			faults = append(faults, fmt.Sprintf("entry %d, order %v, continues %q after entries of other senders", place, entry.key(), entry.Section))
		}
		now = entry.Section
	}
	return faults
}

// mayBeUnlocked reports whether the locks of a critical section may be released early, because its instance
// is terminated. As in .NET, the episode that ends the instance sends the releases before it is committed. If
// the commit fails, the instance continues with earlier messages until it is terminated again.
func (e *orders) mayBeUnlocked(section string) bool {
	return slices.ContainsFunc(e.app.Instances, func(in Instance) bool {
		return in.Terminated > 0 && strings.HasPrefix(section, "section "+in.ID+"#")
	})
}

// checkForwards returns the ledgers that received forwarded orders in another order than the forwarding
// ledger sent them.
func (e *orders) checkForwards(logs map[string][][]Entry) (faults []string) {
	for _, from := range e.app.Ledgers {
		sent := map[string][]orderKey{}
		for _, entry := range slices.Concat(logs[from]...) {
			switch {
			case entry.Op == string(closeOp):
				sent[archiveOf(from)] = append(sent[archiveOf(from)], entry.key())
			case entry.Op == string(forwardOp) && entry.Wait == 0:
				sent[entry.To] = append(sent[entry.To], entry.key())
			}
		}
		for _, to := range slices.Sorted(maps.Keys(e.books)) {
			var heard []orderKey
			for _, entry := range slices.Concat(logs[to]...) {
				if entry.Caller == ledgerNamed(from).String() && entry.Wait == 0 {
					heard = append(heard, entry.key())
				}
			}
			if !slices.Equal(heard, sent[to]) {
				faults = append(faults, fmt.Sprintf("ledger %q forwarded %[3]v to %[2]q, which received %[4]v", from, to, sent[to], heard))
			}
		}
	}
	return faults
}

// checkReceipt compares a receipt with the entries of its ledger. It returns the fault, or "".
func checkReceipt(r Receipt, batches [][]Entry) string {
	for _, batch := range batches {
		switch {
		case r.Op == string(readOp):
			if r.Place < 0 && r.Balance == 0 || r.Place >= 0 && r.Place < len(batch) && batch[r.Place].Balance == r.Balance {
				return ""
			}
		case r.Place >= 0 && r.Place < len(batch):
			if e := batch[r.Place]; e.key() == (orderKey{r.From, r.Number}) && e.Op == r.Op && e.Balance == r.Balance {
				return ""
			}
		}
	}
	return "no batch has a matching entry at this place"
}
