package sim_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

// account is an entity that holds money. Changes counts the calls of Set.
type account struct {
	Balance int
	Changes int
}

var errOverdrawn = errors.New("the account would be overdrawn")

func (a *account) Read(ctx *durable.EntityContext, _ durable.Void) (int, error) {
	time.Sleep(5 * time.Millisecond)
	return a.Balance, ctx.Err()
}

func (a *account) Set(ctx *durable.EntityContext, to int) (durable.Void, error) {
	time.Sleep(10 * time.Millisecond)
	a.Balance = to
	a.Changes++
	if to < -overdraft {
		return durable.Void{}, errOverdrawn
	}
	return durable.Void{}, ctx.Err()
}

const (
	accounts  = 60
	overdraft = 500
)

// round is the input of a teller: a range of numbered transfers.
type round struct {
	Teller, Next, End int
	Refused           int // refused transfers of earlier generations
}

var bankSize = flag.Int("sim.transfers", 0, "number of transfers on the embedded hub; 0 means the usual number")

// transfers is the number of transfers before a teller continues as new.
const transfers = 10

// tell transfers random amounts. It relies on locks between reading and writing the balances.
func tell(ctx *durable.Context, in round) (int, error) {
	for range min(transfers, in.End-in.Next) {
		moved, err := transfer(ctx, in.Teller*31+in.Next*977)
		if err != nil {
			return 0, err
		}
		if in.Next++; !moved {
			in.Refused++
		}
	}
	if in.Next < in.End {
		return durable.ContinueAsNew(ctx, tell, in)
	}
	return in.Refused, nil
}

func transfer(ctx *durable.Context, n int) (moved bool, err error) {
	h := uint64(n) * 0x9E3779B97F4A7C15
	key := func(i uint64) durable.EntityKey[account] { return durable.EntityKey[account](fmt.Sprint(i % accounts)) }
	from, to, amount := key(h>>8), key(h>>8+1+h>>32%(accounts-1)), int(h>>48%200)
	unlock := durable.LockEntities(ctx, from, to)
	defer unlock()
	balances, err := durable.AwaitAll(
		ctx,
		durable.CallEntity(ctx, from, (*account).Read, durable.Void{}), durable.CallEntity(ctx, to, (*account).Read, durable.Void{}),
	)
	if err != nil {
		return false, err
	}
	if _, err := durable.CallEntity(ctx, from, (*account).Set, balances[0]-amount).Await(); errors.Is(err, errOverdrawn) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	_, err = durable.CallEntity(ctx, to, (*account).Set, balances[1]+amount).Await()
	return true, err
}

var bank = []*durable.Registration{
	durable.Orchestrator("Tell", tell), durable.ErrorValue("Overdrawn", errOverdrawn),
	durable.Entity("account", durable.Op("Read", (*account).Read), durable.Op("Set", (*account).Set)),
}

// While workers are killed, the total of all accounts stays 0, and no transfer is repeated or executed by
// half.
func TestBank_KeepsItsTotalWhileWorkersAreKilled(t *testing.T) {
	testshare.SkipInShortRaceRuns(t)
	size := cmp.Or(*bankSize, usual().bankTransfers)
	for _, c := range []struct {
		provider       string
		tellers, total int
		every          time.Duration
	}{{"embedded", 20, size, 500 * time.Millisecond}, {"azure", 10, min(size, 100), 10 * time.Second}} {
		t.Run(c.provider, func(t *testing.T) {
			testshare.SkipOtherShares(t)
			killed := withKills(t, c.provider, c.every, bank, func(h *hub) {
				refused := 0
				for _, n := range runAll(h, tell, c.tellers, func(i int) round {
					return round{Teller: i, Next: i * c.total / c.tellers, End: (i + 1) * c.total / c.tellers}
				}) {
					refused += n
				}
				sum, changes := 0, 0
				for i := range accounts {
					a := readEntity[account](h, fmt.Sprint(i))
					sum, changes = sum+a.Balance, changes+a.Changes
				}
				if sum != 0 || changes != 2*(c.total-refused) || refused == c.total {
					h.t.Errorf("the total is %d after %d changes, want 0; %d transfers, %d of them refused", sum, changes, c.total, refused)
				}
				h.t.Logf("%d transfers, of which %d were refused", c.total, refused)
			})
			if killed < 3 {
				t.Errorf("%d workers were killed, want at least 3", killed)
			}
		})
	}
}

// journal is an entity that records the numbers that it receives, by sender.
type journal map[durable.InstanceID][]int

func (j *journal) Write(ctx *durable.EntityContext, n int) (durable.Void, error) {
	if *j == nil {
		*j = journal{}
	}
	time.Sleep(time.Millisecond)
	(*j)[ctx.Caller()] = append((*j)[ctx.Caller()], n)
	return durable.Void{}, ctx.Err()
}

const (
	dictators = 50
	dictated  = 20 // signals by each sender
)

// dictate signals the journal several times per episode.
func dictate(ctx *durable.Context, _ int) (durable.Void, error) {
	for n := range dictated {
		durable.SignalFrom(ctx, durable.EntityKey[journal]("j"), (*journal).Write, n)
		if n%7 == 6 {
			ctx.Sleep(3 * time.Second)
		}
	}
	return durable.Void{}, nil
}

// An entity receives 1,000 signals of 50 senders once, and each sender's signals in order.
func TestSignals_ArriveOnceAndInOrderWhileWorkersAreKilled(t *testing.T) {
	testshare.SkipInShortRaceRuns(t)
	functions := []*durable.Registration{durable.Orchestrator("Dictate", dictate), durable.Entity("journal", durable.Op("Write", (*journal).Write))}
	var want []int
	for n := range dictated {
		want = append(want, n)
	}
	for _, provider := range []string{"embedded", "azure"} {
		t.Run(provider, func(t *testing.T) {
			testshare.SkipOtherShares(t)
			withKills(t, provider, 3*time.Second, functions, func(h *hub) {
				runAll(h, dictate, dictators, func(i int) int { return i })
				heard := readEntity[journal](h, "j")
				if len(heard) != dictators {
					h.t.Errorf("the journal has %d senders, want %d", len(heard), dictators)
				}
				for sender, got := range heard {
					if !slices.Equal(got, want) {
						h.t.Errorf("signals of %s are %v; want 0 to 19 in order", sender, got)
					}
				}
			})
		})
	}
}

// fork is an entity that one philosopher holds at a time.
type fork struct {
	Holder int
	Meals  int
}

var errTaken = errors.New("the fork is taken")

func (f *fork) Take(_ *durable.EntityContext, who int) (durable.Void, error) {
	if f.Holder != 0 {
		return durable.Void{}, fmt.Errorf("%w by %d", errTaken, f.Holder)
	}
	f.Holder = who
	return durable.Void{}, nil
}

func (f *fork) Put(_ *durable.EntityContext, who int) (durable.Void, error) {
	if f.Holder != who {
		return durable.Void{}, fmt.Errorf("%d puts down the fork of %d", who, f.Holder)
	}
	f.Holder = 0
	f.Meals++
	return durable.Void{}, nil
}

const (
	philosophers = 5
	courses      = 5
)

// dine takes the right fork and then the left one, as all philosophers do.
func dine(ctx *durable.Context, me int) (durable.Void, error) {
	right, left := durable.EntityKey[fork](fmt.Sprint(me)), durable.EntityKey[fork](fmt.Sprint((me+1)%philosophers))
	eat := func() error {
		unlock := durable.LockEntities(ctx, right, left)
		defer unlock()
		for _, f := range []durable.EntityKey[fork]{right, left} {
			if _, err := durable.CallEntity(ctx, f, (*fork).Take, me+1).Await(); err != nil {
				return err
			}
		}
		ctx.Sleep(time.Second)
		_, err := durable.AwaitAll(ctx, durable.CallEntity(ctx, right, (*fork).Put, me+1), durable.CallEntity(ctx, left, (*fork).Put, me+1))
		return err
	}
	for range courses {
		if err := eat(); err != nil {
			return durable.Void{}, err
		}
	}
	return durable.Void{}, nil
}

// All philosophers eat all their courses.
func TestPhilosophers_DineWhileWorkersAreKilled(t *testing.T) {
	testshare.SkipInShortRaceRuns(t)
	functions := []*durable.Registration{
		durable.Orchestrator("Dine", dine),
		durable.Entity("fork", durable.Op("Take", (*fork).Take), durable.Op("Put", (*fork).Put)),
	}
	for _, provider := range []string{"embedded", "azure"} {
		t.Run(provider, func(t *testing.T) {
			testshare.SkipOtherShares(t)
			withKills(t, provider, 8*time.Second, functions, func(h *hub) {
				runAll(h, dine, philosophers, func(i int) int { return i })
				for i := range philosophers {
					if f := readEntity[fork](h, fmt.Sprint(i)); f.Holder != 0 || f.Meals != 2*courses {
						h.t.Errorf("fork %d is %+v, want it to have served %d meals", i, f, 2*courses)
					}
				}
			})
		})
	}
}

var quiet = slog.New(slog.DiscardHandler)
