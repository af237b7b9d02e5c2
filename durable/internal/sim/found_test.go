package sim_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/sim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

// What simulations have found is kept here, in the shortest form that shows it.

// mustEndOnAzure simulates the plans of some seeds.
func mustEndOnAzure(t *testing.T, plan func(seed uint64) *sim.Plan, seeds ...uint64) {
	t.Helper()
	testshare.SkipShortRace(t)
	for i, seed := range seeds[:min(len(seeds), usual().foundAtMost)] {
		if !testshare.Has(t, i) {
			continue
		}
		if faults, trace := simulate(t, plan(seed), "azure"); len(faults) > 0 {
			report(t, plan(seed), faults, trace(), "")
		}
	}
}

// The result of an activity that ends after its instance was terminated is
// dropped. The embedded hub kept it for ever when it was stored and dropped in
// one transaction (found by seed 109).
func TestEmbedded_KeepsNoResultThatComesAfterTheEnd(t *testing.T) {
	testshare.SkipShortRace(t)
	testshare.Only(t)
	app := oneProgram(sim.Step{Kind: sim.CallStep})
	app.Instances[0].Terminated = 5 * time.Second
	plan := &sim.Plan{Seed: 1, App: &app, Workers: 1, Partitions: 1, Skews: []time.Duration{0}, Pace: 20 * time.Second}
	if faults := simulateEmbedded(t, plan, slog.New(slog.DiscardHandler)); len(faults) > 0 {
		t.Error(strings.Join(faults, "\n"))
	}
}

// A purge has read the row of an instance that has ended, and its next request takes ten
// seconds. An execution that was started anew in the meantime must not lose its history.
func TestAzure_APurgeSparesWhatBeganWhileItWasSlow(t *testing.T) {
	mustEndOnAzure(t, sim.NewCallerPlan, 20502085)
}

// A result comes of an activity that was scheduled by an episode which does not count. The
// one that counts gave its ID to an event that it sent: the history must not get a result of
// that.
func TestAzure_AResultIsTakenForNoOtherKindOfAction(t *testing.T) {
	mustEndOnAzure(t, sim.NewSignalerPlan, 21000129)
}

// An instance is resumed with a long reason, which its row has as the output, in a blob
// of its history. It continues as new, and the blob goes with that history: the row must
// not name it any more.
func TestAzure_TheRowNamesNoReasonOfAnEarlierGeneration(t *testing.T) {
	testshare.LeaveToFull(t) // each of these seeds takes seconds, with the race detector minutes
	if usual().foundAtMost == 1 {
		t.Skip("the race detector makes these seeds slow; they run without it")
	}
	mustEndOnAzure(t, sim.NewLargePlan, 10000008, 10000029)
}

// A worker dies between the history that says that an instance is suspended and
// the row that is to say so. What it took comes again and is dropped, and then
// the row has to follow, or nobody can resume the instance (seed 2120).
func TestAzure_TheRowFollowsTheHistoryOfASuspendedInstance(t *testing.T) {
	mustEndOnAzure(t, sim.NewPlan, 2120)
}

// A lease lapses for a moment and is renewed then. The instances that were ready
// meanwhile must not be forgotten (seeds 3641 and 10978).
func TestAzure_ALeaseThatLapsedForAMomentStopsNothing(t *testing.T) {
	mustEndOnAzure(t, sim.NewPlan, 3641, 10978)
}

// It is not known whether an episode counts, and its activities run. It does not,
// and the one that does gives their IDs to others, since its messages came in
// another order. No result must be taken for another's (seed 1050024).
func TestAzure_AResultIsTakenForNoOther(t *testing.T) {
	mustEndOnAzure(t, sim.NewVariedPlan, 1050024)
}

// A worker dies before it tells the row of an instance that it began and was
// suspended at once. What it took must come again, since nothing else does (seed
// 1050098, and 20138 in other words).
func TestAzure_TheRowIsToldBeforeWhatWasTakenIsGone(t *testing.T) {
	mustEndOnAzure(t, sim.NewVariedPlan, 1050098)
}

// An instance continues as new and is suspended by one checkpoint, whose answer is
// lost, and the worker dies. The row is of the execution before, then, and has to
// follow all the same (seed 2000466).
func TestAzure_TheRowFollowsANewExecutionThatIsSuspendedAtOnce(t *testing.T) {
	mustEndOnAzure(t, sim.NewVariedPlan, 2000466)
}

// A worker loses an entity to another one while messages for the entity wait at
// its session. They must not be taken for an execution's that is over, of which
// nothing is stored: the entity would begin anew without its state (seed 1006).
func TestAzure_AnEntityThatWasLostIsNotBegunAnew(t *testing.T) {
	mustEndOnAzure(t, sim.NewEntityPlan, 1006)
}

// The row of an instance is slow to be told that it began, it continues as new
// meanwhile, and the worker dies. Its start message comes again and must not begin
// it anew over its next generation (seed 3000189).
func TestAzure_AStartThatComesAgainDoesNotUndoALaterGeneration(t *testing.T) {
	mustEndOnAzure(t, sim.NewVariedPlan, 3000189)
}

// A request for a lock is passed on and overtakes what its sender told the entity
// before. What the sender tells it then, with the lock, must not come first (seeds
// 737 and 3403).
func TestAzure_WhatWasSentBeforeTheLockComesFirst(t *testing.T) {
	mustEndOnAzure(t, sim.NewEntityPlan, 737, 3403)
}

// An execution continues as new on a worker whose clock is behind. What the new one
// tells an entity must be in order although the old one's labels are later (seeds
// 275 and 3748).
func TestAzure_ANewExecutionsOrderIsKeptWhateverTheClockOfTheOld(t *testing.T) {
	mustEndOnAzure(t, sim.NewEntityPlan, 275, 3748)
}

// The episode in which an instance is terminated gives its locks up, and is lost. The
// instance goes on in its critical section for a while, into which others come. So it
// is in .NET, and the oracle must let it be (seed 344).
func TestAzure_ATerminatedInstanceMayLoseItsLocksBeforeItEnds(t *testing.T) {
	mustEndOnAzure(t, sim.NewEntityPlan, 344)
}

// Workers whose clocks differ take turns at an entity, and one of them remembers what
// came at a time that the other has remembered something at. Neither must be lost
// (seed 7618).
func TestAzure_WhatCameIsRememberedWhateverTheClocks(t *testing.T) {
	mustEndOnAzure(t, sim.NewEntityPlan, 7618)
}

// A worker is frozen while the answer to its checkpoint is on its way. Another one
// takes the instance over from there and ends it. The first must not add to what it
// does not know (seed 4006468).
func TestAzure_WhoWasFollowedDoesNotGoOn(t *testing.T) {
	mustEndOnAzure(t, sim.NewVariedPlan, 4006468)
}

// What is large is slow to be fetched. What came with it must stay hidden from others
// meanwhile (seed 4037963).
func TestAzure_WhatCameWithLargeMessagesIsKept(t *testing.T) {
	mustEndOnAzure(t, sim.NewVariedPlan, 4037963)
}

// The deletion of one message takes half a minute. The others must be kept hidden
// meanwhile (seeds 4043885 and 4045868).
func TestAzure_ASlowRequestKeepsNoOtherMessageFromBeingRenewed(t *testing.T) {
	mustEndOnAzure(t, sim.NewVariedPlan, 4043885, 4045868)
}

// The answer to the writing of a row is lost, and the worker is frozen. Another one
// suspends the instance meanwhile. The row that says so must stay (seed 4109415).
func TestAzure_ALateWriteOfTheRowHidesNoSuspension(t *testing.T) {
	mustEndOnAzure(t, sim.NewVariedPlan, 4109415)
}

// Two checkpoints of a frozen worker have yet to be told to the row when another one
// ends the instance. The second must not be told by what the first finds (seed 4219309).
func TestAzure_TwoLateWritesOfTheRowHideNoEnd(t *testing.T) {
	mustEndOnAzure(t, sim.NewVariedPlan, 4219309)
}

// Children run before the checkpoint that starts them counts, and their results
// come often, while the start of their parent is hidden by a slow worker that died
// (seed 849).
func TestAzure_AResultWaitsForAParentThatADeadWorkerHides(t *testing.T) {
	mustEndOnAzure(t, sim.NewVariedPlan, 849)
}

// A request is delivered a second time after its instance was purged. The row that it
// writes must not keep the ID from others for ever, nor the history that it writes keep
// messages here for ever: their blobs are gone (seeds 7000090 and 7000116).
func TestAzure_WhatComesBackAfterAPurgeStopsNothing(t *testing.T) {
	mustEndOnAzure(t, sim.NewCallerPlan, 7000090, 7000116)
}

// The blob of a start is there when the one is purged in whose place it is to be, and
// goes with that one's. The start sends another (seed 8200465).
func TestAzure_AStartThatMeetsAPurgeKeepsItsInput(t *testing.T) {
	mustEndOnAzure(t, sim.NewCallerPlan, 8200465)
}
