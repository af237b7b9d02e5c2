package dispatch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var bothWays = []struct {
	name   string
	change func(*dispatch.Config)
}{
	{"episodes from storage", func(*dispatch.Config) {}},
	{"extended sessions", extendedSessions},
}

// journey takes every kind of action: activities one after another and in parallel, a timer, a
// child, an event, a new generation.
func journey(x *replay.Execution, input *string) (*string, error) {
	n := decode[int](input)
	first, err := callActivity(x, "Hello", fmt.Sprint(n))
	if err != nil {
		return nil, err
	}
	sleepFor(x, time.Duration(n+1)*time.Second)
	child := new(replay.Future)
	x.CreateSubOrchestration(child, "Echo", "", encode(n))
	several := []*replay.Future{begin(x, "Hello", "a"), child, begin(x, "Hello", "b")}
	all := []string{decode[string](first)}
	for _, f := range several {
		r, err := result(f)
		if err != nil {
			return nil, err
		}
		all = append(all, strings.Trim(*r, `"`))
	}
	// An event can be delivered twice, the second time to the next generation.
	self := fmt.Sprint("self ", n)
	x.SendEvent(x.Instance().InstanceID, self, encode(all))
	all = decode[[]string](waitEvent(x, self).Input)
	if n > 0 {
		return nil, x.ContinueAsNew(encode(n - 1))
	}
	return encode(strings.Join(all, " ")), nil
}

var journeyFunctions = functions{
	activities: helloFunctions.activities,
	orchestrators: map[string]replay.Code{
		"Journey": journey,
		"Echo":    func(_ *replay.Execution, input *string) (*string, error) { return input, nil },
	},
}

const journeysEnd = `"Hello 0! Hello a! 0 Hello b!"`

func TestFaults_ASingleFaultLosesNothing(t *testing.T) {
	faults := map[string]memhub.Fault{
		"commit fails": memhub.CommitFails, "commit tears": memhub.CommitTears, "commit's reply is lost": memhub.CommitReplyLost,
		"session is lost": memhub.SessionLost, "messages are delivered twice": memhub.DuplicateDelivery,
		"messages are delivered late": memhub.DelayedDelivery, "complete fails": memhub.CompleteFails,
		"complete's reply is lost": memhub.CompleteReplyLost, "completion is lost": memhub.CompletionLost,
		"fetch fails": memhub.FetchFails,
	}
	for _, way := range bothWays {
		for name, fault := range faults {
			for nth := range 6 {
				t.Run(fmt.Sprintf("%s/%s at occasion %d", way.name, name, nth), func(t *testing.T) {
					bubble(t, func(b *bench) {
						var occasions atomic.Int64
						b.Inject(fault, func() bool { return occasions.Add(1) == int64(nth+1) })
						b.work(journeyFunctions, way.change)
						b.start("i", "Journey", 1)
						b.wantOutput("i", history.Completed, journeysEnd)
						if n := occasions.Load(); n <= int64(nth) {
							t.Errorf("the fault did not happen: there were %d occasions", n)
						}
						b.wantNothingLeft()
					})
				})
			}
		}
	}
}

// wantNothingLeft waits an hour, in which abandoned messages are redelivered. It fails the test
// if messages are left.
func (b *bench) wantNothingLeft() {
	b.Helper()
	time.Sleep(time.Hour)
	synctest.Wait()
	if n := b.Pending(); n != 0 {
		b.Errorf("%d messages are left\nlog:\n%s", n, b.log)
	}
}

func TestSessionLost_IsLoggedAsATakeover(t *testing.T) {
	bubble(t, func(b *bench) {
		b.Inject(memhub.SessionLost, memhub.Times(1))
		b.work(helloFunctions)
		b.start("i", "HelloSeq", nil)
		b.wantOutput("i", history.Completed, `["Hello Tokyo!","Hello Seattle!","Hello London!"]`)
		if n := b.log.count("another worker has taken the instance over"); n != 1 {
			t.Errorf("the takeover was logged %d times, want once:\n%s", n, b.log)
		}
	})
}

func TestMessages_UnexpectedMessagesAreIgnored(t *testing.T) {
	for _, way := range bothWays {
		t.Run(way.name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
					sleepFor(x, time.Minute)
					return callActivity(x, "Hello", "x") // action 1
				}), way.change)
				b.start("i", "O", nil)
				time.Sleep(time.Second)
				current := b.state("i").Instance
				other := history.OrchestrationInstance{InstanceID: "i", ExecutionID: "of long ago"}
				forged := func() *history.TaskCompleted {
					return &history.TaskCompleted{Header: history.NewHeader(time.Now()), TaskScheduledID: 1, Result: encode("forged")}
				}
				b.sendTo(other, forged())                                             // for another execution
				b.sendTo(other, &history.ExecutionTerminated{})                       // for another execution
				b.sendTo(current, &history.TaskFailed{TaskScheduledID: 0})            // action 0 is a timer
				b.sendTo(current, &history.TimerFired{TimerID: 77, FireAt: noon})     // never created
				b.startEvent(&history.ExecutionStarted{Instance: current, Name: "O"}) // a duplicate
				b.wantOutput("i", history.Completed, `"Hello x!"`)
				b.wantNothingLeft()
			})
		})
	}
}

func TestWorkers_TakeOverFromADeadWorker(t *testing.T) {
	for _, way := range bothWays {
		t.Run(way.name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				slow := functions{orchestrators: journeyFunctions.orchestrators, activities: map[string]activity{
					"Hello": func(ctx context.Context, input *string) (*string, error) {
						time.Sleep(time.Second)
						return sayHello(ctx, input)
					},
				}}
				first := b.Hub.Worker
				b.workOn(first, slow, way.change)
				for i := range 20 {
					b.start(fmt.Sprint("i", i), "Journey", 1)
				}
				time.Sleep(3500 * time.Millisecond) // in the middle of all journeys
				second := b.NewWorker()
				b.workOn(second, slow, way.change)
				first.Kill()
				for i := range 20 {
					b.wantOutput(fmt.Sprint("i", i), history.Completed, journeysEnd)
				}
				b.wantNothingLeft()
			})
		})
	}
}

func TestSimulation_WithFaultsOfAllKinds(t *testing.T) {
	for seed := range uint64(testshare.Amount(20, 4)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, func(b *bench) { simulate(b, seed) })
		})
	}
}

// simulate runs journeys on workers that start and stop, on a hub with random faults of all
// kinds.
func simulate(b *bench, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	for f := memhub.CommitFails; f <= memhub.FetchFails; f++ {
		b.Inject(f, memhub.Chance(rand.New(rand.NewPCG(seed, uint64(f))), 0.08*r.Float64()))
	}
	way := bothWays[r.IntN(2)].change
	b.work(journeyFunctions, way)
	const journeys = 30
	for i := range journeys {
		b.start(fmt.Sprint("i", i), "Journey", r.IntN(3))
		time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
	}
	others := make([]*memhub.Worker, 3)
	for i := range others {
		others[i] = b.NewWorker()
		_, stop := b.workOn(others[i], journeyFunctions, way)
		time.Sleep(time.Duration(r.IntN(10_000)) * time.Millisecond)
		if r.IntN(2) == 0 {
			others[i].Kill()
		} else if err := stop(); err != nil {
			b.Error(err)
		}
	}
	for i := range journeys {
		b.wantOutput(fmt.Sprint("i", i), history.Completed, journeysEnd)
	}
	for f := memhub.CommitFails; f <= memhub.FetchFails; f++ {
		b.Inject(f, nil)
	}
	b.wantNothingLeft()
	page, err := b.Instances(b.Context(), provider.Query{})
	if err != nil {
		b.Fatal(err)
	}
	for _, i := range page.Instances {
		if id := i.Instance.InstanceID; i.Status != history.Completed {
			b.Errorf("instance %s is %v", id, i.Status)
		}
		checkHistory(b, i.Instance.InstanceID)
	}
}

// checkHistory checks that a history has one start and one end, each action's number once, and
// no completion before its action.
func checkHistory(b *bench, id string) {
	b.Helper()
	starts, ends := 0, 0
	asked := make(map[int]bool)
	for _, e := range b.events(id) {
		if n := e.Head().EventID; n != history.NoEventID {
			if asked[n] {
				b.Errorf("%s: action %d is recorded twice", id, n)
			}
			asked[n] = true
		}
		answers := history.NoEventID
		switch e := e.(type) {
		case *history.ExecutionStarted:
			starts++
		case *history.ExecutionCompleted:
			ends++
		case *history.TaskCompleted:
			answers = e.TaskScheduledID
		case *history.TimerFired:
			answers = e.TimerID
		case *history.SubOrchestrationInstanceCompleted:
			answers = e.TaskScheduledID
		}
		if answers != history.NoEventID && !asked[answers] {
			b.Errorf("%s: action %d completes before it is recorded", id, answers)
		}
	}
	if starts != 1 || ends != 1 {
		b.Errorf("%s: %d starts and %d ends, want one each", id, starts, ends)
	}
}

// Goroutines of a worker must not share the data of an instance. The race detector checks this.
func TestWorker_RunsManyInstancesAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		var mu sync.Mutex
		most, now := 0, 0
		b.work(functions{
			activities: map[string]activity{"Hello": func(ctx context.Context, input *string) (*string, error) {
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				now--
				mu.Unlock()
				return sayHello(ctx, input)
			}},
			orchestrators: helloFunctions.orchestrators,
		})
		for i := range 100 {
			b.start(fmt.Sprint("i", i), "HelloSeq", nil)
		}
		for i := range 100 {
			b.wantOutput(fmt.Sprint("i", i), history.Completed, `["Hello Tokyo!","Hello Seattle!","Hello London!"]`)
		}
		if most != 10 {
			t.Errorf("%d activities ran at once, want 10", most)
		}
	})
}
