package durable_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/google/go-cmp/cmp"
)

func loop(ctx *durable.Context, n int) (string, error) {
	if n >= 3 {
		return "end", nil
	}
	ctx.Sleep(time.Minute)
	return durable.ContinueAsNew(ctx, loop, n+1)
}

func TestContinueAsNew_EndsTheExecutionWithTheNextInput(t *testing.T) {
	t.Parallel()
	s := stage(t, loop)
	s.Start(1)
	wantActions(t, s.Episode(fired(0)), "1 ContinuedAsNew 2")
	if s.End().Failure != nil || s.End().CarryOver != nil && len(s.End().CarryOver) > 0 {
		t.Errorf("end = %+v", s.End())
	}
	wantActions(t, s.Episode(fired(0))) // no more actions
}

func TestContinueAsNew_WorksIfItIsWrappedOrCalledInABranch(t *testing.T) {
	t.Parallel()
	var wrapped, branch func(ctx *durable.Context, n int) (string, error)
	wrapped = func(ctx *durable.Context, n int) (string, error) {
		s, err := durable.ContinueAsNew(ctx, wrapped, n+1)
		return s, fmt.Errorf("monitor: %w", err)
	}
	branch = func(ctx *durable.Context, n int) (string, error) {
		a := durable.Go(ctx, func() (string, error) { return durable.ContinueAsNew(ctx, branch, n+1) })
		b := durable.Go(ctx, func() (string, error) { return "", errDeclined })
		_, err := durable.AwaitAll(ctx, b, a)
		return "", err
	}
	for name, orch := range map[string]func(ctx *durable.Context, n int) (string, error){"wrapped": wrapped, "branch": branch} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stage(t, orch)
			wantActions(t, s.Start(4), "0 ContinuedAsNew 5")
		})
	}
}

func TestContinueAsNew_MustBeReturned(t *testing.T) {
	t.Parallel()
	var self func(ctx *durable.Context, instead string) (string, error)
	self = func(ctx *durable.Context, instead string) (string, error) {
		if _, err := durable.ContinueAsNew(ctx, self, instead); err == nil {
			return "", errDeclined
		}
		if instead == "error" {
			return "", errDeclined
		}
		return instead, nil
	}
	for _, instead := range []string{"value", "error"} {
		s := stage(t, self)
		s.Start(instead)
		wantFailure(t, s, "the orchestrator called ContinueAsNew and returned something else; end it with: return durable.ContinueAsNew(ctx, ...)")
	}
}

func TestContinueAsNew_RejectsAnotherOrchestrator(t *testing.T) {
	t.Parallel()
	s := stageOf(t, authors(
		durable.Orchestrator("Loop", loop),
		durable.Orchestrator("Main", func(ctx *durable.Context, n int) (string, error) {
			return durable.ContinueAsNew(ctx, loop, n)
		})))
	wantActions(t, s.Start(1), "0 Failed durable: orchestrator Main cannot continue as Loop; an instance keeps its orchestrator")
}

func TestContinueAsNew_EndsBranches(t *testing.T) {
	t.Parallel()
	unwound := false
	var self func(ctx *durable.Context, n int) (string, error)
	self = func(ctx *durable.Context, n int) (string, error) {
		durable.Go(ctx, func() (int, error) {
			defer func() { unwound = true }()
			return durable.CallActivity(ctx, count, "x").Await()
		})
		ctx.Sleep(0)
		return durable.ContinueAsNew(ctx, self, n)
	}
	s := stage(t, self)
	s.Start(1)
	s.Episode(fired(0))
	if !unwound {
		t.Error("the branch was not unwound")
	}
}

func TestContinueAsNew_CarriesOverUnreadEvents(t *testing.T) {
	t.Parallel()
	var self func(ctx *durable.Context, n int) (int, error)
	self = func(ctx *durable.Context, n int) (int, error) {
		unseen := number.Wait(ctx) // receives event 4 but is never awaited
		first, err := number.Wait(ctx).Await()
		if err != nil {
			return 0, err
		}
		seen := stop.Wait(ctx)
		durable.AwaitAny(ctx, seen, ctx.Timer(time.Hour)) // counts as read because AwaitAny returns it
		ctx.Sleep(time.Minute)
		_ = unseen
		return durable.ContinueAsNew(ctx, self, first)
	}
	s := stage(t, self)
	s.Start(0)
	events := []history.Event{
		raised("other", "1"), raised("Number", "2"), raised("stop", ""), raised("Number", "4"),
		raised("Number", "5"), raised("other", "6"),
	}
	s.Episode(events...)
	s.Episode(fired(1), raised("NUMBER", "7"), raised("stop", `8`), done(1, "9")) // the execution ends before event 7
	end := s.End()
	if end == nil || end.Status != history.ContinuedAsNew {
		t.Fatalf("end = %+v", end)
	}
	var got []string
	for _, e := range end.CarryOver {
		got = append(got, e.Name+"="+*e.Input)
	}
	want := []string{"other=1", "Number=4", "Number=5", "other=6", "NUMBER=7", "stop=8"}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("carried over (-got +want):\n%s", diff)
	}
}

func TestContinueAsNew_YieldsToATerminationInTheSameEpisode(t *testing.T) {
	t.Parallel()
	s := stage(t, loop)
	s.Start(1)
	actions := s.Episode(fired(0), raised("E", ""), &history.ExecutionTerminated{Reason: new("enough")})
	wantActions(t, actions, "2 Terminated enough")
	if s.End().CarryOver != nil {
		t.Errorf("carried over %v", s.End().CarryOver)
	}
}

func TestContinueAsNew_CarriesOverASuspensionOfTheSameEpisode(t *testing.T) {
	t.Parallel()
	suspended := &history.ExecutionSuspended{Reason: new("hold on")}
	s := stage(t, loop)
	s.Start(1)
	s.Episode(fired(0), suspended)
	if s.End().Suspended != suspended {
		t.Errorf("end = %+v", s.End())
	}
	s = stage(t, loop)
	s.Start(1)
	s.Episode(fired(0), suspended, &history.ExecutionResumed{})
	if s.End().Suspended != nil {
		t.Errorf("end = %+v", s.End())
	}
}

func TestContinueAsNew_InputThatCannotBeEncodedIsAnError(t *testing.T) {
	t.Parallel()
	var self func(ctx *durable.Context, c func()) (string, error)
	self = func(ctx *durable.Context, c func()) (string, error) {
		return durable.ContinueAsNew(ctx, self, func() {})
	}
	s := stage(t, self)
	s.Start(nil)
	wantFailure(t, s, "encode next input of orchestrator Main: json: unsupported type: func()")
}

func TestContinueAsNew_DiscardsEventsOnRequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		opts []durable.ContinueAsNewOption
		want int
	}{
		{nil, 2},
		{[]durable.ContinueAsNewOption{durable.DiscardEvents}, 0},
	} {
		var again func(ctx *durable.Context, n int) (int, error)
		again = func(ctx *durable.Context, n int) (int, error) {
			ctx.Sleep(time.Hour)
			return durable.ContinueAsNew(ctx, again, n+1, c.opts...)
		}
		s := stage(t, again)
		s.Start(1)
		s.Episode(raised("E", "1"))
		wantActions(t, s.Episode(fired(0), raised("E", "2")), "1 ContinuedAsNew 2")
		if got := len(s.End().CarryOver); got != c.want {
			t.Errorf("%d events are carried over, want %d", got, c.want)
		}
	}
}

func loopV1(ctx *durable.Context, trail []string) ([]string, error) {
	trail = append(trail, "one:"+string(ctx.Version()))
	return durable.ContinueAsNew(ctx, loopV2, trail)
}

func loopV2(ctx *durable.Context, trail []string) ([]string, error) {
	trail = append(trail, "two:"+string(ctx.Version()))
	if len(trail) == 3 {
		return durable.ContinueAsNew(ctx, loopV2, trail, durable.Version("3.0"))
	}
	return durable.ContinueAsNew(ctx, loopV2, trail)
}

func loopAny(ctx *durable.Context, trail []string) ([]string, error) {
	ctx.Sleep(time.Second)
	return append(trail, "any:"+string(ctx.Version())), nil
}

func TestContinueAsNew_CanChangeTheVersion(t *testing.T) {
	for _, sessions := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := memhub.New()
			old := durable.NewRegistry(
				durable.Orchestrator("Loop", loopV1, durable.Version("1.0")),
				durable.Orchestrator("Loop", loopV2, durable.Version("2.0")))
			stop := run(t, h, old, durable.Config{ExtendedSessionIdle: sessionIdle(sessions)})
			c := durable.NewClient(h, old)
			i, err := durable.Start(t.Context(), c, loopV1, nil)
			if err != nil {
				t.Fatal(err)
			}
			// The old worker has no function for 3.0. It commits that generation without
			// running it and releases the instance.
			time.Sleep(time.Minute)
			s, err := i.Status(t.Context(), durable.Fetch{})
			if err != nil || s.Version != "3.0" || s.Status != history.Running {
				t.Fatalf("instance is %+v, %v, want it Running as 3.0", s, err)
			}
			stop()
			latest := durable.NewRegistry(durable.Orchestrator("Loop", loopAny))
			defer run(t, h, latest, durable.Config{ExtendedSessionIdle: sessionIdle(sessions)})()
			out, err := i.Wait(t.Context())
			if got := strings.Join(out, " "); err != nil || got != "one:1.0 two:2.0 two:2.0 any:3.0" {
				t.Errorf("output %s, %v", got, err)
			}
		})
	}
}
