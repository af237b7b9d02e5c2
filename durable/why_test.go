package durable_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// An activity that today's code calls as a step is still needed while an instance waits for it.
func TestVerify_NamesActivitiesThatAreStepsNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		charge := durable.Activity("Charge", func(context.Context, durable.Void) (int, error) { return 1, nil })
		asActivity := func(ctx *durable.Context, _ durable.Void) (int, error) {
			return durable.ActivityName[durable.Void, int]("Charge").Call(ctx, durable.Void{}).Await()
		}
		asStep := func(opts ...durable.StepOption) *durable.Registration {
			return durable.Orchestrator("Order", func(ctx *durable.Context, _ durable.Void) (int, error) {
				return durable.Step(ctx, "Charge", func(ctx context.Context) (int, error) {
					<-ctx.Done()
					return 0, ctx.Err()
				}, opts...).Await()
			})
		}
		waiting := func(f *durable.Registration) []history.Event {
			h, r := memhub.New(), durable.NewRegistry(f)
			defer run(t, h, r, durable.Config{})()
			id := must[durable.InstanceID](t)(durable.NewClient(h, r).StartByName(t.Context(), "Order", nil))
			time.Sleep(time.Minute)
			return must[[]history.Event](t)(durable.NewClient(h, r).History(t.Context(), id))
		}
		scheduled := waiting(durable.Orchestrator("Order", asActivity))
		err := durable.NewRegistry(asStep()).Verify(scheduled)
		if !errors.Is(err, durable.ErrActivityNotRegistered) || !strings.Contains(err.Error(), `activity "Charge"`) {
			t.Errorf("without the activity: %v", err)
		}
		if err := durable.NewRegistry(asStep(), charge).Verify(scheduled); err != nil {
			t.Errorf("with the activity: %v", err)
		}
		if err := durable.NewRegistry(durable.Orchestrator("Order", asActivity)).Verify(scheduled); err != nil {
			t.Errorf("as an activity of another worker: %v", err)
		}
		for name, f := range map[string]*durable.Registration{"a step": asStep(), "a step that runs at most once": asStep(durable.AtMostOnce)} {
			if err := durable.NewRegistry(f).Verify(waiting(f)); err != nil {
				t.Errorf("%s that waits for its result: %v", name, err)
			}
		}
	})
}

// The messages of an instance's last episode can include a suspension.
func TestVerify_AcceptsASuspensionInTheLastEpisode(t *testing.T) {
	head := func(id int) history.Header {
		h := history.NewHeader(time.Now())
		h.EventID = id
		return h
	}
	events := []history.Event{
		&history.OrchestratorStarted{Header: head(-1)},
		&history.ExecutionStarted{Header: head(-1), Name: "Main", Instance: history.OrchestrationInstance{InstanceID: "i", ExecutionID: "e"}},
		&history.ExecutionSuspended{Header: head(-1)},
		&history.ExecutionCompleted{Header: head(0), Status: history.Completed},
		&history.OrchestratorCompleted{Header: head(-1)},
	}
	for err, main := range map[error]func(*durable.Context, durable.Void) (int, error){
		nil:             func(*durable.Context, durable.Void) (int, error) { return 1, nil },
		errDoesNotMatch: func(*durable.Context, durable.Void) (int, error) { return 0, errDoesNotMatch },
	} {
		_, differs := errors.AsType[*durable.HistoryMismatchError](durable.NewRegistry(durable.Orchestrator("Main", main)).Verify(events))
		if differs != (err != nil) {
			t.Errorf("code that returns %v differs: %v", err, differs)
		}
	}
}

var errDoesNotMatch = errors.New("does not match")

func TestStalls_AreAbandoned(t *testing.T) {
	for _, sessions := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			whytest.ExerciseStalls(t, memhub.New(), durable.Config{ExtendedSessionIdle: sessionIdle(sessions)})
		})
	}
}
