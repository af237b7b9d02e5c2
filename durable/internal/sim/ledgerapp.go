package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// ClientSignal is a signal of a client to a ledger.
type ClientSignal struct {
	Ledger string
	Op     string
	Order  Order
	At     time.Duration
	// Cut is the time after which the client gives up, without knowing whether the signal was sent. Zero
	// means never.
	Cut time.Duration
}

// ledgerKeys are similar keys that a hub must distinguish.
var ledgerKeys = []string{"a", "A", "", "b@c", "d e"}

// NewLedgerApp returns a random app with entities.
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

// The kinds of acts that can occur outside of sections, in branches and in sections.
var (
	callKinds   = []ActKind{CallAct, CallAct, RefuseAct, CloseAct, FanAct, SignalAct, SignalAct, DelayedAct, RefusedAct, ForwardAct, ForwardAct, LaterAct, ClosedAct}
	branchKinds = []ActKind{CallAct, SignalAct, SignalAct, ForwardAct, WorkAct, RestAct}
	lockedKinds = []ActKind{CallAct, RefuseAct, CloseAct, FanAct, TransferAct, TransferAct, TransferAct, RestAct, WorkAct}
)
