package durable_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
)

// A safe is an entity that somebody holds.
type safe struct{ Opened int }

func (s *safe) Open(ctx *durable.EntityContext, _ durable.Void) (int, error) {
	<-ctx.Done()
	s.Opened++
	return s.Opened, nil
}

// stuck has orchestrators that wait for one thing each, at lines with a comment.
type stuck struct{}

func (s *stuck) child(ctx *durable.Context, _ durable.Void) (string, error) {
	return signal.Wait(ctx).Await() // child
}

func (s *stuck) forActivity(ctx *durable.Context, _ durable.Void) (string, error) {
	return durable.CallActivity(ctx, s.work, "w").Await() // activity
}

func (s *stuck) work(ctx context.Context, _ string) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

func (s *stuck) forRetry(ctx *durable.Context, _ durable.Void) (string, error) {
	return durable.CallActivity(ctx, s.fail, "", durable.RetryPolicy{MaxAttempts: 3, FirstInterval: time.Hour}).Await() // retry
}

func (s *stuck) forLastAttempt(ctx *durable.Context, _ durable.Void) (string, error) {
	return durable.CallActivity(ctx, s.failOnce, "", durable.RetryPolicy{MaxAttempts: 2, FirstInterval: 1}).Await() // attempt
}

func (s *stuck) failOnce(ctx context.Context, _ string) (string, error) {
	if info, _ := durable.ActivityInfoFrom(ctx); info.TaskID == 0 {
		return "", errors.New("not yet")
	}
	<-ctx.Done()
	return "", ctx.Err()
}

func (s *stuck) fail(context.Context, string) (string, error) { return "", errors.New("not yet") }

func (s *stuck) forChild(ctx *durable.Context, _ durable.Void) (string, error) {
	return durable.CallSubOrchestrator(ctx, s.child, durable.Void{}, durable.InstanceID("the-child")).Await() // sub-orchestration
}

func (s *stuck) forTimer(ctx *durable.Context, _ durable.Void) (string, error) {
	ctx.Sleep(48 * time.Hour) // timer
	return "", nil
}

func (s *stuck) forEvent(ctx *durable.Context, _ durable.Void) (string, error) {
	return signal.Wait(ctx).Await() // event
}

func (s *stuck) forSome(ctx *durable.Context, _ durable.Void) (string, error) {
	_, _ = durable.CallActivity(ctx, s.fail, "").Await() // is complete
	ctx.Timer(time.Hour)
	one, two := durable.CallActivity(ctx, s.work, "one"), durable.CallActivity(ctx, s.work, "two")
	_, err := durable.AwaitAll(one, two) // some
	return "", err
}

func (s *stuck) forEntity(ctx *durable.Context, _ durable.Void) (int, error) {
	return durable.CallEntity(ctx, durable.EntityKey[safe]("s"), (*safe).Open, durable.Void{}).Await() // entity
}

func (s *stuck) holds(ctx *durable.Context, _ durable.Void) (string, error) {
	defer durable.LockEntities(ctx, durable.EntityKey[safe]("l"))() // lock
	return signal.Wait(ctx).Await()                                 // holds
}

func (s *stuck) registry() *durable.Registry {
	return durable.NewRegistry(
		durable.Orchestrator("Child", s.child), durable.Orchestrator("ForActivity", s.forActivity), durable.Activity("Work", s.work),
		durable.Orchestrator("ForRetry", s.forRetry), durable.Activity("Fail", s.fail),
		durable.Orchestrator("ForLastAttempt", s.forLastAttempt), durable.Activity("FailOnce", s.failOnce), durable.Orchestrator("ForChild", s.forChild),
		durable.Orchestrator("ForTimer", s.forTimer), durable.Orchestrator("ForEvent", s.forEvent), durable.Orchestrator("ForSome", s.forSome),
		durable.Orchestrator("ForEntity", s.forEntity), durable.Orchestrator("Holds", s.holds),
		durable.Entity("Safe", durable.Op("open", (*safe).Open)),
	)
}

// line returns where this file has a comment.
func line(t *testing.T, comment string) string {
	t.Helper()
	text, err := os.ReadFile("why_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range strings.Split(string(text), "\n") {
		if strings.HasSuffix(l, " // "+comment) {
			return fmt.Sprintf("why_test.go:%d", i+1)
		}
	}
	t.Fatalf("there is no line with // %s", comment)
	return ""
}

func TestWhy_NamesWhatAnInstanceWaitsForAndWhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := memhub.New(), new(stuck)
		defer run(t, h, s.registry(), durable.Config{})()
		c := durable.NewClient(h, s.registry())
		began := time.Now()
		start := func(name, id string, opts ...durable.StartOption) durable.InstanceID {
			return must[durable.InstanceID](t)(c.StartByName(t.Context(), name, nil, append(opts, durable.InstanceID(id))...))
		}
		start("Holds", "holder")
		time.Sleep(time.Second)
		for n, tt := range []struct {
			name string
			opts []durable.StartOption
			then func(id durable.InstanceID)
			want []durable.Reason
		}{
			{name: "ForActivity", want: []durable.Reason{{Kind: durable.ReasonActivity, Name: "Work", Where: []string{line(t, "activity")}}}},
			{name: "ForRetry", want: []durable.Reason{{
				Kind: durable.ReasonTimer, Name: "Fail", Attempt: 2, Attempts: 3, TaskID: 1, Due: began.Add(time.Hour + time.Second), Where: []string{line(t, "retry")},
			}}},
			{name: "ForLastAttempt", want: []durable.Reason{{
				Kind: durable.ReasonActivity, Name: "FailOnce", Attempt: 2, Attempts: 2, TaskID: 2, Where: []string{line(t, "attempt")},
			}}},
			{name: "ForChild", want: []durable.Reason{{
				Kind: durable.ReasonSubOrchestration, Name: "Child", InstanceIDs: []durable.InstanceID{"the-child"}, Where: []string{line(t, "sub-orchestration")},
			}}},
			{name: "ForTimer", want: []durable.Reason{{Kind: durable.ReasonTimer, Due: began.Add(48*time.Hour + time.Second), Where: []string{line(t, "timer")}}}},
			{name: "ForEvent", want: []durable.Reason{{Kind: durable.ReasonEvent, Name: "Signal", TaskID: -1, Where: []string{line(t, "event")}}}},
			{name: "ForSome", want: []durable.Reason{ // and not for the timer
				{Kind: durable.ReasonActivity, Name: "Work", TaskID: 2, Where: []string{line(t, "some")}},
				{Kind: durable.ReasonActivity, Name: "Work", TaskID: 3}, // which it awaits after the first
			}},
			{name: "ForEntity", want: []durable.Reason{{
				Kind: durable.ReasonEntityCall, Name: "open", InstanceIDs: []durable.InstanceID{"@safe@s"}, Where: []string{line(t, "entity")},
			}}},
			{name: "Holds", want: []durable.Reason{{
				Kind: durable.ReasonEntityLock, InstanceIDs: []durable.InstanceID{"@safe@l"}, HeldBy: "holder", Where: []string{line(t, "lock")},
			}}},
			{name: "Holds", opts: []durable.StartOption{durable.StartAt(began.Add(24 * time.Hour))}, want: []durable.Reason{{
				Kind: durable.ReasonScheduled, TaskID: -1, Due: began.Add(24 * time.Hour),
			}}},
			{name: "Unknown", want: []durable.Reason{{Kind: durable.ReasonNotStarted, TaskID: -1}}},
			{
				name: "ForEvent", then: func(id durable.InstanceID) {
					if err := c.Suspend(t.Context(), id, "an audit"); err != nil {
						t.Fatal(err)
					}
				},
				want: []durable.Reason{
					{Kind: durable.ReasonSuspended, TaskID: -1, Detail: "an audit"},
					{Kind: durable.ReasonEvent, Name: "Signal", TaskID: -1, Where: []string{line(t, "event")}},
				},
			},
			{
				name: "ForEvent", then: func(id durable.InstanceID) {
					if err := c.Terminate(t.Context(), id, "enough"); err != nil {
						t.Fatal(err)
					}
				},
				want: []durable.Reason{{Kind: durable.ReasonEnded, TaskID: -1, Detail: "enough"}},
			},
		} {
			id := start(tt.name, fmt.Sprintf("%s-%d", tt.name, n), tt.opts...)
			synctest.Wait()
			if tt.then != nil {
				tt.then(id)
				synctest.Wait()
			}
			w := must[*durable.Wait](t)(c.Why(t.Context(), id))
			got := slices.Clone(w.Reasons)
			for i := range got {
				if got[i].Since.IsZero() || got[i].Since.After(time.Now()) {
					t.Errorf("%s: since %v", tt.name, got[i].Since)
				}
				got[i].Since = time.Time{}
			}
			for i := range tt.want {
				tt.want[i].Due = tt.want[i].Due.UTC()
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%s waits for\n%+v, want\n%+v", id, got, tt.want)
			}
		}
		if _, err := c.Why(t.Context(), "nobody"); !errors.Is(err, durable.ErrInstanceNotFound) {
			t.Errorf("of nobody: %v", err)
		}
	})
}

// Without code, a history tells what was begun and is not complete. What a client has
// that knows other code is said as well.
func TestWhy_TellsWhatItKnowsWithoutTheCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := memhub.New(), new(stuck)
		defer run(t, h, s.registry(), durable.Config{})()
		id := must[durable.InstanceID](t)(durable.NewClient(h, nil).StartByName(t.Context(), "ForSome", nil))
		synctest.Wait()
		kinds := func(r *durable.Registry) (kinds []durable.ReasonKind) {
			for _, reason := range must[*durable.Wait](t)(durable.NewClient(h, r).Why(t.Context(), id)).Reasons {
				kinds = append(kinds, reason.Kind)
			}
			return kinds
		}
		begun := []durable.ReasonKind{durable.ReasonTimer, durable.ReasonActivity, durable.ReasonActivity}
		if got := kinds(nil); !slices.Equal(got, begun) {
			t.Errorf("without a registry: %v", got)
		}
		if got := kinds(durable.NewRegistry()); !slices.Equal(got, append([]durable.ReasonKind{durable.ReasonNotRegistered}, begun...)) {
			t.Errorf("without the orchestrator: %v", got)
		}
		other := durable.NewRegistry(durable.Orchestrator("ForSome", s.forChild), durable.Orchestrator("Child", s.child))
		if got := kinds(other); !slices.Equal(got, []durable.ReasonKind{durable.ReasonHistoryMismatch}) {
			t.Errorf("with other code: %v", got)
		}
	})
}

func TestVerify_TellsWhichInstancesCannotGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := memhub.New(), new(stuck)
		defer run(t, h, s.registry(), durable.Config{})()
		c := durable.NewClient(h, s.registry())
		id := must[durable.InstanceID](t)(c.StartByName(t.Context(), "ForSome", nil))
		synctest.Wait()
		events := must[[]history.Event](t)(c.History(t.Context(), id))
		text := must[[]byte](t)(durable.MarshalHistory(events))
		read := must[[]history.Event](t)(durable.UnmarshalHistory(text))
		if !reflect.DeepEqual(read, events) {
			t.Errorf("a history was read as another: %s", text)
		}
		if err := s.registry().Verify(read); err != nil {
			t.Errorf("with the same code: %v", err)
		}
		if err := s.registry().Verify(nil); err != nil {
			t.Errorf("of an instance that has not begun: %v", err)
		}
		if err := durable.NewRegistry().Verify(read); !errors.Is(err, durable.ErrNotRegistered) {
			t.Errorf("without code: %v", err)
		}
		other := durable.NewRegistry(durable.Orchestrator("ForSome", s.forActivity), durable.Activity("Work", s.work))
		mismatch, ok := errors.AsType[*durable.HistoryMismatchError](other.Verify(read))
		if !ok || mismatch.InstanceID != id || mismatch.Decision != 0 || mismatch.Name != "ForSome" ||
			!strings.Contains(mismatch.Recorded, "Fail") || !strings.Contains(mismatch.Produced, "Work") || mismatch.Event != 2 {
			t.Errorf("with other code: %+v", mismatch)
		}
	})
}
