package durable_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/whytest"
)

func TestWhy_ReturnsReasonsAndLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { whytest.Exercise(t, memhub.New()) })
}

// Without code, the history shows which tasks are not complete. A client with different
// code also reports that.
func TestWhy_WorksWithoutTheCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := memhub.New(), new(whytest.Stuck)
		defer run(t, h, s.Registry(), durable.Config{})()
		id := must[durable.InstanceID](t)(durable.NewClient(h, nil).StartByName(t.Context(), "ForSome", nil))
		synctest.Wait()
		kinds := func(r *durable.Registry) (kinds []durable.ReasonKind) {
			for _, reason := range must[*durable.Diagnosis](t)(durable.NewClient(h, r).Why(t.Context(), id)).Reasons {
				kinds = append(kinds, reason.Kind)
			}
			return kinds
		}
		started := []durable.ReasonKind{durable.ReasonTimer, durable.ReasonActivity, durable.ReasonActivity}
		if got := kinds(nil); !slices.Equal(got, started) {
			t.Errorf("without a registry: %v", got)
		}
		if got := kinds(durable.NewRegistry()); !slices.Equal(got, append([]durable.ReasonKind{durable.ReasonNotRegistered}, started...)) {
			t.Errorf("without the orchestrator: %v", got)
		}
		other := durable.NewRegistry(durable.Orchestrator("ForSome", s.ForChild), durable.Orchestrator("Child", s.Child))
		if got := kinds(other); !slices.Equal(got, []durable.ReasonKind{durable.ReasonHistoryMismatch}) {
			t.Errorf("with other code: %v", got)
		}
	})
}

func TestVerify_FindsInstancesThatCannotContinue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := memhub.New(), new(whytest.Stuck)
		defer run(t, h, s.Registry(), durable.Config{})()
		c := durable.NewClient(h, s.Registry())
		id := must[durable.InstanceID](t)(c.StartByName(t.Context(), "ForSome", nil))
		synctest.Wait()
		events := must[[]history.Event](t)(c.History(t.Context(), id))
		text := must[[]byte](t)(durable.MarshalHistory(events))
		read := must[[]history.Event](t)(durable.UnmarshalHistory(text))
		if !reflect.DeepEqual(read, events) {
			t.Errorf("the decoded history differs from the original: %s", text)
		}
		if err := s.Registry().Verify(read); err != nil {
			t.Errorf("with the same code: %v", err)
		}
		if err := s.Registry().Verify(nil); err != nil {
			t.Errorf("for an instance that has not started: %v", err)
		}
		if err := durable.NewRegistry().Verify(read); !errors.Is(err, durable.ErrNotRegistered) {
			t.Errorf("without code: %v", err)
		}
		other := durable.NewRegistry(durable.Orchestrator("ForSome", s.ForActivity), durable.Activity("Work", s.Work))
		mismatch, ok := errors.AsType[*durable.HistoryMismatchError](other.Verify(read))
		if !ok || mismatch.InstanceID != id || mismatch.Decision != 0 || mismatch.Name != "ForSome" ||
			!strings.Contains(mismatch.Recorded, "Fail") || !strings.Contains(mismatch.Produced, "Work") || mismatch.Event != 2 {
			t.Errorf("with other code: %+v", mismatch)
		}
	})
}

func TestStalls_AreAbandoned(t *testing.T) {
	for _, sessions := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			whytest.ExerciseStalls(t, memhub.New(), durable.Config{ExtendedSessionIdle: sessionIdle(sessions)})
		})
	}
}
