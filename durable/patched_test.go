package durable_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

// The stage runs each episode in memory and by a replay from the start, and fails the
// test if the results differ.
func TestPatched_IsTrueForNewStepsAndFalseForPastSteps(t *testing.T) {
	t.Parallel()
	deployedPatch := false
	s := stage(t, func(ctx *durable.Context, _ durable.Void) ([]bool, error) {
		var all []bool
		ask := func(id string) {
			if deployedPatch {
				all = append(all, ctx.Patched(id))
			}
		}
		ask("first") // before the first await
		if _, err := durable.CallActivity(ctx, count, "a").Await(); err != nil {
			return nil, err
		}
		ask("second")
		ask("first")
		branch := durable.Go(ctx, func() (durable.Void, error) {
			ask("in a branch")
			_, err := durable.CallActivity(ctx, count, "b").Await()
			ask("in a branch")
			ask("later in the branch")
			return durable.Void{}, err
		})
		_, err := branch.Await()
		for range 2 {
			ask("in a loop")
		}
		return all, err
	})
	s.Start(nil)
	s.Evict() // deploy the new code
	deployedPatch = true
	s.Episode(done(0, "1"))
	s.Episode(done(1, "1"))
	wantOutput(t, s, "[false,true,false,true,true,true,true,true]")
	want := []string{"second", "in a branch", "later in the branch", "in a loop"}
	if got := patchesIn(s.History); !slices.Equal(got, want) {
		t.Errorf("the history has markers %q, want %q", got, want)
	}
}

// patchesIn returns the IDs of the markers in a history. A marker must come before all
// other events of its episode.
func patchesIn(events []history.Event) []string {
	var ids []string
	begins := false
	for _, e := range events {
		id, ok := history.PatchOf(e)
		switch {
		case ok && begins:
			ids = append(ids, id)
		case ok:
			ids = append(ids, id+" not at the start of an episode")
		default:
			begins = e.Type() == history.TypeOrchestratorStarted
		}
	}
	return ids
}

// A random orchestrator is changed at a random step. Patched must return true exactly
// if the execution had not passed the call before the change.
func TestPatched_WorksAtAnyStepOfARandomOrchestrator(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testshare.Amount(300, 40)) {
		r := rand.New(rand.NewPCG(seed, 0))
		steps, deployed := make([][]string, 1+r.IntN(8)), r.IntN(9)
		for i := range steps {
			for range r.IntN(3) {
				steps[i] = append(steps[i], fmt.Sprint("change-", r.IntN(4)))
			}
		}
		done := 0 // completed steps
		deployedPatch := false
		s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
			var said []string
			for i, ids := range steps {
				for _, id := range ids {
					if deployedPatch && ctx.Patched(id) {
						said = append(said, fmt.Sprint(i, id))
					}
				}
				if _, err := durable.CallActivity(ctx, count, "a").Await(); err != nil {
					return "", err
				}
			}
			return strings.Join(said, " "), nil
		})
		s.Cached = r.IntN(2) == 0
		for done < len(steps) {
			if done == deployed {
				s.Evict()
				deployedPatch = true
			}
			if done == 0 {
				s.Start(nil)
			} else {
				s.Episode(replaytest.Done(done-1, "1"))
			}
			done++
		}
		s.Episode(replaytest.Done(done-1, "1"))
		var want []string
		answers := map[string]bool{}
		for i, ids := range steps {
			for _, id := range ids {
				if _, asked := answers[id]; !asked {
					answers[id] = i >= deployed
				}
				if answers[id] && deployed < len(steps) {
					want = append(want, fmt.Sprint(i, id))
				}
			}
		}
		if got := s.Output(history.Completed); got != fmt.Sprintf("%q", strings.Join(want, " ")) {
			t.Errorf("seed %d: changed at step %d of %q: %s, want %q", seed, deployed, steps, got, want)
		}
	}
}

func TestPatched_CanBeRemovedOnceNoInstanceNeedsTheOldCode(t *testing.T) {
	t.Parallel()
	deployedPatch := true
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		if !deployedPatch || ctx.Patched("count first") {
			if _, err := durable.CallActivity(ctx, count, "a").Await(); err != nil {
				return 0, err
			}
		}
		return durable.CallActivity(ctx, count, "b").Await()
	})
	s.Start(nil)
	deployedPatch = false
	s.Evict()
	s.Episode(done(0, "1"))
	s.Episode(done(1, "2"))
	wantOutput(t, s, "2")
}

func TestPatched_CountsAsAnEventOfTheHistory(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) ([]int, error) {
		before := ctx.HistoryLength()
		for range 2 {
			ctx.Patched("change")
		}
		lengths := []int{before, ctx.HistoryLength()}
		ctx.Sleep(0)
		return append(lengths, ctx.HistoryLength()), nil
	})
	s.Start(nil)
	before := len(s.History)
	s.Evict()
	s.Episode(fired(0))
	wantOutput(t, s, fmt.Sprintf("[2,3,%d]", before+2))
}

func TestPatched_RequiresAnID(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (bool, error) { return ctx.Patched(""), nil })
	s.Start(nil)
	wantFailure(t, s, "Patched was called without an ID")
}

// Each generation is a separate execution, even if a worker runs several generations in
// one episode.
func TestPatched_StartsAgainWithEachGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := memhub.New()
		var again func(*durable.Context, int) (bool, error)
		again = func(ctx *durable.Context, n int) (bool, error) {
			patched := n > 0 && ctx.Patched("change")
			if n < 2 {
				return durable.ContinueAsNew(ctx, again, n+1)
			}
			ctx.Sleep(1)
			return patched && ctx.Patched("change") && ctx.Patched("another"), nil
		}
		r := authors(durable.Orchestrator("Again", again))
		defer run(t, h, r, durable.Config{})()
		i, err := durable.Start(t.Context(), durable.NewClient(h, r), again, 0)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := i.Wait(t.Context()); err != nil || !out {
			t.Errorf("output %t, %v; want true", out, err)
		}
		events, err := durable.NewClient(h, r).History(t.Context(), i.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := patchesIn(events), []string{"change", "another"}; !slices.Equal(got, want) {
			t.Errorf("the history of the last generation has markers %q, want %q", got, want)
		}
		if err := r.Verify(events); err != nil {
			t.Errorf("the code does not match its own history: %v", err)
		}
	})
}

// A rewind resumes an instance with an event of the same type that has the user's
// reason.
func TestPatched_MarkerDiffersFromARewind(t *testing.T) {
	t.Parallel()
	for _, data := range []*string{nil, new("change"), new("patched: change")} {
		if id, ok := history.PatchOf(&history.GenericEvent{Data: data}); ok {
			t.Errorf("the event of a rewind is a marker of change %q", id)
		}
	}
}

// A bad deployment fails an instance when it resumes. With matching code, a rewind
// resumes it at the same point, and the event that it failed with is not lost.
func TestRewind_RepairsFailuresOfABadDeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := memhub.New()
		good := func(ctx *durable.Context, _ durable.Void) (string, error) {
			if _, err := durable.CallActivity(ctx, count, "a").Await(); err != nil {
				return "", err
			}
			return durable.Event[string]("go").Wait(ctx).Await()
		}
		bad := func(ctx *durable.Context, _ durable.Void) (string, error) {
			ctx.Sleep(1)
			return good(ctx, durable.Void{})
		}
		fits := authors(durable.Orchestrator("Main", good))
		c := durable.NewClient(h, fits)
		stop := run(t, h, fits, durable.Config{})
		i, err := durable.Start(t.Context(), c, good, durable.Void{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(time.Second)
		stop()
		stop = run(t, h, authors(durable.Orchestrator("Main", bad)), durable.Config{})
		if err := durable.Event[string]("go").Raise(t.Context(), c, i.ID, "now"); err != nil {
			t.Fatal(err)
		}
		_, err = i.Wait(t.Context())
		if _, ok := errors.AsType[*durable.NonDeterminismError](err); !ok {
			t.Fatalf("with the bad code: %v, want a NonDeterminismError", err)
		}
		stop()
		defer run(t, h, fits, durable.Config{})()
		if err := c.Rewind(t.Context(), i.ID, "repaired"); err != nil {
			t.Fatal(err)
		}
		if out, err := i.Wait(t.Context()); err != nil || out != "now" {
			t.Errorf("output after the rewind is %q, %v", out, err)
		}
	})
}

// A .NET worker has run an execution past calls of Patched. The history has the
// decisions of the new code and no markers
// (DurableTask.Core/TaskOrchestrationExecutor.cs, ProcessEvent).
func TestPatched_IsDerivedFromDecisionsIfAWorkerWroteNoMarkers(t *testing.T) {
	t.Parallel()
	const questions = 3
	for old := -1; old < questions-1; old++ { // activities that complete while the old code runs; -1: it never runs
		for carried := range 2 * questions { // activities that complete while .NET runs the new code
			deployedPatch := old < 0
			r := authors(durable.Orchestrator("Main", func(ctx *durable.Context, _ durable.Void) (string, error) {
				var all []string
				for i := range questions {
					patched := deployedPatch && ctx.Patched(fmt.Sprint("change-", i))
					all = append(all, fmt.Sprint(patched))
					if patched {
						if _, err := durable.CallActivity(ctx, touch, durable.Void{}).Await(); err != nil {
							return "", err
						}
					}
					if _, err := durable.CallActivity(ctx, count, fmt.Sprint(i)).Await(); err != nil {
						return "", err
					}
				}
				return strings.Join(all, " "), nil
			}))
			s := stageOf(t, r)
			ended := 0
			step := func() {
				if s.End() == nil {
					s.Episode(done(ended, "null"))
					ended++
				}
			}
			s.Start(nil)
			for range old {
				step()
			}
			s.Evict()
			deployedPatch = true
			for range carried {
				step()
			}
			if s.End() != nil {
				continue
			}
			s.Evict()
			s.History = slices.DeleteFunc(s.History, func(e history.Event) bool {
				_, isMarker := history.PatchOf(e)
				return isMarker
			})
			if err := r.Verify(s.History); err != nil {
				t.Errorf("%d activities with the old code, %d with .NET: %v", old, carried, err)
			}
			for range 2 * questions {
				step()
			}
			var want []string
			for i := range questions {
				want = append(want, fmt.Sprint(i > old))
			}
			if got := s.Output(history.Completed); got != fmt.Sprintf("%q", strings.Join(want, " ")) {
				t.Errorf("%d activities with the old code, %d with .NET: %s, want %q", old, carried, got, want)
			}
		}
	}
}
