package sim_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/sim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

// Regression tests of bugs that simulations have found, in their shortest form.

// mustEndOnAzure simulates a plan with several seeds.
func mustEndOnAzure(t *testing.T, plan func(seed uint64) *sim.Plan, seeds ...uint64) {
	t.Helper()
	testshare.SkipInShortRaceRuns(t)
	for i, seed := range seeds[:min(len(seeds), usual().foundAtMost)] {
		if !testshare.Has(t, i) {
			continue
		}
		if faults, trace := simulate(t, plan(seed), "azure"); len(faults) > 0 {
			report(t, plan(seed), faults, trace(), "")
		}
	}
}

// The result of an activity that completes after its instance was terminated is discarded. The embedded hub
// kept the result forever if it was stored and discarded in one transaction (seed 109).
func TestEmbedded_DiscardsAResultThatArrivesAfterTheEnd(t *testing.T) {
	testshare.SkipInShortRaceRuns(t)
	testshare.SkipOtherShares(t)
	app := oneProgram(sim.Step{Kind: sim.CallStep})
	app.Instances[0].Terminated = 5 * time.Second
	plan := &sim.Plan{Seed: 1, App: &app, Workers: 1, Partitions: 1, Skews: []time.Duration{0}, Pace: 20 * time.Second}
	if faults := simulateEmbedded(t, plan, slog.New(slog.DiscardHandler)); len(faults) > 0 {
		t.Error(strings.Join(faults, "\n"))
	}
}

// A purge has read the row of an ended instance, and its next request takes ten seconds. An execution that is
// started in the meantime must keep its history.
func TestAzure_ASlowPurgeSparesANewExecution(t *testing.T) {
	mustEndOnAzure(t, sim.NewCallerPlan, 20502085)
}

// The result of an activity arrives whose episode was not committed. The committed episode used the
// activity's ID for an event that it sent. The history must not get a result for this event.
func TestAzure_AResultCompletesNoOtherKindOfAction(t *testing.T) {
	mustEndOnAzure(t, sim.NewSignalerPlan, 21000129)
}

// An instance is resumed with a long reason, which its row contains as output, in a blob of its history. The
// instance continues as new, which deletes the blob with the old history. The row must not refer to it.
func TestAzure_TheRowDropsTheReasonOfAnEarlierGeneration(t *testing.T) {
	testshare.SkipInShortRuns(t) // each seed takes seconds, with the race detector minutes
	if usual().foundAtMost == 1 {
		t.Skip("the race detector makes these seeds slow; they run without it")
	}
	mustEndOnAzure(t, sim.NewLargePlan, 10000008, 10000029)
}

// A worker dies after it has committed a suspension to the history and before it updates the row. The
// redelivered messages are discarded. The row must then be updated, otherwise no client can resume the
// instance (seed 2120).
func TestAzure_TheRowFollowsTheHistoryOfASuspendedInstance(t *testing.T) {
	mustEndOnAzure(t, sim.NewPlan, 2120)
}

// A lease expires for a moment and is then renewed. The worker must still dispatch instances that became
// ready in between (seeds 3641 and 10978).
func TestAzure_ALeaseThatExpiresBrieflyLosesNoInstance(t *testing.T) {
	mustEndOnAzure(t, sim.NewPlan, 3641, 10978)
}

// The commit of an episode has no clear result, and its activities run. The commit has failed, and the next
// episode gives the activities' IDs to other activities, because its messages had another order. No activity
// may get the result of another one (seed 1050024).
func TestAzure_AResultCompletesNoOtherActivity(t *testing.T) {
	mustEndOnAzure(t, sim.NewVariedPlan, 1050024)
}

// A worker dies before it updates the row of a new instance that was suspended immediately. The messages of
// the episode must be redelivered, because nothing else triggers the update (seeds 1050098 and, in a variant,
// 20138).
func TestAzure_TheRowIsUpdatedBeforeMessagesAreDeleted(t *testing.T) {
	mustEndOnAzure(t, sim.NewVariedPlan, 1050098)
}

// One checkpoint continues an instance as new and suspends it. Its response is lost, and the worker dies. The
// row belongs to the previous execution and must be updated nevertheless (seed 2000466).
func TestAzure_TheRowFollowsANewExecutionThatIsSuspendedAtOnce(t *testing.T) {
	mustEndOnAzure(t, sim.NewVariedPlan, 2000466)
}

// A worker loses an entity to another worker while messages wait in its session. The worker must not
// attribute them to an ended execution without stored data: the entity would lose its state (seed 1006).
func TestAzure_ALostEntityKeepsItsState(t *testing.T) {
	mustEndOnAzure(t, sim.NewEntityPlan, 1006)
}

// The row of an instance is not yet updated with its start. The instance continues as new, and the worker
// dies. The redelivered start must not replace the next generation (seed 3000189).
func TestAzure_ARedeliveredStartDoesNotUndoALaterGeneration(t *testing.T) {
	mustEndOnAzure(t, sim.NewVariedPlan, 3000189)
}

// A forwarded lock request overtakes a signal that its sender sent before. Signals that the sender sends
// after it has the lock must not overtake that signal (seeds 737 and 3403).
func TestAzure_SignalsSentBeforeTheLockArriveFirst(t *testing.T) {
	mustEndOnAzure(t, sim.NewEntityPlan, 737, 3403)
}

// An execution continues as new on a worker whose clock is behind. The signals of the new execution must be
// in order although the old execution's timestamps are later (seeds 275 and 3748).
func TestAzure_ANewExecutionsSignalsStayInOrderDespiteClockSkew(t *testing.T) {
	mustEndOnAzure(t, sim.NewEntityPlan, 275, 3748)
}

// The episode that terminates an instance releases its locks, and its commit is lost. The instance continues
// in its critical section, which others can enter meanwhile. The oracle must accept this, as .NET does (seed
// 344).
func TestAzure_ATerminatedInstanceMayLoseItsLocksBeforeItEnds(t *testing.T) {
	mustEndOnAzure(t, sim.NewEntityPlan, 344)
}

// Workers with different clocks alternate as owners of an entity. One of them records a received message with
// a timestamp that the other has already used. Neither record may be lost (seed 7618).
func TestAzure_ReceivedMessagesAreRememberedDespiteClockSkew(t *testing.T) {
	mustEndOnAzure(t, sim.NewEntityPlan, 7618)
}

// A worker freezes before it receives the response to its commit. Another worker takes the instance over and
// ends it. The first worker must not append to a history that it does not know (seed 4006468).
func TestAzure_AFrozenWorkerDoesNotAppendToANewerHistory(t *testing.T) {
	mustEndOnAzure(t, sim.NewVariedPlan, 4006468)
}

// Large payloads take long to fetch. Messages that arrived with them must stay hidden meanwhile (seed
// 4037963).
func TestAzure_MessagesStayHiddenWhileLargePayloadsAreFetched(t *testing.T) {
	mustEndOnAzure(t, sim.NewVariedPlan, 4037963)
}

// The deletion of one message takes half a minute. The worker must still renew the other messages (seeds
// 4043885 and 4045868).
func TestAzure_ASlowDeletionDoesNotBlockRenewals(t *testing.T) {
	mustEndOnAzure(t, sim.NewVariedPlan, 4043885, 4045868)
}

// The response to a row update is lost, and the worker freezes. Another worker suspends the instance. The row
// must stay suspended (seed 4109415).
func TestAzure_ALateWriteOfTheRowHidesNoSuspension(t *testing.T) {
	mustEndOnAzure(t, sim.NewVariedPlan, 4109415)
}

// A frozen worker has two pending row updates when another worker ends the instance. The second update must
// not overwrite the end after the first one has read the row (seed 4219309).
func TestAzure_TwoLateWritesOfTheRowHideNoEnd(t *testing.T) {
	mustEndOnAzure(t, sim.NewVariedPlan, 4219309)
}

// Children run before the checkpoint that starts them is committed. Their results are redelivered often while
// a slow, dead worker hides the start of their parent (seed 849).
func TestAzure_AResultWaitsForAParentWhoseStartIsHidden(t *testing.T) {
	mustEndOnAzure(t, sim.NewVariedPlan, 849)
}

// A request is repeated after its instance was purged. The row that it writes must not block the ID forever.
// The history that it writes must not hold messages back forever, whose blobs are gone (seeds 7000090 and
// 7000116).
func TestAzure_ARequestRepeatedAfterAPurgeBlocksNothing(t *testing.T) {
	mustEndOnAzure(t, sim.NewCallerPlan, 7000090, 7000116)
}

// The blob of a start exists already when the instance that it replaces is purged, and the purge deletes the
// blob. The start must upload it again (seed 8200465).
func TestAzure_AStartDuringAPurgeKeepsItsInput(t *testing.T) {
	mustEndOnAzure(t, sim.NewCallerPlan, 8200465)
}
