package sim_test

import (
	"cmp"
	"flag"
	"fmt"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/sim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

var whyStates = flag.Int("sim.whystates", 0, "number of quiet states per hub in which to compare the reasons why instances wait with the truth; 0 means the usual number")

// In each quiet state, the reasons with a line of code must be exactly those whose completion resumes the
// orchestrator.
func TestWhy_MatchesTheTruthInEachQuietState(t *testing.T) {
	for i, hub := range allHubs {
		t.Run(hub, func(t *testing.T) {
			if *whyStates == 0 && usual().oneHub && i > 0 {
				testshare.SkipInShortRaceRuns(t)
			}
			testshare.SkipOtherShares(t)
			asked := new(sim.Answers)
			want, seed := cmp.Or(*whyStates, usual().whyStates), *firstSeed
			for failed := 0; asked.States < want && (*runs == 0 || seed < *firstSeed+uint64(*runs)); seed++ {
				flags := fmt.Sprintf("-sim.seed=%d -sim.runs=1", seed)
				var faults []string
				var trace func() string
				before := asked.States
				repeatable(t, flags, func() { faults, trace = simulate(t, sim.NewAskedPlan(seed, asked), hub) })
				if len(faults) > 0 {
					report(t, sim.NewAskedPlan(seed, nil), faults, trace(), flags)
					if failed++; failed == *stopAfter {
						t.Fatalf("%d seeds failed; skipping the rest", failed)
					}
				}
				if asked.States == before && len(faults) > 0 {
					break
				}
			}
			t.Logf("%d seeds on %s: %s", seed-*firstSeed, hub, asked)
		})
	}
}
