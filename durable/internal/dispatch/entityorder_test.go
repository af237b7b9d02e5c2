package dispatch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

// journal is an entity that stores the numbers of its requests by sender. The operation "pass"
// also sends the number to a second journal.
func journal(_ context.Context, op *entity.Operation) entity.Result {
	signals := decode[map[string][]int](op.State)
	if signals == nil {
		signals = map[string][]int{}
	}
	signals[op.Caller] = append(signals[op.Caller], decode[int](op.Input))
	r := entity.Result{State: encode(signals)}
	if op.Name == "pass" {
		r.Actions = []entity.Action{&entity.Signal{Target: entityID("journal", "second"), Operation: "tell", Input: op.Input}}
	}
	return r
}

// teller sends the given number of signals to a journal, in two episodes.
func teller(x *replay.Execution, input *string) (*string, error) {
	n := decode[int](input)
	for i := range n {
		if i == n/2 {
			sleepFor(x, time.Second)
		}
		x.SignalEntity(entityID("journal", "first"), "pass", encode(i), time.Time{})
	}
	return nil, nil
}

var journalFunctions = functions{
	entities:      map[string]dispatch.EntityCode{"journal": journal},
	orchestrators: map[string]replay.Code{"Tell": teller},
}

// Fifty orchestrations send twenty signals each to an entity, which passes them on to another.
// Despite faults, each entity receives every sender's signals once and in order.
func TestEntity_RunsEachSendersSignalsInOrderAndOnceUnderFaults(t *testing.T) {
	const each = 20
	senders := testshare.Amount(50, 10)
	for _, way := range bothWays {
		for seed := range uint64(1) {
			t.Run(fmt.Sprintf("%s/seed %d", way.name, seed), func(t *testing.T) {
				bubble(t, func(b *bench) {
					for _, f := range entityFaults {
						b.Inject(f, memhub.Chance(rand.New(rand.NewPCG(seed, uint64(f))), 0.05))
					}
					b.work(journalFunctions, way.change)
					b.workOn(b.NewWorker(), journalFunctions, way.change)
					for n := range senders {
						b.start(fmt.Sprint("teller ", n), "Tell", each)
					}
					for n := range senders {
						b.wantOutput(fmt.Sprint("teller ", n), history.Completed, "<nil>")
					}
					b.wantNothingLeft()
					b.wantSignals(senders, each)
				})
			})
		}
	}
}

func (b *bench) wantSignals(senders, each int) {
	b.Helper()
	var want []int
	for i := range each {
		want = append(want, i)
	}
	first := decode[map[string][]int](new(b.entityState(entityID("journal", "first"))))
	if len(first) != senders {
		b.Errorf("signals of %d senders took effect, want %d", len(first), senders)
	}
	for sender, signals := range first {
		if !slices.Equal(signals, want) {
			b.Errorf("the signals of %s took effect as %v", sender, signals)
		}
	}
	second := decode[map[string][]int](new(b.entityState(entityID("journal", "second"))))["@journal@first"]
	if len(second) != senders*each {
		b.Errorf("%d signals were passed on, want %d", len(second), senders*each)
	}
	counts := make([]int, each)
	for _, n := range second {
		counts[n]++
	}
	for n, count := range counts {
		if count != senders {
			b.Errorf("%d was passed on %d times, want %d", n, count, senders)
		}
	}
}

// An orchestration that continues as new sends calls and signals in each generation.
func TestEntity_RunsEachGenerationsRequestsOnceUnderFaults(t *testing.T) {
	const generations = 12
	code := func(x *replay.Execution, input *string) (*string, error) {
		n := decode[int](input)
		x.SignalEntity(counterID("a"), "add", encode(1), time.Time{})
		x.SignalEntity(counterID("a"), "add", encode(1), time.Time{})
		if _, err := callEntity(x, counterID("b"), "add", 1); err != nil {
			return nil, err
		}
		if n > 1 {
			return nil, x.ContinueAsNew(encode(n - 1))
		}
		return nil, nil
	}
	fns := functions{entities: entityFunctions.entities, orchestrators: map[string]replay.Code{"Eternal": code}}
	for _, way := range bothWays {
		for seed := range uint64(testshare.Amount(3, 1)) {
			t.Run(fmt.Sprintf("%s/seed %d", way.name, seed), func(t *testing.T) {
				bubble(t, func(b *bench) {
					for _, f := range entityFaults {
						b.Inject(f, memhub.Chance(rand.New(rand.NewPCG(seed, uint64(f)+9)), 0.08))
					}
					b.work(fns, way.change)
					b.workOn(b.NewWorker(), fns, way.change)
					b.start("i", "Eternal", generations)
					b.wantOutput("i", history.Completed, "<nil>")
					b.wantNothingLeft()
					b.wantState(counterID("a"), fmt.Sprint(2*generations))
					b.wantState(counterID("b"), fmt.Sprint(generations))
				})
			})
		}
	}
}

// The labels of an episode's requests are derived from its time. If a timer starts an episode
// although the worker's clock is behind, the attempts have different times, and none is before
// the timer.
func TestEpisode_AttemptsStartedByATimerHaveDifferentTimes(t *testing.T) {
	fired := []history.Event{&history.TimerFired{FireAt: noon}}
	first := dispatch.EpisodeTime(fired, noon.Add(-time.Minute+100*time.Nanosecond))
	second := dispatch.EpisodeTime(fired, noon.Add(-time.Minute+200*time.Nanosecond))
	for _, at := range []time.Time{first, second} {
		if late := at.Sub(noon); late < 0 || late > time.Millisecond {
			t.Errorf("the episode of a timer due at %v has the time %v", noon, at)
		}
	}
	if first.Equal(second) {
		t.Errorf("both attempts have the time %v", first)
	}
}
