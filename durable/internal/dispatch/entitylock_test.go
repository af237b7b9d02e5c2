package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

// A transfer moves an amount between two accounts.
type transfer struct{ From, To, Amount int }

func account(n int) entity.ID { return counterID(fmt.Sprint("account ", n)) }

// transferMoney reads both accounts and then writes both. Only their locks protect the total.
func transferMoney(x *replay.Execution, input *string) (*string, error) {
	t := decode[transfer](input)
	lockEntities(x, account(t.From), account(t.To))
	defer x.Unlock()
	var balances [2]int
	for i, n := range []int{t.From, t.To} {
		r, err := callEntity(x, account(n), "get", nil)
		if err != nil {
			return nil, err
		}
		balances[i] = decode[int](r)
	}
	if t.From == t.To {
		return nil, nil
	}
	if _, err := callEntity(x, account(t.From), "set", balances[0]-t.Amount); err != nil {
		return nil, err
	}
	_, err := callEntity(x, account(t.To), "set", balances[1]+t.Amount)
	return nil, err
}

// settable is a counter with an operation that sets its number.
func settable(ctx context.Context, op *entity.Operation) entity.Result {
	if op.Name == "set" {
		return entity.Result{State: op.Input}
	}
	return counter(ctx, op)
}

var bankFunctions = functions{
	entities:      map[string]dispatch.EntityCode{"counter": settable},
	orchestrators: map[string]replay.Code{"Transfer": transferMoney},
}

// runBank runs random transfers. It fails the test unless all complete and the total is
// unchanged.
func runBank(b *bench, r *rand.Rand, accounts, transfers int) {
	for n := range transfers {
		b.start(fmt.Sprint("transfer ", n), "Transfer", transfer{r.IntN(accounts), r.IntN(accounts), r.IntN(100)})
		if r.IntN(3) == 0 {
			time.Sleep(time.Duration(r.IntN(5000)) * time.Millisecond)
		}
	}
	for n := range transfers {
		if s := b.end(fmt.Sprint("transfer ", n)); s.Status != history.Completed {
			b.Fatalf("transfer %d is %v: %v", n, s.Status, *s.Output)
		}
	}
	for _, f := range entityFaults {
		b.Inject(f, nil)
	}
	b.wantNothingLeft()
	total := 0
	for n := range accounts {
		text := b.entityState(account(n))
		if text != "<nil>" {
			total += decode[int](&text)
		}
		if s := b.state(account(n).String()); strings.Contains(*s.CustomStatus, "lockedBy") || strings.Contains(*s.CustomStatus, "queueSize") {
			b.Errorf("account %d is left with %s", n, *s.CustomStatus)
		}
	}
	if total != 0 {
		b.Errorf("the total is %d, want 0", total)
	}
}

func TestEntityLocks_KeepABanksTotalUnderFaults(t *testing.T) {
	for _, way := range bothWays {
		for seed := range uint64(testshare.Amount(3, 1)) {
			t.Run(fmt.Sprintf("%s/seed %d", way.name, seed), func(t *testing.T) {
				bubble(t, func(b *bench) {
					r := rand.New(rand.NewPCG(seed, 1))
					for _, f := range entityFaults {
						b.Inject(f, memhub.Chance(rand.New(rand.NewPCG(seed, uint64(f)+2)), 0.05))
					}
					b.work(bankFunctions, way.change)
					b.workOn(b.NewWorker(), bankFunctions, way.change)
					runBank(b, r, 4, testshare.Amount(40, 15))
				})
			})
		}
	}
}

func TestEntityLocks_KeepABanksTotalWhileWorkersAreKilled(t *testing.T) {
	bubble(t, func(b *bench) {
		r := rand.New(rand.NewPCG(7, 7))
		b.work(bankFunctions)
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			for {
				w := b.NewWorker()
				b.workOn(w, bankFunctions)
				select {
				case <-time.After(20 * time.Second):
					w.Kill()
				case <-stop:
					return
				}
			}
		}()
		runBank(b, r, 5, testshare.Amount(100, 30))
	})
}

func TestEntityLocks_PhilosophersDine(t *testing.T) {
	const philosophers, courses = 5, 6
	dine := func(x *replay.Execution, input *string) (*string, error) {
		n := decode[int](input)
		for range courses {
			lockEntities(x, counterID(fmt.Sprint("fork ", (n+1)%philosophers)), counterID(fmt.Sprint("fork ", n)))
			sleepFor(x, time.Second)
			if _, err := callEntity(x, counterID(fmt.Sprint("fork ", n)), "add", 1); err != nil {
				return nil, err
			}
			x.Unlock()
		}
		return nil, nil
	}
	bubble(t, func(b *bench) {
		b.work(functions{entities: entityFunctions.entities, orchestrators: map[string]replay.Code{"Dine": dine}})
		for n := range philosophers {
			b.start(fmt.Sprint("philosopher ", n), "Dine", n)
		}
		for n := range philosophers {
			b.wantOutput(fmt.Sprint("philosopher ", n), history.Completed, "<nil>")
			b.wantState(counterID(fmt.Sprint("fork ", n)), fmt.Sprint(courses))
		}
		b.wantNothingLeft()
	})
}

// An orchestration that ends releases its locks.
func TestEntityLocks_AreReleasedByEveryEndOfTheirHolder(t *testing.T) {
	ways := map[string]func(x *replay.Execution) (*string, error){
		"completion": func(*replay.Execution) (*string, error) { return nil, nil },
		"failure":    func(*replay.Execution) (*string, error) { return nil, errors.New("oh") },
		"panic":      func(*replay.Execution) (*string, error) { panic("oh") },
		"termination": func(x *replay.Execution) (*string, error) {
			waitEvent(x, "never")
			return nil, nil
		},
		"continuation as new": func(x *replay.Execution) (*string, error) { return nil, x.ContinueAsNew(new("true")) },
		"unlocking": func(x *replay.Execution) (*string, error) {
			x.Unlock()
			waitEvent(x, "never")
			return nil, nil
		},
	}
	for name, out := range ways {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.work(functions{entities: entityFunctions.entities, orchestrators: map[string]replay.Code{
					"Lock": func(x *replay.Execution, input *string) (*string, error) {
						if input != nil {
							return nil, nil
						}
						lockEntities(x, counterID("a"), counterID("b"), counterID("a"))
						sleepFor(x, time.Minute)
						return out(x)
					},
				}})
				b.start("i", "Lock", nil)
				time.Sleep(30 * time.Second)
				for _, key := range []string{"a", "b"} {
					if got, want := *b.state("@counter@" + key).CustomStatus, `{"lockedBy":"i"}`; got != want {
						t.Errorf("%s has status %s, want %s", key, got, want)
					}
					b.signal(counterID(key), "add", 1, time.Time{})
				}
				time.Sleep(time.Second)
				b.wantState(counterID("a"), "<nil>")
				time.Sleep(time.Minute)
				if name == "termination" {
					b.send("i", &history.ExecutionTerminated{Reason: new("enough")})
					time.Sleep(time.Second)
				}
				b.wantState(counterID("a"), "1")
				b.wantState(counterID("b"), "1")
			})
		})
	}
}

func TestEntityLocks_AreNotGrantedAfterTheirOrchestrationEnded(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(functions{entities: entityFunctions.entities, orchestrators: map[string]replay.Code{
			"Hold": func(x *replay.Execution, _ *string) (*string, error) {
				lockEntities(x, counterID("b"))
				sleepFor(x, time.Hour)
				return nil, nil
			},
			"Want": func(x *replay.Execution, _ *string) (*string, error) {
				lockEntities(x, counterID("a"), counterID("b"))
				return nil, nil
			},
		}})
		b.start("holder", "Hold", nil)
		time.Sleep(time.Second)
		b.start("wants", "Want", nil)
		time.Sleep(time.Second)
		b.send("wants", &history.ExecutionTerminated{Reason: new("enough")})
		b.wantOutput("holder", history.Completed, "<nil>")
		b.signal(counterID("a"), "add", 1, time.Time{})
		b.signal(counterID("b"), "add", 1, time.Time{})
		time.Sleep(time.Second)
		b.wantState(counterID("a"), "1")
		b.wantState(counterID("b"), "1")
		b.wantNothingLeft()
	})
}
